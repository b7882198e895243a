"""The proxy of the fault matrix does what a row asks of it, and nothing else."""

from collections.abc import Callable, Iterator

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from inferq.contract import scripts
from support.proxy import Proxy
from support.resp import end_of, kind_of
from support.servers import PrivateServer
from support.waiting import until

NEVER = Retry(NoBackoff(), 0)
STREAM = b"*2\r\n$3\r\nGET\r\n$4\r\n\r\n*1\r\n:7\r\n*-1\r\n$-1\r\n*1\r\n*2\r\n$0\r\n\r\n-ERR x\r\n+OK\r\n"
ENDS = [23, 27, 32, 37, 59, 64]


@pytest.fixture
def server(private_server: Callable[..., PrivateServer]) -> PrivateServer:
    return private_server()


@pytest.fixture
def proxy(server: PrivateServer) -> Iterator[Proxy]:
    with Proxy(server.socket, seed=1) as started:
        yield started


@pytest.fixture
def client(proxy: Proxy) -> Iterator[redis.Redis]:
    # Without retries: a lost reply must be seen as one.
    with redis.Redis.from_url(proxy.url, retry=NEVER, socket_timeout=5.0) as connected:
        yield connected


class TestStreams:
    def test_ends(self) -> None:
        """Every element of a stream is found, whatever is nested in it."""
        found = [0]
        while (end := end_of(STREAM, found[-1])) is not None:
            found.append(end)
        assert found[1:] == ENDS

    @pytest.mark.parametrize("size", range(len(STREAM)))
    def test_cut_anywhere(self, size: int) -> None:
        """Of a stream that is not all there, only what is complete counts."""
        found = [0]
        while (end := end_of(STREAM[:size], found[-1])) is not None:
            found.append(end)
        assert found[1:] == [end for end in ENDS if end <= size]

    @pytest.mark.parametrize("name", scripts.ALL)
    def test_scripts_have_their_names(self, name: str) -> None:
        """A script is recognised by its hash and by its source."""
        script = scripts.load(name)
        assert kind_of(sent("EVALSHA", script.sha1, "0")) == name
        assert kind_of(sent("eval", script.source, "1", "key")) == name
        assert kind_of(sent("EVAL", "return 1", "0")) == "EVAL"
        assert kind_of(sent("ping")) == "PING"


def sent(*words: str) -> bytes:
    """Write a command as a client does."""
    bulks = b"".join(b"$%d\r\n%b\r\n" % (len(word), word.encode()) for word in words)
    return b"*%d\r\n%b" % (len(words), bulks)


class TestLosses:
    def test_one_reply(self, proxy: Proxy, client: redis.Redis) -> None:
        """The reply of the one command asked for is lost; the command has run."""
        loss = proxy.lose_next("INCRBY", 2)
        assert client.incr("n") == 1
        client.get("n")
        assert not loss.happened.is_set()
        with pytest.raises(redis.ConnectionError):
            client.incr("n")
        assert loss.happened.is_set()
        assert client.incr("n") == 3
        assert proxy.lost == {"INCRBY": 1}

    def test_in_the_middle_of_a_flight(self, proxy: Proxy, client: redis.Redis) -> None:
        """Replies in front of a lost one arrive."""
        proxy.lose_next("INCR")
        connection = client.connection_pool.get_connection()
        connection.send_packed_command(connection.pack_commands([("PING",), ("INCR", "n")]))
        assert connection.read_response() == b"PONG"
        with pytest.raises(redis.ConnectionError):
            connection.read_response()
        client.connection_pool.release(connection)
        assert client.get("n") == b"1"

    def test_a_share_repeats(self, server: PrivateServer) -> None:
        """The same seed loses the same replies of the same commands; another loses others."""
        assert lost_of_200(server, 1) == lost_of_200(server, 1)
        assert lost_of_200(server, 1) != lost_of_200(server, 2)


def lost_of_200(server: PrivateServer, seed: int) -> list[int]:
    lost = []
    with (
        Proxy(server.socket, seed=seed) as proxy,
        redis.Redis.from_url(proxy.url, retry=NEVER) as client,
    ):
        client.ping()
        proxy.lose_share(0.1)
        for place in range(200):
            try:
                client.ping()
            except redis.ConnectionError:
                lost.append(place)
    return lost


class TestConnections:
    def test_cut(self, proxy: Proxy, client: redis.Redis) -> None:
        """A cut ends what is under way; the next connection works."""
        connection = client.connection_pool.get_connection()
        connection.send_command("BLPOP", "nothing", 0)
        until(lambda: proxy.cut() == 1)
        with pytest.raises(redis.ConnectionError):
            connection.read_response()
        client.connection_pool.release(connection)
        assert client.ping()

    def test_refuse_and_accept(self, proxy: Proxy, client: redis.Redis) -> None:
        """Nobody is let in until connections are accepted again, at the same address."""
        client.ping()
        proxy.refuse()
        for _ in range(2):
            with pytest.raises(redis.ConnectionError):
                client.ping()
        proxy.accept()
        assert client.ping()

    def test_half_open(self, proxy: Proxy, server: PrivateServer, client: redis.Redis) -> None:
        """A stalled connection says nothing and is there still for the server; new ones work."""
        with redis.Redis.from_url(proxy.url, retry=NEVER, socket_timeout=0.2) as stalled:
            stalled.ping()
            assert proxy.stall() == 1
            with pytest.raises(redis.TimeoutError):
                stalled.incr("n")
        assert client.get("n") is None
        with redis.Redis.from_url(server.url) as direct:
            assert len(direct.client_list()) == 3
            proxy.end_stalled()
            until(lambda: len(direct.client_list()) == 2)

    @pytest.mark.parametrize("is_before", [True, False])
    def test_hold(self, proxy: Proxy, server: PrivateServer, *, is_before: bool) -> None:
        """A command that is held back has run or not, as was asked; the rest goes on."""
        with (
            redis.Redis.from_url(proxy.url, retry=NEVER, socket_timeout=0.2) as held,
            redis.Redis.from_url(server.url) as direct,
        ):
            held.ping()
            hold = proxy.hold_next(2, is_before=is_before)
            held.incr("n")
            with pytest.raises(redis.TimeoutError):
                held.incr("n")
            assert hold.is_set()
            proxy.end_stalled()
            assert direct.get("n") == (b"1" if is_before else b"2")
            assert held.incr("n") == (2 if is_before else 3)

    def test_delay(self, proxy: Proxy, client: redis.Redis) -> None:
        """What is delayed arrives late and in order."""
        proxy.delay(0.02)
        pipeline = client.pipeline(transaction=False)
        for number in range(50):
            pipeline.rpush("list", number)
        assert pipeline.execute() == list(range(1, 51))

    def test_retarget(
        self,
        proxy: Proxy,
        client: redis.Redis,
        private_server: Callable[..., PrivateServer],
    ) -> None:
        """New connections lead to the new server, and the old one keeps its own."""
        client.set("k", "old")
        proxy.retarget(private_server().socket)
        assert client.get("k") == b"old"
        proxy.cut()
        client.close()
        assert client.get("k") is None
