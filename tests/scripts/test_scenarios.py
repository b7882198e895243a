"""Interleavings that once lost, doubled or miscounted a request, each with its name."""

import pytest
from redis.exceptions import ResponseError

from support.queue_state import Queue
from support.script_calls import Reply


def test_three_late_copies_of_a_worker_that_left(queue: Queue) -> None:
    """A late join, claim and completion of a worker that left cannot take a stranger and drop it."""
    calls = queue.calls
    join, claim = calls.register("join"), calls.claim(want=1)
    complete = calls.complete(Reply("a", "A"))
    queue.run(calls.submit([("a", "a")]))
    for call in (join, claim, complete, calls.recover(how="leave")):
        queue.run(call)
    queue.run(calls.submit([("b", "b")]))
    for call in (join, claim, complete):
        queue.run(call)
    state = queue.state()
    assert state["normal"] == ["b"]
    assert state["reply:a"] == "A"
    assert state["reply:b"] == ""


def test_start_after_the_suspect_is_gone(queue: Queue) -> None:
    """A start mark for a suspect that a failover took away does not claim strangers unseen."""
    queue.put({"workers": {"w": "alive"}, "claims": {"claimed:w:1": "w suspect"}})
    queue.run(queue.calls.submit([("a", "a")]))
    assert queue.run(queue.calls.claim(mode="start")) == [1, 0, 1, 0]
    assert queue.run(queue.calls.complete(Reply("s", "S"))) == -1
    assert queue.state()["normal"] == ["a"]


def test_copy_of_the_claim_behind_its_completion(queue: Queue) -> None:
    """A claim whose first copy runs between two copies of its completion loses nothing."""
    queue.put({"workers": {"w": "alive"}, "normal": ["a", "b"], "reply:a": "", "reply:b": ""})
    claim, complete = queue.calls.claim(want=1), queue.calls.complete(Reply("a", "A"))
    for call in (claim, complete, claim, complete):
        queue.run(call)
    state = queue.state()
    assert state["normal"] == ["b"]
    assert state["reply:b"] == ""


def test_claim_that_grew_behind_the_workers_back(queue: Queue) -> None:
    """A completion drops what its worker was given, not what a late copy of the claim added."""
    queue.put({"workers": {"w": "alive"}, "normal": ["a"]})
    claim = queue.calls.claim(want=3)
    queue.run(claim)
    queue.put({"normal": ["b", "c"]})
    queue.run(claim)
    queue.run(queue.calls.complete(Reply("a", "A"), held=1))
    assert queue.state()["returned"] == ["b", "c"]


def test_completion_refused_while_the_claim_behind_it_is_not(queue: Queue) -> None:
    """With the floor at the claim under completion, a refused completion can be sent again."""
    queue.put({"workers": {"w": "alive"}, "normal": ["a", "b"], "reply:a": ""})
    queue.run(queue.calls.claim(want=1))
    queue.run(queue.calls.claim(number=2, floor=1, want=1))
    assert queue.run(queue.calls.complete(Reply("a", "A"))) == 1


def test_floor_above_an_open_claim(queue: Queue) -> None:
    """A floor that is too high fences the claim below it: it runs again, and is not lost."""
    queue.put({"workers": {"w": "alive"}, "normal": ["a", "b"], "reply:a": ""})
    queue.run(queue.calls.claim(want=1))
    queue.run(queue.calls.claim(number=2, floor=2, want=1))
    assert queue.run(queue.calls.complete(Reply("a", "A"))) == -1
    queue.run(queue.calls.recover(queue.key("claimed:w:1"), queue.key("claimed:w:2")))
    state = queue.state()
    assert state["returned"] == ["a"]
    assert state["claimed:w:2"] == ["b"]


def test_closed_numbers_lost_in_a_failover(queue: Queue) -> None:
    """The floor closes again what a failover opened, so that late copies stay out."""
    queue.put({"workers": {"w": "alive"}, "normal": ["a", "b"]})
    queue.run(queue.calls.claim(number=5, floor=5, want=1))
    late = queue.calls.claim(number=4, floor=4, want=1)
    assert queue.run(late) == [-1, 4]
    assert queue.state()["normal"] == ["b"]


def test_late_copies_from_before_and_after_a_hold(queue: Queue) -> None:
    """Late copies with a smaller and a larger want cannot swap what a worker runs for strangers."""
    queue.put({"workers": {"w": "alive"}, "normal": ["a", "b"], "reply:a": "", "reply:b": ""})
    first, hold = queue.calls.claim(want=1), queue.calls.claim(want=2)
    queue.run(first)
    queue.run(hold)
    queue.run(first)
    queue.run(queue.calls.register("join", "v"))
    queue.run(queue.calls.claim(worker="v"))
    queue.put({"high": ["stranger"]})
    queue.run(hold)
    assert queue.run(queue.calls.complete(Reply("a", "A"), Reply("b", "B"), held=2)) == 2
    assert queue.state()["high"] == ["stranger"]


def test_move_without_an_owner(queue: Queue) -> None:
    """A BLMOVE whose worker was recovered in front of it is found by the name of its list."""
    queue.put({"normal": ["a"], "workers": {"v": "alive"}})
    queue.client.lmove(queue.key("normal"), queue.key("claimed:w:3"), "LEFT", "RIGHT")
    assert queue.run(queue.calls.recover(queue.key("claimed:w:3"))) == [1, 0]
    assert queue.state()["suspects"] == ["1|a"]


def test_queue_key_that_a_producer_set(queue: Queue) -> None:
    """A queue key of another type stops its producers with a clear error, and no running batch."""
    queue.put({"workers": {"w": "alive"}, "high": ["a"], "reply:a": ""})
    queue.run(queue.calls.claim())
    queue.put({"normal": "a string"})
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        queue.run(queue.calls.submit([("b", "b")]))
    assert queue.run(queue.calls.complete(Reply("a", "A"))) == 1
    assert queue.run(queue.calls.claim(number=2, floor=2)) == [1, 0, 0, 4]
    assert queue.run(queue.calls.recover(how="leave")) == [0, 0]
