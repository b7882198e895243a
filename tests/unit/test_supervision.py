"""What a parent decides: when a loop is stuck, when to start again, who gets which device."""

import math
import os

import pytest

from inferq_worker.backoff import Backoff
from inferq_worker.placement import environments
from inferq_worker.progress import Board, Limits, Phase, Progress

LIMITS = Limits(turning_s=15, waiting_s=20, running_s=300)
S = 10**9


@pytest.mark.parametrize(
    ("phase", "age_s", "words"),
    [
        (Phase.LOADING, 10_000, None),
        (Phase.TURNING, 15, None),
        (Phase.TURNING, 16, "has not turned for 15 s"),
        (Phase.WAITING, 20, None),
        (Phase.WAITING, 21, "more than 20 s without a look"),
        (Phase.RUNNING, 300, None),
        (Phase.RUNNING, 301, "more than batch_timeout, 300 s"),
    ],
)
def test_overrun(phase: Phase, age_s: int, words: str | None) -> None:
    """A loop is stuck once a phase outlasts its own limit, and loading has none."""
    found = LIMITS.overrun(Progress(phase, since_ns=5 * S, batches=0), now_ns=(5 + age_s) * S)
    assert (found is None) if words is None else (found is not None and words in found)


def test_no_batch_timeout() -> None:
    """Without a limit a batch may run for ever."""
    endless = Limits(15, 20, math.inf)
    assert endless.overrun(Progress(Phase.RUNNING, 0, 0), 10**18) is None


def test_board() -> None:
    """What a child writes can be read through another mapping of the same memory."""
    descriptor = Board.create()
    child, parent = Board(descriptor), Board(descriptor)
    os.close(descriptor)
    assert parent.look().phase is Phase.LOADING
    child.enter(Phase.RUNNING)
    child.completed()
    seen = parent.look()
    assert (seen.phase, seen.batches) == (Phase.RUNNING, 1)
    assert seen.since_ns > 0
    child.close()
    parent.close()


def test_backoff_grows_until_work_is_done() -> None:
    """Pauses double from half a second to five, and one completed batch begins them anew."""
    backoff = Backoff()
    pauses = [backoff.died(after_work=False) for _ in range(7)]
    assert pauses == [0, 0.5, 1, 2, 4, 5, 5]
    assert backoff.died(after_work=True) == 0
    assert backoff.died(after_work=False) == 0.5


def test_devices_go_round() -> None:
    """Each process sees one device, and threads are shared out."""
    made = environments(3, 8, ["0", "1"], {})
    assert [each["CUDA_VISIBLE_DEVICES"] for each in made] == ["0", "1", "0"]
    assert {each["OMP_NUM_THREADS"] for each in made} == {"2"}


def test_threads_that_are_set_stay() -> None:
    """Where the user has set a thread count, no other library's count is set against it."""
    assert environments(1, 4, [], {"OMP_NUM_THREADS": "1"}) == [{}]


def test_more_processes_than_cores() -> None:
    """No process is told to use no thread at all."""
    assert environments(8, 2, [], {})[0]["OMP_NUM_THREADS"] == "1"
