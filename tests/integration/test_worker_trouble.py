"""A worker whose server restarts, forgets, cuts off or fills up: it goes on, and nothing is lost."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

from inferq import Producer
from inferq.contract.errors import Unavailable
from inferq.endpoint import Endpoint
from inferq.redis_link import Link, command
from inferq_worker import Worker
from inferq_worker.settings import WorkerSettings
from support.bare import Bare, doubled
from support.servers import PrivateServer
from support.waiting import until
from support.workers import Doubler, Gate, Workers

Servers = Callable[..., PrivateServer]


@contextmanager
def serving(server: PrivateServer, model: Doubler | Gate, **settings: object) -> Iterator[Bare]:
    """Serve a model on a private server; yield a client of its queue."""
    with (
        Workers(server.url, "inferq") as workers,
        # It connects anew as often as a test's server restarts.
        redis.Redis.from_url(server.url) as client,
    ):
        bare = Bare(client, workers.keys(model))
        workers.serve(model, **settings)
        yield bare


class TestRestart:
    def test_under_an_idle_worker(self, private_server: Servers, tmp_path: Path) -> None:
        """A worker that waits takes a new seat on the restarted server, and goes on."""
        server = private_server(aof=tmp_path)
        with serving(server, Doubler()) as bare:
            (before,) = bare.workers()
            server.restart()
            until(lambda: before not in bare.workers() and bare.workers())
            bare.push(doubled("r1", 1))
            assert bare.values("r1") == [2]
            assert bare.parameters("r1")["worker"] != before

    def test_under_a_busy_worker(self, private_server: Servers, tmp_path: Path) -> None:
        """What a worker had in hand is handed back under its old id and answered under the new."""
        server = private_server(aof=tmp_path)
        gate = Gate(4)
        with serving(server, gate) as bare:
            (before,) = bare.workers()
            bare.push(doubled("r1", 1))
            gate.wait_for_call()
            bare.push(doubled("r2", 2), doubled("r3", 3))
            server.restart()
            gate.open()
            assert [bare.values(f"r{number}") for number in (1, 2, 3)] == [[2], [4], [6]]
            until(bare.is_drained)
            assert before not in bare.workers()
            # Uncharged: no worker died.
            assert {bare.parameters(f"r{number}")["attempt"] for number in (1, 2, 3)} == {1}
            assert bare.metrics()["requests_succeeded"] == 3

    def test_that_takes_long_to_load(self, private_server: Servers, tmp_path: Path) -> None:
        """A server that says who it is, but still loads, frees the worker's old seat when it can.

        Otherwise what that held would wait for the lease, and be charged a death.
        """
        # It answers in between, once every 1,024 commands of its file.
        server = private_server("--key-load-delay", "200", aof=tmp_path)
        with serving(server, Doubler(), lease_s=60) as bare:
            (before,) = bare.workers()
            for number in range(5_000):
                bare.client.set(f"other:{number}", "x")
            server.restart()
            until(lambda: bare.workers() and before not in bare.workers())

    def test_with_everything_forgotten(self, private_server: Servers) -> None:
        """On a server that lost all its data the model is published anew, for clients to find."""
        server = private_server()
        with serving(server, Doubler()) as bare:
            server.kill()
            server.start()
            until(bare.workers)
            with Producer(server.url) as producer:
                assert producer.infer("doubler", 21, timeout=10)["y"] == 42

    def test_again_and_again(self, private_server: Servers, tmp_path: Path) -> None:
        """However often the server restarts, each request that it accepted is answered once."""
        server = private_server(aof=tmp_path)
        with serving(server, Doubler(), max_batch_size=4) as bare:
            for turn in range(4):
                bare.push(*(doubled(f"r{turn}-{number}", number) for number in range(100)))
                server.restart()
            for turn in range(4):
                for number in range(100):
                    assert bare.values(f"r{turn}-{number}") == [2 * number]
            until(bare.is_drained)
            assert bare.metrics()["requests_succeeded"] == 400
            assert "discarded" not in bare.metrics()

    def test_stop_while_it_is_away(self, private_server: Servers, tmp_path: Path) -> None:
        """Told to stop, a worker waits for its server no longer than its time to drain.

        What it held is answered by another worker once the server is back.
        """
        server = private_server(aof=tmp_path)
        gate = Gate(1)
        with serving(server, gate, drain_timeout_s=0.2, lease_s=0.5) as bare:
            bare.push(doubled("r1", 1))
            gate.wait_for_call()
            server.stop()
            # The end of this block stops the worker, opens its gate, and waits for it.
        server.start()
        gate = Gate(1)
        gate.open()
        with serving(server, gate, lease_s=0.5) as bare:
            assert bare.values("r1") == [2]
            assert bare.parameters("r1")["attempt"] == 2

    def test_server_that_comes_later(self, private_server: Servers) -> None:
        """A worker that is started before its server waits for it."""
        server = private_server()
        server.stop()
        worker = Worker(Doubler(), WorkerSettings(redis_url=server.url))
        answered: list[int] = []
        thread = threading.Thread(target=lambda: answered.append(worker.run()))
        thread.start()
        server.start()
        with redis.Redis.from_url(server.url) as client:
            bare = Bare(client, Workers(server.url, "inferq").keys(Doubler()))
            bare.push(doubled("r1", 1))
            assert bare.values("r1") == [2]
        worker.stop()
        thread.join(10.0)
        assert answered == [1]


class TestConnections:
    def test_scripts_flushed_under_load(self, private_server: Servers) -> None:
        """A server that forgets the scripts again and again is given them again, unnoticed."""
        with serving(private_server(), Doubler(), max_batch_size=2) as bare:
            for number in range(300):
                bare.push(doubled(f"r{number}", number))
                if number % 10 == 0:
                    bare.client.script_flush()
            assert [bare.values(f"r{n}") for n in range(300)] == [[2 * n] for n in range(300)]
            assert bare.metrics()["requests_succeeded"] == 300
            assert "discarded" not in bare.metrics()

    def test_killed_under_load(self, private_server: Servers) -> None:
        """Connections that are cut at any moment cost no request and double none."""
        with serving(private_server(), Doubler(), max_batch_size=2) as bare:
            for number in range(300):
                bare.push(doubled(f"r{number}", number))
                if number % 10 == 0:
                    bare.client.client_kill_filter(_type="normal", skipme=True)
            assert [bare.values(f"r{n}") for n in range(300)] == [[2 * n] for n in range(300)]
            until(bare.is_drained)
            assert bare.metrics()["requests_succeeded"] == 300
            assert "discarded" not in bare.metrics()

    def test_killed_while_idle(self, private_server: Servers) -> None:
        """A worker whose waiting connection is cut keeps its seat and waits on another one."""
        with serving(private_server(), Doubler()) as bare:
            before = bare.workers()
            bare.client.client_kill_filter(_type="normal", skipme=True)
            bare.push(doubled("r1", 1))
            assert bare.values("r1") == [2]
            assert bare.workers() == before

    def test_half_open(self, private_server: Servers) -> None:
        """A flight to a server that has gone silent ends with the socket's patience."""
        server = private_server()
        link = Link(Endpoint.parse(server.url), socket_timeout_s=0.3)
        link.run(command("PING"))
        os.kill(server.pid, signal.SIGSTOP)
        with pytest.raises(Unavailable):
            link.once([command("PING")], abandon=lambda: False)
        os.kill(server.pid, signal.SIGCONT)
        assert link.run(command("PING"), patience_s=10) == [b"PONG"]
        link.close()
