"""retry.lua: a dead entry leaves its list only to run again."""

from typing import NamedTuple

import pytest
from redis.exceptions import ResponseError

from support.queue_state import Queue, State, after


class Case(NamedTuple):
    title: str
    before: State
    answer: int
    changes: State


CASES = [
    Case(
        "the request runs again, alone, without deaths, and is pending again",
        {"dead": ["e1", "e2"], "reply:a": "crashed", "suspects": ["1|s"], "normal": ["n"]},
        1,
        {"dead": ["e1"], "reply:a": "", "suspects": ["1|s", "0|message"]},
    ),
    Case(
        "the bell of an empty normal lane is rung",
        {"dead": ["e2"]},
        1,
        {"dead": None, "reply:a": "", "suspects": ["0|message"], "normal": [""]},
    ),
    Case(
        "of equal entries one is taken",
        {"dead": ["e2", "e2"], "normal": ["n"]},
        1,
        {"dead": ["e2"], "reply:a": "", "suspects": ["0|message"]},
    ),
    Case("the entry is not there", {"dead": ["e1"], "reply:a": "crashed"}, 0, {}),
    Case(
        "a normal lane of another type stops nothing",
        {"dead": ["e2"], "normal": "a string"},
        1,
        {"dead": None, "reply:a": "", "suspects": ["0|message"]},
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)
def test_table(queue: Queue, case: Case) -> None:
    """Each row: a state, one retry, its answer and exactly what it changed."""
    queue.put(case.before)
    assert queue.run(queue.calls.retry("a", "e2", "message")) == case.answer
    assert queue.state() == after(case.before, case.changes)


def test_mark_expires(queue: Queue) -> None:
    """The new mark has a life, of a second at least."""
    queue.put({"dead": ["e1", "e2"]})
    queue.run(queue.calls.retry("a", "e1", "message", mark_ms=50_000))
    queue.run(queue.calls.retry("b", "e2", "message", mark_ms=0))
    assert 1_000 < queue.life_ms("reply:a") <= 50_000
    assert 1 < queue.life_ms("reply:b") <= 1_000


def test_twice(queue: Queue) -> None:
    """A retry that is sent again finds the entry gone, also when the request is answered by then."""
    queue.put({"dead": ["e2"]})
    call = queue.calls.retry("a", "e2", "message")
    assert queue.run(call) == 1
    queue.put({"reply:a": "answer"})
    once = queue.state()
    assert queue.run(call) == 0
    assert queue.state() == once


def test_suspects_of_another_type(queue: Queue) -> None:
    """Where the request cannot go, its entry stays where it is."""
    before: State = {"dead": ["e2"], "suspects": "a string"}
    queue.put(before)
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        queue.run(queue.calls.retry("a", "e2", "message"))
    assert queue.state() == before
