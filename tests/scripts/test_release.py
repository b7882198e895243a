"""release.lua: what was not started is handed back free, what runs with one more death."""

from typing import Any, NamedTuple

import pytest

from support.queue_state import Queue, State, after

ORDINARY: State = {
    "workers": {"w": "alive"},
    "claims": {"claimed:w:1": "w"},
    "claimed:w:1": ["a", "b", "c"],
    "normal": ["n"],
}
SUSPECT: State = ORDINARY | {"claims": {"claimed:w:1": "w started"}, "claimed:w:1": ["2|s"]}
GONE: State = {"claims": None, "claimed:w:1": None}


class Case(NamedTuple):
    title: str
    before: State
    options: dict[str, Any]
    answer: int
    changes: State


CASES = [
    Case(
        "unstarted: to the head of returned, in order",
        ORDINARY | {"returned": ["r"]},
        {},
        3,
        {"returned": ["a", "b", "c", "r"], **GONE},
    ),
    Case(
        "unstarted: behind those that are kept",
        ORDINARY,
        {"keep": 1},
        2,
        {"returned": ["b", "c"], "claimed:w:1": ["a"]},
    ),
    Case("unstarted: nothing behind those that are kept", ORDINARY, {"keep": 3}, 0, {}),
    Case("unstarted: fewer than are kept", ORDINARY, {"keep": 9}, 0, {}),
    Case(
        "unstarted: a suspect to the head of suspects as it is",
        SUSPECT | {"suspects": ["1|t"]},
        {},
        1,
        {"suspects": ["2|s", "1|t"], **GONE},
    ),
    Case(
        "unstarted: a suspect and its company part",
        SUSPECT | {"claimed:w:1": ["2|s", "a"]},
        {},
        2,
        {"suspects": ["2|s"], "returned": ["a"], **GONE},
    ),
    Case(
        "started: to the head of suspects with one death, in order",
        ORDINARY | {"suspects": ["1|t"]},
        {"how": "started"},
        3,
        {"suspects": ["1|a", "1|b", "1|c", "1|t"], **GONE},
    ),
    Case(
        "started: only those behind the kept ones",
        ORDINARY,
        {"how": "started", "keep": 2},
        1,
        {"suspects": ["1|c"], "claimed:w:1": ["a", "b"]},
    ),
    Case(
        "started: a suspect with one more death",
        SUSPECT | {"claimed:w:1": ["2|s|t"]},
        {"how": "started"},
        1,
        {"suspects": ["3|s|t"], **GONE},
    ),
    Case(
        "started: a forged prefix counts nothing",
        ORDINARY | {"claimed:w:1": ["9|forged"]},
        {"how": "started"},
        1,
        {"suspects": ["1|9|forged"], **GONE},
    ),
    Case(
        "tokens are dropped and not counted",
        ORDINARY | {"claimed:w:1": ["a", "", "b", ""]},
        {"keep": 1},
        1,
        {"claimed:w:1": ["a"], "returned": ["b"]},
    ),
    Case(
        "only tokens: the claim is gone",
        ORDINARY | {"claimed:w:1": [""]},
        {},
        0,
        GONE,
    ),
    Case(
        "no bell for nothing",
        ORDINARY | {"normal": None},
        {"keep": 3},
        0,
        {},
    ),
    Case(
        "a bell is rung for what was put back",
        ORDINARY | {"normal": None},
        {},
        3,
        {"returned": ["a", "b", "c"], "normal": [""], **GONE},
    ),
    Case(
        "a normal lane of another type stops nothing",
        ORDINARY | {"normal": "a string"},
        {},
        3,
        {"returned": ["a", "b", "c"], **GONE},
    ),
    Case(
        "a suspect whose record was deleted by hand is known by its prefix",
        SUSPECT | {"claims": None},
        {},
        1,
        {"suspects": ["2|s"], **GONE},
    ),
    Case("the worker is unknown", ORDINARY | {"workers": None}, {}, -1, {}),
    Case("the number is closed", ORDINARY | {"closed": {"w": "1"}}, {}, -1, {}),
    Case("the list is gone", ORDINARY | {"claimed:w:1": None}, {}, -1, {}),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)
def test_table(queue: Queue, case: Case) -> None:
    """Each row: a state, one release, its answer and exactly what it changed."""
    before = after(case.before, {})
    queue.put(before)
    assert queue.run(queue.calls.release(**case.options)) == case.answer
    assert queue.state() == after(before, case.changes)


@pytest.mark.parametrize("how", ["unstarted", "started"])
def test_twice(queue: Queue, how: str) -> None:
    """A release that is sent again is fenced: the list is gone."""
    queue.put(ORDINARY)
    call = queue.calls.release(how=how)
    assert queue.run(call) == 3
    once = queue.state()
    assert queue.run(call) == -1
    assert queue.state() == once


def test_late_copy_with_some_kept(queue: Queue) -> None:
    """A late copy moves only what was added since, which its worker never saw."""
    queue.put(ORDINARY)
    call = queue.calls.release(keep=2)
    queue.run(call)
    assert queue.run(call) == 0
    queue.client.rpush(queue.key("claimed:w:1"), "unseen")
    assert queue.run(call) == 1
    state = queue.state()
    assert state["claimed:w:1"] == ["a", "b"]
    assert state["returned"] == ["unseen", "c"]


def test_newest_first(queue: Queue) -> None:
    """Two claims released newest first lie in returned in the order in which they were taken."""
    queue.put({"workers": {"w": "alive"}, "normal": ["a", "b", "c", "d"]})
    queue.run(queue.calls.claim(want=2))
    queue.run(queue.calls.claim(number=2, floor=1, want=2))
    queue.run(queue.calls.release(number=2))
    queue.run(queue.calls.release(number=1))
    assert queue.state()["returned"] == ["a", "b", "c", "d"]


def test_number_stays_open(queue: Queue) -> None:
    """A release closes no number: an older claim may still be open, and is completed."""
    queue.put({"workers": {"w": "alive"}, "normal": ["a", "b"]})
    queue.run(queue.calls.claim(want=1))
    queue.run(queue.calls.claim(number=2, floor=1, want=1))
    queue.run(queue.calls.release(number=2))
    assert queue.run(queue.calls.complete()) == 0
    assert queue.state()["closed"] == {"w": "1"}
