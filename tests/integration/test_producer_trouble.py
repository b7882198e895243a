"""Both producers in trouble: lost hints, wrong keys, a server that is away, full or restarted."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import redis

from inferq import InvalidRequest, QueueFull, ServerUnfit, Unavailable
from support.producers import AnyProducer, Connect
from support.servers import PrivateServer, free_port
from support.waiting import until
from support.workers import Doubler, Gate, Workers

MakeServer = Callable[..., PrivateServer]


def connections(client: redis.Redis) -> list[str]:
    """Return the last command of each connection but the client's own."""
    return [each["cmd"] for each in client.client_list() if each["cmd"] != "client|list"]


def only_inbox(client: redis.Redis, prefix: str) -> bytes:
    (key,) = client.scan_iter(f"*{prefix}*:inbox:*")
    assert isinstance(key, bytes)
    return key


@pytest.fixture
def server(private_server: MakeServer) -> PrivateServer:
    return private_server()


@pytest.fixture
def its_client(server: PrivateServer) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(server.url) as client:
        yield client


@pytest.fixture
def its_workers(server: PrivateServer, prefix: str) -> Iterator[Workers]:
    with Workers(server.url, prefix) as workers:
        yield workers


class TestHints:
    def test_a_lost_hint(
        self, connect: Connect, workers: Workers, client: redis.Redis, prefix: str
    ) -> None:
        """A reply whose hint got lost is found by looking."""
        workers.serve(Doubler())
        producer = connect(poll_s=0.05)
        lost, other = producer.submit_many("doubler", [1, 2])
        producer.result("doubler", lost.id, timeout=10)
        producer.result("doubler", other.id, timeout=10)
        assert client.delete(only_inbox(client, prefix)) == 1
        assert lost.result(timeout=10)["y"] == 2
        assert other.result(timeout=10)["y"] == 4

    def test_junk_in_the_inbox(
        self, connect: Connect, workers: Workers, client: redis.Redis, prefix: str
    ) -> None:
        """Hints are believed only where a request is awaited: ids of others and junk are passed."""
        gate = Gate(max_batch_size=4)
        workers.serve(gate)
        producer = connect(poll_s=3_600)
        first = producer.submit("gate", 1)
        gate.open()
        until(first.done)
        inbox = only_inbox(client, prefix)
        client.rpush(inbox, b"\xff\x00", "somebody-else")
        handles = producer.submit_many("gate", [2, 3])
        assert [handle.result(timeout=10)["y"] for handle in handles] == [4, 6]


class TestConnections:
    def test_one_for_all_waits(
        self, connect: Connect, server: PrivateServer, its_workers: Workers, its_client: redis.Redis
    ) -> None:
        """Any number of waits for one model share one blocked connection; none is left behind."""
        before = connections(its_client)
        gate = Gate(max_batch_size=64)
        worker = its_workers.serve(gate)
        producer = connect(server.url)
        handles = producer.submit_many("gate", range(50))
        with ThreadPoolExecutor(50) as threads:
            waits = [threads.submit(handle.result) for handle in handles]
            until(lambda: connections(its_client).count("blmpop") == 1)
            assert not any(wait.done() for wait in waits)
            gate.open()
            assert [wait.result(30)["y"] for wait in waits] == [2 * row for row in range(50)]
        for number in range(1_000):
            producer.infer(worker.name, number)
        # Beside the worker's: one to submit and one to wait.
        assert len(connections(its_client)) <= len(before) + 4
        producer.close()
        its_workers.stop()
        until(lambda: connections(its_client) == before)

    def test_timeouts_leave_none_behind(
        self, connect: Connect, server: PrivateServer, its_workers: Workers, its_client: redis.Redis
    ) -> None:
        """Waits that run out cost no connection either, and no later wait its reply."""
        its_workers.publish(Doubler())
        producer = connect(server.url)
        handle = producer.submit("doubler", 1)
        for _ in range(20):
            with pytest.raises(TimeoutError):
                handle.result(timeout=0.001)
        assert len(connections(its_client)) <= 3
        its_workers.serve(Doubler())
        assert handle.result(timeout=10)["y"] == 2


