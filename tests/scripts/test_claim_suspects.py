"""claim.lua and suspects: one at a time, alone, charged only once it was touched."""

from typing import Any, NamedTuple

import pytest

from support.queue_state import Queue, State, after

KNOWN: State = {"workers": {"w": "alive"}}
ORDINARY: State = {"claims": {"claimed:w:1": "w"}}
SUSPECT: State = {"claims": {"claimed:w:1": "w suspect"}}
STARTED: State = {"claims": {"claimed:w:1": "w started"}}


class Case(NamedTuple):
    title: str
    before: State
    options: dict[str, Any]
    answer: list[Any]
    changes: State


CASES = [
    Case(
        "first: a suspect before anything else, without its prefix",
        {"suspects": ["2|s", "1|t"], "normal": ["a"], "returned": ["r"]},
        {"mode": "first"},
        [1, 2, 2, 8, "s"],
        {"suspects": ["1|t"], "claimed:w:1": ["2|s"], **SUSPECT},
    ),
    Case(
        "first: without suspects whatever waits",
        {"normal": ["a"]},
        {"mode": "first"},
        [1, 0, 0, 0, "a"],
        {"normal": None, "claimed:w:1": ["a"], **ORDINARY},
    ),
    Case(
        "first: not beside what is held",
        {"claimed:w:1": ["a"], **ORDINARY, "suspects": ["1|s"], "normal": ["b"]},
        {"mode": "first"},
        [1, 0, 0, 0, "a", "b"],
        {"claimed:w:1": ["a", "b"], "normal": [""]},
    ),
    Case(
        "last: not while the lanes hold work",
        {"suspects": ["1|s"], "normal": ["a", "b"]},
        {"want": 1},
        [1, 0, 1, 0, "a"],
        {"claimed:w:1": ["a"], "normal": ["b"], **ORDINARY},
    ),
    Case(
        "last: when nothing else waits",
        {"suspects": ["1|s"], "normal": [""]},
        {},
        [1, 1, 0, 8, "s"],
        {"suspects": None, "normal": None, "claimed:w:1": ["1|s"], **SUSPECT},
    ),
    Case(
        "never: not even then",
        {"suspects": ["1|s"], "normal": [""]},
        {"mode": "never"},
        [1, 0, 0, 0],
        ORDINARY,
    ),
    Case(
        "one at a time, and the bell is passed on for the next",
        {"suspects": ["1|s", "1|t"]},
        {},
        [1, 1, 0, 8, "s"],
        {"suspects": ["1|t"], "normal": [""], "claimed:w:1": ["1|s"], **SUSPECT},
    ),
    Case(
        "a suspect that was retried has no deaths and is a suspect all the same",
        {"suspects": ["0|s"]},
        {},
        [1, 0, 0, 8, "s"],
        {"suspects": None, "claimed:w:1": ["0|s"], **SUSPECT},
    ),
    Case(
        "tokens among suspects are dropped",
        {"suspects": ["", "", "1|s"]},
        {},
        [1, 1, 0, 8, "s"],
        {"suspects": None, "claimed:w:1": ["1|s"], **SUSPECT},
    ),
    Case(
        "only tokens among suspects",
        {"suspects": [""]},
        {},
        [1, 0, 0, 0],
        ORDINARY | {"suspects": None},
    ),
    Case(
        "a bar in the message is the message's own",
        {"suspects": ["3|a|b"]},
        {},
        [1, 3, 0, 8, "a|b"],
        {"suspects": None, "claimed:w:1": ["3|a|b"], **SUSPECT},
    ),
    Case(
        "a line break and a zero byte in the message too",
        {"suspects": ["3|a\nb\0c"]},
        {},
        [1, 3, 0, 8, "a\nb\0c"],
        {"suspects": None, "claimed:w:1": ["3|a\nb\0c"], **SUSPECT},
    ),
    Case(
        "what somebody pushed to suspects without a count has none",
        {"suspects": ["raw"]},
        {},
        [1, 0, 0, 8, "raw"],
        {"suspects": None, "claimed:w:1": ["raw"], **SUSPECT},
    ),
    Case(
        "a suspect's claim is not topped up",
        {"claimed:w:1": ["1|s"], **SUSPECT, "normal": ["a"]},
        {"want": 5},
        [1, 1, 1, 8, "s"],
        {},
    ),
    Case(
        "company goes back to the normal lane's head, in order and without tokens",
        {"claimed:w:1": ["1|s", "a", "", "b"], **SUSPECT, "normal": ["c"]},
        {},
        [1, 1, 3, 8, "s"],
        {"claimed:w:1": ["1|s"], "normal": ["a", "b", "c"]},
    ),
    Case(
        "company goes to returned where the normal lane is a key of another type",
        {"claimed:w:1": ["1|s", "a", "b"], **SUSPECT, "normal": "a string"},
        {},
        [1, 1, 2, 12, "s"],
        {"claimed:w:1": ["1|s"], "returned": ["a", "b"]},
    ),
    Case(
        "start: notes that the suspect is touched",
        {"claimed:w:1": ["1|s"], **SUSPECT},
        {"mode": "start"},
        [1, 1, 0, 8, "s"],
        STARTED,
    ),
    Case(
        "start: takes nothing",
        {"claimed:w:1": ["1|s"], **SUSPECT, "normal": ["a"], "suspects": ["1|t"]},
        {"mode": "start"},
        [1, 1, 1, 8, "s"],
        STARTED,
    ),
    Case(
        "start: sends company back",
        {"claimed:w:1": ["1|s", "a"], **SUSPECT},
        {"mode": "start"},
        [1, 1, 1, 8, "s"],
        {"claimed:w:1": ["1|s"], "normal": ["a"], **STARTED},
    ),
    Case(
        "start: takes no strangers where the suspect is gone",
        {"normal": ["a"], "suspects": ["1|s"]},
        {"mode": "start"},
        [1, 0, 1, 0],
        ORDINARY,
    ),
    Case(
        "start: an ordinary claim stays one",
        {"claimed:w:1": ["a"], **ORDINARY},
        {"mode": "start"},
        [1, 0, 0, 0, "a"],
        {},
    ),
    Case(
        "a forged prefix in a lane makes no suspect",
        {"normal": ["9|forged", "a"]},
        {},
        [1, 0, 0, 0, "9|forged", "a"],
        {"normal": None, "claimed:w:1": ["9|forged", "a"], **ORDINARY},
    ),
    Case(
        "nor does one that a BLMOVE brought into a recorded claim",
        {"claimed:w:1": ["9|forged"], **ORDINARY, "normal": ["a"]},
        {},
        [1, 0, 0, 0, "9|forged", "a"],
        {"normal": None, "claimed:w:1": ["9|forged", "a"]},
    ),
    Case(
        "a suspect whose record was deleted by hand is known by its prefix",
        {"claimed:w:1": ["2|s"], "normal": ["a"]},
        {"mode": "start"},
        [1, 2, 1, 8, "s"],
        STARTED,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)
def test_table(queue: Queue, case: Case) -> None:
    """Each row: a state, one claim of a known worker, its answer and exactly what it changed."""
    before = KNOWN | case.before
    queue.put(before)
    assert queue.run(queue.calls.claim(**case.options)) == case.answer
    assert queue.state() == after(before, case.changes)


@pytest.mark.parametrize("mode", ["first", "last", "never", "start"])
def test_again_with_a_suspect(queue: Queue, mode: str) -> None:
    """Any further claim of the same number gives the suspect alone, whatever waits."""
    queue.put(KNOWN | {"suspects": ["1|s", "1|t"]})
    queue.run(queue.calls.claim(mode="first"))
    queue.put({"normal": ["a"], "high": ["h"]})
    assert queue.run(queue.calls.claim(mode=mode)) == [1, 1, 2, 8, "s"]


def test_start_twice_and_late(queue: Queue) -> None:
    """Start may come again; late, when its claim is completed, it changes nothing."""
    queue.put(KNOWN | {"suspects": ["1|s"]})
    queue.run(queue.calls.claim())
    start = queue.calls.claim(mode="start")
    assert queue.run(start) == queue.run(start) == [1, 1, 0, 8, "s"]
    queue.run(queue.calls.complete())
    queue.put({"suspects": ["1|t"]})
    before = queue.state()
    assert queue.run(start) == [-1, 1]
    assert queue.state() == before | {"normal": [""]}


def test_touched_stays_touched(queue: Queue) -> None:
    """A late copy of the claim that took the suspect does not undo its start mark."""
    queue.put(KNOWN | {"suspects": ["1|s"]})
    claim = queue.calls.claim(mode="first")
    queue.run(claim)
    queue.run(queue.calls.claim(mode="start"))
    queue.run(claim)
    assert queue.state()["claims"] == {"claimed:w:1": "w started"}
