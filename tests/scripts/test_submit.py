"""submit.lua: all new requests of a call are pushed and marked, or none."""

from typing import Any, NamedTuple

import pytest
from redis.exceptions import ResponseError

from support.queue_state import Queue, State, after

A, B = ("a", "message a"), ("b", "message b")


class Case(NamedTuple):
    title: str
    before: State
    messages: list[tuple[str, str]]
    answer: list[int]
    changes: State
    options: dict[str, Any]


CASES = [
    Case(
        "new requests are pushed in order and marked",
        {"normal": ["earlier"]},
        [A, B],
        [0, 1, 1],
        {"normal": ["earlier", "message a", "message b"], "reply:a": "", "reply:b": ""},
        {},
    ),
    Case("a pending id is joined", {"reply:a": ""}, [A], [0, 2], {}, {}),
    Case("an answered id is joined", {"reply:a": "answer"}, [A], [0, 3], {}, {}),
    Case(
        "new, pending and answered ids in one call",
        {"reply:a": "", "reply:c": "answer"},
        [A, B, ("c", "message c")],
        [0, 2, 1, 3],
        {"normal": ["message b"], "reply:b": ""},
        {},
    ),
    Case(
        "the second of equal ids joins the first",
        {},
        [A, ("a", "another message"), B],
        [0, 1, 2, 1],
        {"normal": ["message a", "message b"], "reply:a": "", "reply:b": ""},
        {},
    ),
    Case("over the limit nothing changes", {"normal": ["x"]}, [A, B], [-1, 1], {}, {"limit": 2}),
    Case(
        "up to the limit everything is pushed",
        {"normal": ["x"]},
        [A, B],
        [0, 1, 1],
        {"normal": ["x", "message a", "message b"], "reply:a": "", "reply:b": ""},
        {"limit": 3},
    ),
    Case(
        "known ids do not count against the limit",
        {"normal": ["x", "y"], "reply:a": ""},
        [A],
        [0, 2],
        {},
        {"limit": 2},
    ),
    Case(
        "one new id over the limit refuses the call",
        {"normal": ["x", "y"], "reply:a": ""},
        [A, B],
        [-1, 2],
        {},
        {"limit": 2},
    ),
    Case(
        "the limit is the lane's own",
        {"normal": ["x", "y"]},
        [A],
        [0, 1],
        {"low": ["message a"], "reply:a": ""},
        {"limit": 1, "lane": "low"},
    ),
    Case(
        "another lane rings the bell of the empty normal lane",
        {},
        [A],
        [0, 1],
        {"high": ["message a"], "normal": [""], "reply:a": ""},
        {"lane": "high"},
    ),
    Case(
        "another lane does not ring while the normal lane holds something",
        {"normal": ["x"]},
        [A],
        [0, 1],
        {"high": ["message a"], "reply:a": ""},
        {"lane": "high"},
    ),
    Case("nothing new, no bell", {"reply:a": ""}, [A], [0, 2], {}, {"lane": "low"}),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)
def test_table(queue: Queue, case: Case) -> None:
    """Each row: a state, one submission, its answer and exactly what it changed."""
    queue.put(case.before)
    assert queue.run(queue.calls.submit(case.messages, **case.options)) == case.answer
    assert queue.state() == after(case.before, case.changes)


@pytest.mark.parametrize(
    ("before", "lane"),
    [
        ({"normal": {"a": "hash"}}, "normal"),
        ({"high": "string"}, "high"),
        ({"normal": "string"}, "high"),
        ({"reply:b": ["list"]}, "normal"),
    ],
)
def test_key_of_another_type(queue: Queue, before: State, lane: str) -> None:
    """A key of another type refuses the whole call with WRONGTYPE, and nothing is half pushed."""
    queue.put(before)
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        queue.run(queue.calls.submit([A, B], lane=lane))
    assert queue.state() == before


def test_marks_expire(queue: Queue) -> None:
    """A pending mark has a life from the moment it exists, of a second at least."""
    queue.run(queue.calls.submit([A], mark_ms=50_000))
    queue.run(queue.calls.submit([B], mark_ms=-5))
    assert 1_000 < queue.life_ms("reply:a") <= 50_000
    assert 1 < queue.life_ms("reply:b") <= 1_000


def test_twice(queue: Queue) -> None:
    """A submission that is sent again finds its own marks, also when the lane is full by now."""
    call = queue.calls.submit([A, B], limit=2)
    assert queue.run(call) == [0, 1, 1]
    once = queue.state()
    assert queue.run(call) == [0, 2, 2]
    assert queue.state() == once


def test_late_copy_after_the_answer(queue: Queue) -> None:
    """A late copy does not run a request again that was taken and answered meanwhile."""
    call = queue.calls.submit([A, B])
    queue.run(call)
    queue.put({"reply:a": "answer", "reply:b": "answer"})
    queue.client.delete(queue.key("normal"))
    assert queue.run(call) == [0, 3, 3]
    assert queue.state() == {"reply:a": "answer", "reply:b": "answer"}


def test_a_thousand(queue: Queue) -> None:
    """A call takes a thousand messages, and keeps their order."""
    messages = [(f"id{number}", f"message {number}") for number in range(1_000)]
    assert queue.run(queue.calls.submit(messages)) == [0] + [1] * 1_000
    assert queue.state()["normal"] == [message for _, message in messages]
