"""A server at its memory limit takes nothing new, and what it holds is drained all the same."""

from collections.abc import Callable, Iterator

import pytest
import redis
from redis.exceptions import OutOfMemoryError

from inferq.contract import scripts
from support.queue_state import Queue
from support.script_calls import Call, Reply
from support.servers import PrivateServer

MESSAGES = [("a", "message a"), ("b", "message b"), ("c", "message c")]


@pytest.fixture
def full(private_server: Callable[..., PrivateServer], prefix: str) -> Iterator[Queue]:
    """Return a queue with three requests on a server whose limit was lowered below its use."""
    server = private_server("--maxmemory-policy", "noeviction")
    with redis.Redis.from_url(server.url) as client:
        queue = Queue(client, prefix)
        queue.run(queue.calls.submit(MESSAGES))
        queue.run(queue.calls.register("join"))
        client.config_set("maxmemory", "1")
        yield queue


def test_a_plain_write_is_refused(full: Queue) -> None:
    """The limit is in force: the tests below would pass on any server otherwise."""
    with pytest.raises(OutOfMemoryError):
        full.client.rpush(full.key("normal"), "more")


def test_drained_to_zero(full: Queue) -> None:
    """Registering, claiming and completing go on until nothing is left."""
    full.run(full.calls.register("open"))
    answer = full.run(full.calls.claim())
    assert answer[4:] == ["message a", "message b", "message c"]
    replies = [Reply(name, f"reply {name}") for name, _ in MESSAGES]
    call = full.calls.complete(*replies, held=3, hints={"x": ["a"]}, dead=["entry"])
    assert full.run(call) == 3
    full.run(full.calls.recover(how="leave"))
    assert full.state() == {
        "reply:a": "reply a",
        "reply:b": "reply b",
        "reply:c": "reply c",
        "inbox:x": ["a"],
        "dead": ["entry"],
        "metrics": {"requests_succeeded": "3"},
        "worker:w": {"state": "gone"},
    }


def test_recovered_released_renewed_cancelled_dropped(full: Queue) -> None:
    """Everything that sets requests free or takes them away works as well."""
    full.run(full.calls.claim(want=2))
    assert full.run(full.calls.release(keep=1)) == 1
    assert full.run(full.calls.renew("w")) == [1]
    assert full.run(full.calls.recover(how="dead")) == [1, 0]
    assert full.run(full.calls.cancel("c")) == 1
    assert full.run(full.calls.drop("nothing")) == 0
    state = full.state()
    assert state["suspects"] == ["1|message a"]
    assert state["returned"] == ["message b"]
    assert state["reply:c"] == "cancelled!"


@pytest.mark.parametrize("script", ["submit", "retry"])
def test_refused(full: Queue, script: str) -> None:
    """What would add requests is refused as out of memory, and changes nothing."""
    calls: dict[str, Call] = {
        "submit": full.calls.submit([("d", "message d")]),
        "retry": full.calls.retry("d", "entry", "message d"),
    }
    before = full.state()
    with pytest.raises(OutOfMemoryError):
        full.run(calls[script])
    assert full.state() == before


def test_every_script_is_accounted_for() -> None:
    """A new script must decide whether it may run on a full server."""
    refused = {name for name in scripts.ALL if "allow-oom" not in scripts.load(name).source}
    assert refused == {"submit", "retry"}
