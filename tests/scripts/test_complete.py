"""complete.lua: replies written once, counted once, and the claim gone with its last part."""

from typing import Any, NamedTuple

import pytest

from support.queue_state import Queue, State, after
from support.script_calls import Reply

OPEN: State = {
    "workers": {"w": "alive"},
    "claims": {"claimed:w:1": "w"},
    "claimed:w:1": ["a", "b"],
    "reply:a": "",
    "reply:b": "",
}
GONE: State = {"claims": None, "claimed:w:1": None, "closed": {"w": "1"}}
WRITTEN: State = {"reply:a": "A", "reply:b": "B"}
BOTH = [Reply("a", "A"), Reply("b", "B")]


class Case(NamedTuple):
    title: str
    before: State
    replies: list[Reply]
    options: dict[str, Any]
    answer: int
    changes: State


REPLIES = [
    Case(
        "replies are written, counted, and the claim is closed",
        {},
        BOTH,
        {},
        2,
        {**WRITTEN, "metrics": {"requests_succeeded": "2"}, **GONE},
    ),
    Case(
        "each outcome has its own counter",
        {"metrics": {"requests_succeeded": "5"}},
        [Reply("a", "A"), Reply("b", "B", "requests_expired")],
        {},
        2,
        {**WRITTEN, "metrics": {"requests_succeeded": "6", "requests_expired": "1"}, **GONE},
    ),
    Case(
        "a request that was pushed without a mark is answered as well",
        {"reply:a": None},
        BOTH,
        {},
        2,
        {**WRITTEN, "metrics": {"requests_succeeded": "2"}, **GONE},
    ),
    Case(
        "the first reply stays",
        {"reply:a": "first"},
        BOTH,
        {},
        1,
        {"reply:b": "B", "metrics": {"requests_succeeded": "1", "discarded": "1"}, **GONE},
    ),
    Case(
        "of two replies for one id the first stays",
        {},
        [Reply("a", "A"), Reply("a", "again")],
        {},
        1,
        {"reply:a": "A", "metrics": {"requests_succeeded": "1", "discarded": "1"}, **GONE},
    ),
    Case(
        "an empty reply writes nothing, over a reply or a mark or nothing",
        {"reply:a": "first", "reply:c": None},
        [Reply("a", ""), Reply("b", ""), Reply("c", "")],
        {},
        0,
        {"metrics": {"discarded": "3"}, **GONE},
    ),
    Case(
        "a reply key of another type stops nothing",
        {"reply:a": ["a list"]},
        BOTH,
        {},
        1,
        {"reply:b": "B", "metrics": {"requests_succeeded": "1", "unwritable": "1"}, **GONE},
    ),
    Case(
        "a life that no server takes stops nothing",
        {},
        [Reply("a", "A", life_ms=2**63), Reply("b", "B")],
        {},
        1,
        {"reply:b": "B", "metrics": {"requests_succeeded": "1", "unwritable": "1"}, **GONE},
    ),
]

BESIDES = [
    Case(
        "ids go to their boxes in order",
        {"inbox:y": ["earlier"]},
        BOTH,
        {"hints": {"x": ["a"], "y": ["b", "a"]}},
        2,
        {
            **WRITTEN,
            "inbox:x": ["a"],
            "inbox:y": ["earlier", "b", "a"],
            "metrics": {"requests_succeeded": "2"},
            **GONE,
        },
    ),
    Case(
        "a box keeps its newest ids",
        {"inbox:x": ["old", "older"]},
        BOTH,
        {"hints": {"x": ["a", "b"]}, "inbox_cap": 3},
        2,
        {
            **WRITTEN,
            "inbox:x": ["older", "a", "b"],
            "metrics": {"requests_succeeded": "2"},
            **GONE,
        },
    ),
    Case(
        "an inbox of another type stops nothing",
        {"inbox:x": "a string"},
        BOTH,
        {"hints": {"x": ["a"], "y": ["b"]}},
        2,
        {
            **WRITTEN,
            "inbox:y": ["b"],
            "metrics": {"requests_succeeded": "2", "unwritable": "1"},
            **GONE,
        },
    ),
    Case(
        "dead entries are added, the newest kept",
        {"dead": ["1", "2"]},
        BOTH,
        {"dead": ["3", "4"], "dead_cap": 3},
        2,
        {**WRITTEN, "dead": ["2", "3", "4"], "metrics": {"requests_succeeded": "2"}, **GONE},
    ),
    Case(
        "a dead list of another type stops nothing",
        {"dead": "a string"},
        BOTH,
        {"dead": ["3"]},
        2,
        {**WRITTEN, "metrics": {"requests_succeeded": "2", "unwritable": "1"}, **GONE},
    ),
    Case(
        "counters are increased, also by more than a float counts",
        {"metrics": {"rows": "5", "queue_ns_sum": "9007199254740993"}},
        [],
        {"counters": {"rows": 2, "queue_ns_sum": 9007199254740993, "batches": 1}},
        0,
        {"metrics": {"rows": "7", "queue_ns_sum": "18014398509481986", "batches": "1"}, **GONE},
    ),
    Case(
        "a counter that is no number stops nothing",
        {"metrics": {"rows": "many"}},
        BOTH,
        {"counters": {"rows": 2, "batches": 1}},
        2,
        {
            **WRITTEN,
            "metrics": {
                "rows": "many",
                "batches": "1",
                "requests_succeeded": "2",
                "unwritable": "1",
            },
            **GONE,
        },
    ),
    Case(
        "counters of another type stop nothing",
        {"metrics": ["a list"]},
        BOTH,
        {"counters": {"rows": 2}},
        2,
        {**WRITTEN, **GONE},
    ),
]

