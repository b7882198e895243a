"""The queues that script tests call scripts on.

``queue`` runs a test twice, on fakeredis and on the suite's server; ``server_queue`` is for what
fakeredis cannot show: script flags, memory limits, many calls.
"""

import fakeredis
import pytest
import redis

from support.queue_state import Queue


@pytest.fixture(
    params=["fakeredis", pytest.param("server", marks=pytest.mark.server)],
)
def queue(request: pytest.FixtureRequest, prefix: str) -> Queue:
    if request.param == "fakeredis":
        # A server of its own: by default all fakes of a process share their keys.
        fake = fakeredis.FakeRedis(server=fakeredis.FakeServer(), version=(7, 0))
        return Queue(fake, prefix, shebang=False)
    return Queue(request.getfixturevalue("client"), prefix)


@pytest.fixture
def server_queue(client: redis.Redis, prefix: str) -> Queue:
    return Queue(client, prefix)
