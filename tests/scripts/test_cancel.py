"""cancel.lua: a pending request is answered "cancelled", and workers are told to look."""

from typing import NamedTuple

import pytest
from redis.exceptions import ResponseError

from support.queue_state import Queue, State, after
from support.script_calls import Reply

CANCELLED: State = {
    "reply:a": "cancelled!",
    "cancelled": "1",
    "metrics": {"requests_cancelled": "1"},
}


class Case(NamedTuple):
    title: str
    before: State
    answer: int
    changes: State


CASES = [
    Case("pending", {"reply:a": "", "normal": ["a"]}, 1, CANCELLED),
    Case("answered", {"reply:a": "answer"}, 0, {}),
    Case("answered by as many bytes", {"reply:a": "cancelled?"}, 0, {}),
    Case("unknown", {"normal": ["a"]}, -1, {}),
    Case("cancelled before", {"reply:a": "cancelled!"}, 1, {}),
    Case(
        "counters of another type stop nothing",
        {"reply:a": "", "metrics": "a string"},
        1,
        CANCELLED | {"metrics": "a string"},
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)
def test_table(queue: Queue, case: Case) -> None:
    """Each row: a state, one cancellation, its answer and exactly what it changed."""
    queue.put(case.before)
    assert queue.run(queue.calls.cancel("a")) == case.answer
    assert queue.state() == after(case.before, case.changes)


def test_lives(queue: Queue) -> None:
    """The reply lives as long as the mark would have, the hint as asked, a second at least."""
    queue.run(queue.calls.submit([("a", "message")], mark_ms=50_000))
    queue.run(queue.calls.cancel("a", hint_ms=70_000))
    assert 1_000 < queue.life_ms("reply:a") <= 50_000
    assert 50_000 < queue.life_ms("cancelled") <= 70_000
    queue.run(queue.calls.submit([("b", "message")]))
    queue.run(queue.calls.cancel("b", hint_ms=-1))
    assert 1 < queue.life_ms("cancelled") <= 1_000


def test_twice(queue: Queue) -> None:
    """A cancellation that is sent again gives the same answer and counts once."""
    queue.put({"reply:a": ""})
    call = queue.calls.cancel("a")
    assert queue.run(call) == 1
    once = queue.state()
    assert queue.run(call) == 1
    assert queue.state() == once


def test_late_copy_after_the_answer(queue: Queue) -> None:
    """A copy that arrives after the answer is too late and leaves the answer."""
    queue.put({"reply:a": "answer"})
    call = queue.calls.cancel("a")
    assert queue.run(call) == queue.run(call) == 0
    assert queue.state() == {"reply:a": "answer"}


def test_result_after_the_cancellation(queue: Queue) -> None:
    """A result of a request that was cancelled while it ran is discarded."""
    queue.put({"workers": {"w": "alive"}, "normal": ["m"], "reply:a": ""})
    queue.run(queue.calls.claim())
    queue.run(queue.calls.cancel("a"))
    queue.run(queue.calls.complete(Reply("a")))
    state = queue.state()
    assert state["reply:a"] == "cancelled!"
    assert state["metrics"] == {"requests_cancelled": "1", "discarded": "1"}


def test_key_of_another_type(queue: Queue) -> None:
    """A reply key of another type refuses the call with WRONGTYPE and nothing changes."""
    queue.put({"reply:a": ["a list"]})
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        queue.run(queue.calls.cancel("a"))
    assert queue.state() == {"reply:a": ["a list"]}
