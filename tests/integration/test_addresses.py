"""Every kind of address leads a worker and a producer to the same queue."""

from collections.abc import Callable

import pytest
import redis

from inferq import Producer, ServerUnfit
from inferq_worker import Worker
from inferq_worker.settings import WorkerSettings
from support.servers import PrivateServer
from support.workers import Doubler


@pytest.fixture
def server(private_server: Callable[..., PrivateServer]) -> PrivateServer:
    """A server of one's own, on a Unix socket and a port, with a user ``ann`` of its own."""
    made = private_server(port=0)
    with redis.Redis.from_url(made.url) as client:
        client.execute_command("ACL", "SETUSER", "ann", "on", ">s3cr/t", "~*", "&*", "+@all")
    return made


def asked_and_answered(url: str) -> list[int]:
    """Submit through an address, and let a worker empty the queue through it."""
    worker = Worker(Doubler(), WorkerSettings(redis_url=url))
    # Publishes the model, so that the producer can check what it sends.
    worker.run(burst=True)
    with Producer(url) as producer:
        handle = producer.submit("doubler", [1, 2])
        Worker(Doubler(), WorkerSettings(redis_url=url)).run(burst=True)
        rows: list[int] = handle.result(timeout=10)["y"].tolist()
    return rows


def test_unix(server: PrivateServer) -> None:
    """A Unix socket."""
    assert asked_and_answered(server.url) == [2, 4]


def test_user_and_password(server: PrivateServer) -> None:
    """A user with a password that needs escaping in an address."""
    assert asked_and_answered(f"redis://ann:s3cr%2Ft@127.0.0.1:{server.port}/0") == [2, 4]


def test_wrong_password(server: PrivateServer) -> None:
    """A wrong password ends in one sentence that does not show it."""
    url = f"redis://ann:wr0ng@127.0.0.1:{server.port}"
    with Producer(url) as producer, pytest.raises(ServerUnfit) as raised:
        producer.infer("doubler", [1])
    assert "ann:***@" in str(raised.value)
    assert "wr0ng" not in str(raised.value)


def test_another_database(server: PrivateServer) -> None:
    """The database of an address is used."""
    assert asked_and_answered(f"redis://127.0.0.1:{server.port}/3") == [2, 4]
    with redis.Redis.from_url(server.url) as client:
        assert client.dbsize() == 0
