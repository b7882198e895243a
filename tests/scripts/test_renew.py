"""renew.lua: only who is known lives on."""

from support.queue_state import Queue, State

BEFORE: State = {
    "workers": {"w": "lapsed", "v": "lapsed", "x": "lapsed"},
    "worker:w": {"host": "h"},
    "worker:u": {"host": "h"},
}


def test_known_and_unknown(queue: Queue) -> None:
    """Known workers get a new lease, unknown ones stay unknown, others are not touched."""
    queue.put(BEFORE)
    assert queue.run(queue.calls.renew("w", "u", "v")) == [1, 0, 1]
    assert queue.state() == BEFORE | {"workers": {"w": "alive", "v": "alive", "x": "lapsed"}}


def test_times(queue: Queue) -> None:
    """A lease ends on the server's time; information lives as long as asked, a second at least."""
    queue.put(BEFORE)
    earliest = queue.now_ms()
    queue.run(queue.calls.renew("w", "u", lease_ms=40_000, info_ms=50_000))
    assert earliest + 40_000 <= queue.lease_end_ms("w") <= queue.now_ms() + 40_000
    assert 1_000 < queue.life_ms("worker:w") <= 50_000
    assert queue.life_ms("worker:u") == -1
    queue.run(queue.calls.renew("w", info_ms=0))
    assert 1 < queue.life_ms("worker:w") <= 1_000


def test_late_copy(queue: Queue) -> None:
    """A late copy brings nobody back who was recovered."""
    queue.put(BEFORE)
    call = queue.calls.renew("w")
    queue.run(call)
    queue.run(queue.calls.recover(how="dead"))
    before = queue.state()
    assert queue.run(call) == [0]
    assert queue.state() == before


def test_nobody(queue: Queue) -> None:
    """Renewing nobody is no error."""
    assert queue.run(queue.calls.renew()) == []