class TestWrongKeys:
    def test_a_queue_of_another_type(
        self, producer: AnyProducer, workers: Workers, client: redis.Redis
    ) -> None:
        """A queue key that is no list is named as the problem; nothing is marked."""
        workers.publish(Doubler())
        keys = workers.keys(Doubler())
        client.set(keys.normal, "not ours")
        with pytest.raises(ServerUnfit, match="key of another type"):
            producer.submit("doubler", 1, request_id="r")
        assert not client.exists(keys.reply("r"))

    def test_a_reply_of_another_type(
        self, producer: AnyProducer, workers: Workers, client: redis.Redis
    ) -> None:
        """A reply key that is no string is an error for who asks, not a wait without end."""
        workers.publish(Doubler())
        keys = workers.keys(Doubler())
        handle = producer.submit("doubler", 1)
        client.delete(keys.reply(handle.id))
        client.rpush(keys.reply(handle.id), "not ours")
        with pytest.raises(ServerUnfit, match="key of another type"):
            producer.result("doubler", handle.id)
        with pytest.raises(ServerUnfit, match="key of another type"):
            handle.done()

    def test_a_reply_that_is_none(
        self, producer: AnyProducer, workers: Workers, client: redis.Redis
    ) -> None:
        """Bytes at a reply key that are no reply settle the request with an error that says so."""
        workers.publish(Doubler())
        handle = producer.submit("doubler", 1)
        client.set(workers.keys(Doubler()).reply(handle.id), "junk")
        assert handle.done()
        with pytest.raises(InvalidRequest, match="not a reply"):
            handle.result()
        with pytest.raises(InvalidRequest, match="not a reply"):
            producer.result("doubler", handle.id)

    def test_an_inbox_of_another_type(
        self, producer: AnyProducer, workers: Workers, client: redis.Redis, prefix: str
    ) -> None:
        """What ends the reading of the inbox reaches everybody who waits."""
        workers.serve(Doubler())
        first = producer.submit("doubler", 1)
        until(first.done)
        inbox = only_inbox(client, prefix)
        workers.stop()
        client.delete(inbox)
        client.set(inbox, "not ours")
        handles = producer.submit_many("doubler", range(4))
        with ThreadPoolExecutor(4) as threads:
            for wait in [threads.submit(handle.result, 30) for handle in handles]:
                with pytest.raises(ServerUnfit, match="key of another type"):
                    wait.result(30)


class TestAway:
    def test_nobody_there(self, connect: Connect) -> None:
        """Without a server a call fails after the patience, and never tells the password."""
        producer = connect(f"redis://me:secret@127.0.0.1:{free_port()}", patience_s=0.2)
        for call in (
            lambda: producer.infer("doubler", 1),
            lambda: producer.result("doubler", "r"),
            lambda: producer.cancel("doubler", "r"),
            lambda: next(producer.map("doubler", [1])),
        ):
            with pytest.raises(Unavailable, match=r"me:\*\*\*@") as raised:
                call()
            assert "secret" not in str(raised.value)
            assert raised.value.__cause__ is None

    def test_a_timeout_bounds_the_patience(self, connect: Connect) -> None:
        """A request is not submitted after its own budget, however patient the producer is."""
        producer = connect(f"redis://127.0.0.1:{free_port()}", patience_s=3_600)
        with pytest.raises(Unavailable):
            producer.infer("doubler", 1, timeout=0.1)

    def test_gone_while_many_wait(
        self, connect: Connect, server: PrivateServer, its_workers: Workers
    ) -> None:
        """A break longer than the patience ends all waits, not one after the other."""
        its_workers.publish(Doubler())
        producer = connect(server.url, patience_s=0.5)
        handles = producer.submit_many("doubler", range(100))
        with ThreadPoolExecutor(100) as threads:
            waits = [threads.submit(handle.result) for handle in handles]
            server.kill()
            for wait in waits:
                with pytest.raises(Unavailable):
                    # Each with a patience of its own, they would take 50 s.
                    wait.result(20)

    def test_restarted_while_somebody_waits(
        self, connect: Connect, private_server: MakeServer, prefix: str, tmp_path: Path
    ) -> None:
        """A server that comes back with its data costs a waiting client nothing but time."""
        server = private_server(aof=tmp_path, port=0)
        with Workers(server.url, prefix) as workers:
            gate = Gate()
            workers.serve(gate)
            producer = connect(server.url)
            with ThreadPoolExecutor(2) as threads:
                waits = [threads.submit(producer.infer, "gate", number) for number in (1, 2)]
                gate.wait_for_call()
                server.restart()
                gate.open()
                assert [wait.result(30)["y"] for wait in waits] == [2, 4]

    def test_restarted_empty(
        self, connect: Connect, server: PrivateServer, its_workers: Workers
    ) -> None:
        """A server that comes back without its data ends the wait with an error, not never."""
        its_workers.publish(Doubler())
        producer = connect(server.url, poll_s=0.05)
        handle = producer.submit("doubler", 1)
        with ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(handle.result)
            server.restart()
            with pytest.raises(LookupError, match=handle.id):
                waiting.result(30)


class TestFull:
    def test_memory(
        self, connect: Connect, server: PrivateServer, its_workers: Workers, its_client: redis.Redis
    ) -> None:
        """A server at its memory limit is a full queue: nothing is submitted, later it works."""
        its_workers.publish(Doubler())
        producer = connect(server.url)
        producer.submit("doubler", 1)
        its_client.config_set("maxmemory", 1)
        with pytest.raises(QueueFull, match="memory limit") as raised:
            producer.submit_many("doubler", [1, 2])
        assert raised.value.accepted == ()
        its_client.config_set("maxmemory", 0)
        assert its_client.llen(its_workers.keys(Doubler()).normal) == 1
        producer.submit_many("doubler", [1, 2])


def test_forgotten_scripts(producer: AnyProducer, workers: Workers, client: redis.Redis) -> None:
    """A server that forgot the scripts is told again, unnoticed by the caller."""
    workers.serve(Doubler())
    for number in range(3):
        client.script_flush()
        assert producer.infer("doubler", number, timeout=10)["y"] == 2 * number
    workers.stop()
    handle = producer.submit("doubler", 1)
    client.script_flush()
    assert handle.cancel()
