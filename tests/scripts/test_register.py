"""register.lua: a worker is known, and a claim has an owner on record before it holds anything."""

from typing import NamedTuple

import pytest

from support.queue_state import Queue, State, after


class Case(NamedTuple):
    title: str
    verb: str
    before: State
    answer: int
    changes: State


CASES = [
    Case("join: a new worker", "join", {}, 1, {"workers": {"w": "alive"}}),
    Case(
        "join: beside others",
        "join",
        {"workers": {"v": "lapsed"}},
        1,
        {"workers": {"v": "lapsed", "w": "alive"}},
    ),
    Case("join: one that is gone", "join", {"worker:w": {"state": "gone"}}, 0, {}),
    Case(
        "open: a known worker's lease begins anew and its claim is recorded",
        "open",
        {"workers": {"w": "lapsed"}},
        1,
        {"workers": {"w": "alive"}, "claims": {"claimed:w:1": "w"}},
    ),
    Case(
        "open: a record that is there stays, a suspect's most of all",
        "open",
        {"workers": {"w": "alive"}, "claims": {"claimed:w:1": "w started"}},
        1,
        {},
    ),
    Case(
        "open: an unknown worker stays unknown, and its claim is recorded all the same",
        "open",
        {"workers": {"v": "alive"}},
        0,
        {"claims": {"claimed:w:1": "w"}},
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)
def test_table(queue: Queue, case: Case) -> None:
    """Each row: a state, one registration, its answer and exactly what it changed; twice the same."""
    queue.put(case.before)
    call = queue.calls.register(case.verb)
    for _ in range(2):
        assert queue.run(call) == case.answer
        assert queue.state() == after(case.before, case.changes)


def test_information(queue: Queue) -> None:
    """What a worker tells about itself is kept while it renews, of a second at least."""
    queue.run(queue.calls.register("join", info=["host", "h", "pid", "7"], info_ms=50_000))
    assert queue.state()["worker:w"] == {"host": "h", "pid": "7"}
    assert 1_000 < queue.life_ms("worker:w") <= 50_000
    queue.run(queue.calls.register("open", info=["state", "idle"], info_ms=-1))
    assert queue.state()["worker:w"] == {"host": "h", "pid": "7", "state": "idle"}
    assert 1 < queue.life_ms("worker:w") <= 1_000


def test_unknown_worker_leaves_no_information(queue: Queue) -> None:
    """Whoever is not known has nothing to tell."""
    queue.run(queue.calls.register("open", info=["state", "idle"]))
    assert "worker:w" not in queue.state()


def test_lease_on_the_servers_clock(queue: Queue) -> None:
    """The lease ends on the server's time, so that no other clock matters."""
    earliest = queue.now_ms()
    queue.run(queue.calls.register("join"))
    assert earliest + 15_000 <= queue.lease_end_ms("w") <= queue.now_ms() + 15_000


def test_late_open(queue: Queue) -> None:
    """A late open of a completed claim leaves an empty record, which recovery sweeps."""
    queue.put({"workers": {"w": "alive"}, "normal": ["a"]})
    call = queue.calls.register("open")
    queue.run(call)
    queue.run(queue.calls.claim())
    queue.run(queue.calls.complete())
    before = queue.state()
    queue.run(call)
    assert queue.state() == before | {"claims": {"claimed:w:1": "w"}}
    queue.run(queue.calls.recover())
    assert queue.state() == before


@pytest.mark.parametrize("how", ["dead", "leave"])
def test_late_join(queue: Queue, how: str) -> None:
    """A late join does not bring a worker back that is gone."""
    call = queue.calls.register("join", info=["state", "idle"])
    queue.run(call)
    queue.run(queue.calls.recover(how=how))
    before = queue.state()
    assert queue.run(call) == 0
    assert queue.state() == before == {"worker:w": {"state": "gone"}}
