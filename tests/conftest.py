"""Fixtures of the whole suite: a server shared by the run, a fresh prefix for each test."""

import contextlib
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest
import redis

from inferq import embedded
from support.processes import Programs
from support.servers import PrivateServer, chosen_binary

# A deadline for each example is a timing assertion, which a busy machine breaks.
hypothesis.settings.register_profile("suite", deadline=None)
hypothesis.settings.load_profile("suite")

_SERVER_FIXTURES = {"redis_url", "client", "private_server"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what asks for a server, so that nobody has to remember to."""
    for item in items:
        if _SERVER_FIXTURES.intersection(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.server)


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """Address of the run's server, which all tests share: keep to your own ``prefix``."""
    # Not under pytest's folder for temporary files: its paths are too long for a socket.
    folder = Path(tempfile.mkdtemp(prefix="inferq-tests-"))
    with embedded.start(folder, chosen_binary()) as server:
        yield server.url
    shutil.rmtree(folder)


@pytest.fixture
def prefix() -> str:
    """Return a key prefix that no other test uses."""
    # Not from random, which pytest-randomly seeds anew for each test.
    return f"t{uuid.uuid4().hex[:12]}"


@pytest.fixture
def client(redis_url: str) -> Iterator[redis.Redis]:
    """Plain client of the run's server; replies are bytes."""
    with redis.Redis.from_url(redis_url) as connected:
        yield connected


@pytest.fixture
def private_server() -> Iterator[Callable[..., PrivateServer]]:
    """Start servers that this test alone uses and may break; they end with it.

    Called with the arguments of :class:`support.servers.PrivateServer`, without the binary.
    """
    with contextlib.ExitStack() as servers:
        yield lambda *arguments, **options: servers.enter_context(
            PrivateServer(chosen_binary(), *arguments, **options)
        )


@pytest.fixture
def programs() -> Iterator[Programs]:
    """Start programs that end with the test."""
    with Programs() as started:
        yield started
