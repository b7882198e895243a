"""claim.lua for a worker that is unknown or a number that is closed: nothing taken, all put back."""

from typing import NamedTuple

import pytest

from support.queue_state import Queue, State, after

RECORD: State = {"claims": {"claimed:w:1": "w"}}


class Case(NamedTuple):
    title: str
    before: State
    answer: list[int]
    changes: State


UNKNOWN = [
    Case("unknown, nothing held", {"normal": ["a"]}, [-2], {}),
    Case("unknown, an empty record", RECORD | {"normal": ["a"]}, [-2], {"claims": None}),
    Case(
        "unknown, requests go to the head of returned in order",
        RECORD | {"claimed:w:1": ["a", "b"], "returned": ["c"], "normal": ["n"]},
        [-2],
        {"claimed:w:1": None, "claims": None, "returned": ["a", "b", "c"]},
    ),
    Case(
        "unknown, a suspect goes to the head of suspects as it is",
        {
            "claims": {"claimed:w:1": "w started"},
            "claimed:w:1": ["1|s"],
            "suspects": ["1|t"],
            "normal": ["n"],
        },
        [-2],
        {"claimed:w:1": None, "claims": None, "suspects": ["1|s", "1|t"]},
    ),
    Case(
        "unknown, a suspect and its company part",
        {
            "claims": {"claimed:w:1": "w suspect"},
            "claimed:w:1": ["1|s", "a", "b"],
            "normal": ["n"],
        },
        [-2],
        {"claimed:w:1": None, "claims": None, "suspects": ["1|s"], "returned": ["a", "b"]},
    ),
    Case(
        "unknown, tokens are dropped and a bell is rung for what was put back",
        RECORD | {"claimed:w:1": ["", "a"]},
        [-2],
        {"claimed:w:1": None, "claims": None, "returned": ["a"], "normal": [""]},
    ),
    Case(
        "unknown, an unrecorded list is put back too",
        {"claimed:w:1": ["a"], "normal": ["n"]},
        [-2],
        {"claimed:w:1": None, "returned": ["a"]},
    ),
    Case(
        "unknown, other claims keep their records",
        {"claims": {"claimed:w:1": "w", "claimed:v:1": "v"}, "claimed:v:1": ["a"]},
        [-2],
        {"claims": {"claimed:v:1": "v"}},
    ),
]

MEMBER: State = {"workers": {"w": "alive"}, "closed": {"w": "1"}}
CLOSED = [
    Case("closed, nothing held", MEMBER | {"normal": ["a"]}, [-1, 1], {}),
    Case(
        "closed far behind",
        {"workers": {"w": "alive"}, "closed": {"w": "7"}, "normal": ["a"]},
        [-1, 7],
        {},
    ),
    Case(
        "closed, what a late BLMOVE brought goes back",
        MEMBER | {"claimed:w:1": ["a"]},
        [-1, 1],
        {"claimed:w:1": None, "returned": ["a"], "normal": [""]},
    ),
    Case(
        "closed, what a late open recorded is dropped",
        MEMBER | RECORD,
        [-1, 1],
        {"claims": None},
    ),
]


@pytest.mark.parametrize("case", [*UNKNOWN, *CLOSED], ids=lambda case: case.title)
@pytest.mark.parametrize("mode", ["last", "start"])
def test_table(queue: Queue, case: Case, mode: str) -> None:
    """Each row: a state, one refused claim, its answer and exactly what it changed."""
    queue.put(case.before)
    assert queue.run(queue.calls.claim(mode=mode)) == case.answer
    assert queue.state() == after(case.before, case.changes)


def test_late_copy_after_completion(queue: Queue) -> None:
    """A copy of a claim that arrives after its completion takes no request."""
    queue.put({"workers": {"w": "alive"}, "normal": ["a", "b"]})
    call = queue.calls.claim(want=1)
    queue.run(call)
    queue.run(queue.calls.complete())
    before = queue.state()
    assert queue.run(call) == [-1, 1]
    assert queue.state() == before


def test_late_copy_after_recovery(queue: Queue) -> None:
    """A copy of a claim that arrives after its worker was recovered takes no request."""
    queue.put({"workers": {"w": "alive"}, "normal": ["a", "b"]})
    call = queue.calls.claim(want=1)
    queue.run(call)
    queue.run(queue.calls.recover(how="dead"))
    before = queue.state()
    assert queue.run(call) == [-2]
    assert queue.state() == before


def test_refused_twice(queue: Queue) -> None:
    """A refused claim that is sent again finds nothing left to put back."""
    queue.put({"claimed:w:1": ["a"], "claims": {"claimed:w:1": "w"}})
    call = queue.calls.claim()
    assert queue.run(call) == [-2]
    once = queue.state()
    assert queue.run(call) == [-2]
    assert queue.state() == once == {"returned": ["a"], "normal": [""]}
