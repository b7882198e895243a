"""drop.lua: exactly one dead entry goes."""

from support.queue_state import Queue


def test_drop(queue: Queue) -> None:
    """One entry is dropped for each call, and one that is not there changes nothing."""
    queue.put({"dead": ["e1", "e2", "e1"]})
    assert queue.run(queue.calls.drop("e1")) == 1
    assert queue.state() == {"dead": ["e2", "e1"]}
    assert queue.run(queue.calls.drop("e")) == 0
    assert queue.state() == {"dead": ["e2", "e1"]}


def test_twice(queue: Queue) -> None:
    """A drop that is sent again finds the entry gone."""
    queue.put({"dead": ["e1", "e2"]})
    call = queue.calls.drop("e1")
    assert queue.run(call) == 1
    assert queue.run(call) == 0
    assert queue.state() == {"dead": ["e2"]}
