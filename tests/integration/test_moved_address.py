"""An address that leads to another server after a failover, while the old one lives on."""

from collections.abc import Callable, Iterator

import pytest
import redis

from inferq.endpoint import Endpoint
from inferq.redis_link import AsyncLink, Link, command
from support.proxy import Proxy
from support.servers import PrivateServer, free_port


@pytest.fixture
def proxy(private_server: Callable[..., PrivateServer]) -> Iterator[Proxy]:
    """Lead to a server that becomes a replica after the first command."""
    with Proxy(private_server().socket) as started:
        yield started


@pytest.fixture
def fail_over(
    proxy: Proxy, private_server: Callable[..., PrivateServer]
) -> Iterator[Callable[[], None]]:
    successor = private_server()
    with redis.Redis.from_url(proxy.url) as old:
        old.ping()

        def act() -> None:
            old.replicaof("127.0.0.1", free_port())
            proxy.retarget(successor.socket)

        yield act


def test_a_link_follows(proxy: Proxy, fail_over: Callable[[], None]) -> None:
    """A connection whose server became a replica is given up, not asked again for ever."""
    link = Link(Endpoint.parse(proxy.url))
    link.run(command("SET", "k", "old"))
    fail_over()
    link.run(command("SET", "k", "new"), patience_s=5.0)
    assert link.run(command("GET", "k")) == [b"new"]
    link.close()


async def test_an_async_link_follows(proxy: Proxy, fail_over: Callable[[], None]) -> None:
    """The same for asyncio."""
    link = AsyncLink(Endpoint.parse(proxy.url))
    await link.run(command("SET", "k", "old"))
    fail_over()
    await link.run(command("SET", "k", "new"), patience_s=5.0)
    assert await link.run(command("GET", "k")) == [b"new"]
    await link.close()