EXTRAS = [
    Case(
        "what was added behind the held requests goes to the head of returned, in order",
        {"claimed:w:1": ["a", "b", "c", "", "d"], "returned": ["e"], "normal": ["n"]},
        BOTH,
        {"held": 2},
        2,
        {
            **WRITTEN,
            "returned": ["c", "d", "e"],
            "metrics": {"requests_succeeded": "2"},
            **GONE,
        },
    ),
    Case(
        "and rings the bell of an empty normal lane",
        {"claimed:w:1": ["a", "b", "c"]},
        BOTH,
        {"held": 2},
        2,
        {
            **WRITTEN,
            "returned": ["c"],
            "normal": [""],
            "metrics": {"requests_succeeded": "2"},
            **GONE,
        },
    ),
    Case(
        "so does whatever waits in suspects",
        {"suspects": ["1|s"]},
        BOTH,
        {},
        2,
        {**WRITTEN, "normal": [""], "metrics": {"requests_succeeded": "2"}, **GONE},
    ),
    Case(
        "a normal lane of another type stops nothing",
        {"normal": "a string", "suspects": ["1|s"]},
        BOTH,
        {},
        2,
        {**WRITTEN, "metrics": {"requests_succeeded": "2"}, **GONE},
    ),
]

PARTS = [
    Case(
        "a part writes and counts its replies, and nothing else",
        {},
        [Reply("a", "A")],
        {
            "held": 0,
            "hints": {"x": ["a"]},
            "dead": ["entry"],
            "counters": {"batches": 1},
        },
        1,
        {"reply:a": "A", "inbox:x": ["a"], "metrics": {"requests_succeeded": "1"}},
    ),
]

FENCED = [
    Case("the worker is unknown", {"workers": {"v": "alive"}}, BOTH, {}, -1, {}),
    Case("the number is closed", {"closed": {"w": "1"}}, BOTH, {}, -1, {}),
    Case("a later number is closed", {"closed": {"w": "9"}}, BOTH, {}, -1, {}),
    Case("the list is gone", {"claimed:w:1": None}, BOTH, {}, -1, {}),
    Case("a part of it too", {"claimed:w:1": None}, BOTH, {"held": 0}, -1, {}),
]

UNCLAIMED = [
    Case(
        "without a worker no fence is asked and no claim is touched",
        {"claims": {"claimed:nobody:1": "w"}, "claimed:nobody:1": ["a"], "workers": None},
        BOTH,
        {
            "worker": "",
            "held": 0,
            "hints": {"x": ["a"]},
            "dead": ["entry"],
            "counters": {"batches": 1},
        },
        2,
        {
            **WRITTEN,
            "inbox:x": ["a"],
            "dead": ["entry"],
            "metrics": {"requests_succeeded": "2", "batches": "1"},
        },
    ),
]


@pytest.mark.parametrize(
    "case",
    [*REPLIES, *BESIDES, *EXTRAS, *PARTS, *FENCED, *UNCLAIMED],
    ids=lambda case: case.title,
)
def test_table(queue: Queue, case: Case) -> None:
    """Each row: a state, one completion, its answer and exactly what it changed."""
    before = after(OPEN, case.before)
    queue.put(before)
    call = queue.calls.complete(*case.replies, **({"held": 2} | case.options))
    assert queue.run(call) == case.answer
    assert queue.state() == after(before, case.changes)


def test_lives(queue: Queue) -> None:
    """Replies and inboxes always expire, after a second at the earliest."""
    queue.put(OPEN)
    replies = [
        Reply("a", "A", life_ms=50_000),
        Reply("b", "B", life_ms=0),
        Reply("c", "C", life_ms=-7),
        Reply("d", "D", life_ms="soon"),
    ]
    hints = {"x": ["a"], "y": ["b"]}
    queue.run(queue.calls.complete(*replies, hints={"x": ["a"]}, inbox_ms=50_000, held=0))
    queue.run(queue.calls.complete(hints={"y": ["b"]}, inbox_ms=-1, held=0))
    assert 1_000 < queue.life_ms("reply:a") <= 50_000
    assert all(1 < queue.life_ms(f"reply:{name}") <= 1_000 for name in "bcd")
    assert 1_000 < queue.life_ms("inbox:x") <= 50_000
    assert 1 < queue.life_ms("inbox:y") <= 1_000
    assert not {f"inbox:{box}" for box in hints} & queue.forever()


def test_first_reply_keeps_its_life(queue: Queue) -> None:
    """A second result does not prolong the first."""
    queue.put(OPEN)
    queue.run(queue.calls.complete(Reply("a", "A", life_ms=5_000), held=0))
    queue.run(queue.calls.complete(Reply("a", "again", life_ms=500_000), held=0))
    assert queue.life_ms("reply:a") <= 5_000


def test_twice(queue: Queue) -> None:
    """A closing completion that is sent again is fenced and changes nothing."""
    queue.put(OPEN)
    call = queue.calls.complete(
        *BOTH, held=2, hints={"x": ["a"]}, dead=["entry"], counters={"batches": 1}
    )
    assert queue.run(call) == 2
    once = queue.state()
    assert queue.run(call) == -1
    assert queue.state() == once


def test_part_twice(queue: Queue) -> None:
    """A part that is sent again writes nothing, and counts no outcome again."""
    queue.put(OPEN)
    call = queue.calls.complete(Reply("a", "A"), held=0)
    assert queue.run(call) == 1
    assert queue.run(call) == 0
    state = queue.state()
    assert state["metrics"] == {"requests_succeeded": "1", "discarded": "1"}
    assert state["claimed:w:1"] == ["a", "b"]


def test_in_parts(queue: Queue) -> None:
    """Parts and the closing part together equal one completion."""
    queue.put(OPEN)
    assert queue.run(queue.calls.complete(Reply("a", "A"), held=0)) == 1
    assert queue.run(queue.calls.complete(Reply("b", "B"), held=2, counters={"batches": 1})) == 1
    assert queue.state() == after(
        OPEN, {**WRITTEN, "metrics": {"requests_succeeded": "2", "batches": "1"}, **GONE}
    )


def test_late_on_a_list_that_was_filled_again(queue: Queue) -> None:
    """A late copy leaves what a late BLMOVE put under the closed number alone."""
    queue.put(OPEN)
    call = queue.calls.complete(*BOTH, held=2)
    queue.run(call)
    queue.put({"claimed:w:1": ["stranger"]})
    before = queue.state()
    assert queue.run(call) == -1
    assert queue.state() == before


@pytest.mark.parametrize("how", ["dead", "leave"])
def test_late_after_recovery(queue: Queue, how: str) -> None:
    """A worker that was recovered writes nothing any more: another one has its requests."""
    queue.put(OPEN)
    queue.run(queue.calls.recover(how=how))
    before = queue.state()
    assert queue.run(queue.calls.complete(*BOTH, held=2)) == -1
    assert queue.state() == before


def test_order_of_completion(queue: Queue) -> None:
    """Completing a later number first fences the earlier one, whose requests are recovered."""
    queue.put(OPEN | {"claimed:w:2": ["c"], "claims": {"claimed:w:1": "w", "claimed:w:2": "w"}})
    assert queue.run(queue.calls.complete(Reply("c", "C"), number=2)) == 1
    assert queue.run(queue.calls.complete(*BOTH, held=2)) == -1
    queue.run(queue.calls.recover())
    assert queue.state()["returned"] == ["a", "b"]


def test_a_thousand_replies(queue: Queue) -> None:
    """A completion takes a thousand replies, hints and dead entries."""
    ids = [f"id{number}" for number in range(1_000)]
    queue.put(OPEN | {"claimed:w:1": ids})
    call = queue.calls.complete(
        *(Reply(name, name) for name in ids), held=1_000, hints={"x": ids}, dead=ids
    )
    assert queue.run(call) == 1_000
    state = queue.state()
    assert state["inbox:x"] == ids
    assert state["dead"] == ids
    assert all(state[f"reply:{name}"] == name for name in ids)


def test_more_dead_entries_than_lua_unpacks(queue: Queue) -> None:
    """A claim of nothing but junk is completed however large it is, and the newest entries stay."""
    entries = [f"junk{number}" for number in range(9_000)]
    queue.put(OPEN)
    assert queue.run(queue.calls.complete(held=2, dead=entries, dead_cap=5_000)) == 0
    assert queue.state()["dead"] == entries[4_000:]
