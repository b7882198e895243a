"""Servers and keys that are not as they should be, and what an idle worker costs."""

import logging
from collections.abc import Callable
from typing import Any

import pytest
import redis

from inferq.contract.errors import ModelUnfit, ServerUnfit
from inferq_worker import TensorSpec, Worker
from inferq_worker.settings import WorkerSettings
from support.bare import Bare, doubled
from support.servers import PrivateServer
from support.waiting import until
from support.workers import Doubler, Gate, Workers

Servers = Callable[..., PrivateServer]


@pytest.mark.parametrize("lane", ["high", "normal", "low"])
def test_lane_of_another_type(client: redis.Redis, workers: Workers, lane: str) -> None:
    """A worker does not start on a queue key that belongs to another program, and says which."""
    keys = workers.keys(Doubler())
    client.hset(keys.lane(lane), "x", "1")
    with pytest.raises(ServerUnfit, match="is a hash, not a list: another program") as caught:
        workers.serve(Doubler())
    assert keys.lane(lane) in str(caught.value)


def test_lane_that_becomes_another_type(
    client: redis.Redis, workers: Workers, caplog: pytest.LogCaptureFixture
) -> None:
    """A lane that turns into another type is passed over and reported once; others are served."""
    bare = Bare(client, workers.keys(Doubler()))
    workers.serve(Doubler(), lease_s=0.5)
    client.set(bare.keys.lane("low"), "x")
    for number in range(3):
        bare.push(doubled(f"r{number}", number))
        assert bare.values(f"r{number}") == [2 * number]
    client.delete(bare.keys.lane("low"))
    bare.push(doubled("low", 9), lane="low")
    bare.push(b"")
    assert bare.values("low") == [18]
    reports = [line for line in caplog.messages if "key of another type" in line]
    assert reports == ["a lane of doubler is a key of another type; passed over"]


def test_normal_lane_that_becomes_another_type(
    client: redis.Redis, workers: Workers, caplog: pytest.LogCaptureFixture
) -> None:
    """Where it cannot wait for the normal lane, a worker looks for requests instead."""
    bare = Bare(client, workers.keys(Doubler()))
    client.rpush(bare.keys.normal, b"")
    workers.serve(Doubler())
    until(bare.is_drained)
    client.set(bare.keys.normal, "x")
    bare.push(doubled("r1", 1), lane="high")
    # Waiting for a key that has changed its type, it would look at the end of its block only.
    client.client_kill_filter(_type="normal", skipme=True)
    assert bare.values("r1") == [2]
    until(lambda: any("cannot block for requests" in line for line in caplog.messages))
    client.delete(bare.keys.normal)
    bare.push(doubled("r2", 2))
    assert bare.values("r2") == [4]


def test_other_tensors(client: redis.Redis, workers: Workers) -> None:
    """A worker whose model has other tensors than a live one's of that name does not start."""
    workers.serve(Doubler())
    (live,) = Bare(client, workers.keys(Doubler())).workers()
    other = Doubler()
    other.name = "doubler"
    other.inputs = [TensorSpec("x", "INT32", [])]
    with pytest.raises(ModelUnfit, match=f"worker {live} serves 'doubler' with other tensors"):
        workers.serve(other)


@pytest.mark.parametrize(
    ("policy", "danger"), [("allkeys-lru", "whole queues"), ("volatile-ttl", "unread replies")]
)
def test_policy_that_drops(
    private_server: Servers, caplog: pytest.LogCaptureFixture, policy: str, danger: str
) -> None:
    """A server that may drop queues or replies is warned about at the start, and served."""
    server = private_server("--maxmemory-policy", policy, "--maxmemory", "100mb")
    Worker(Doubler(), WorkerSettings(redis_url=server.url)).run(burst=True)
    (warning,) = [each.message for each in caplog.records if each.levelno == logging.WARNING]
    assert f"maxmemory-policy {policy}" in warning
    assert danger in warning


class TestFullMemory:
    def fill(self, bare: Bare, *, requests: int = 200) -> None:
        """Fill a queue, then let the server's memory count as full."""
        bare.push(*(doubled(f"r{number}", number) for number in range(requests)))
        bare.client.config_set("maxmemory", "100kb")
        with pytest.raises(redis.exceptions.OutOfMemoryError):
            bare.push(doubled("more", 1))

    def test_queue_is_drained(self, private_server: Servers) -> None:
        """A worker drains the queue that filled the memory, down to the last request."""
        server = private_server("--maxmemory-policy", "noeviction")
        gate = Gate(16)
        with (
            Workers(server.url, "inferq") as workers,
            redis.Redis.from_url(server.url) as client,
        ):
            bare = Bare(client, workers.keys(gate))
            workers.serve(gate)
            bare.push(doubled("first", 1))
            gate.wait_for_call()
            self.fill(bare)
            gate.open()
            assert [bare.values(f"r{n}") for n in range(200)] == [[2 * n] for n in range(200)]
            until(bare.is_drained)
            client.config_set("maxmemory", "0")
            bare.push(doubled("later", 21))
            assert bare.values("later") == [42]

    def test_worker_starts(self, private_server: Servers, caplog: pytest.LogCaptureFixture) -> None:
        """A worker starts on a full server, drains it, and is listed when there is room again."""
        server = private_server("--maxmemory-policy", "noeviction")
        with (
            Workers(server.url, "inferq") as workers,
            redis.Redis.from_url(server.url) as client,
        ):
            bare = Bare(client, workers.keys(Doubler()))
            self.fill(bare)
            workers.serve(Doubler(), lease_s=0.5)
            assert [bare.values(f"r{n}") for n in range(200)] == [[2 * n] for n in range(200)]
            assert "the model cannot be published yet" in caplog.text
            assert not client.exists("inferq:models")
            client.config_set("maxmemory", "0")
            until(lambda: client.sismember("inferq:models", "doubler"))
            assert client.exists(bare.keys.description)


def test_idle_worker_is_quiet(private_server: Servers) -> None:
    """An idle worker of the default lease sends fewer than two commands a second.

    With a short lease, since what it sends is counted in blocks: one lasts a third of the lease,
    5 s by default, so that must be fewer than ten. Every second block it looks after the others.
    """
    server = private_server()
    with (
        Workers(server.url, "inferq") as workers,
        redis.Redis.from_url(server.url) as client,
        client.monitor() as monitor,
    ):
        workers.serve(Doubler(), lease_s=1.5)
        sent: list[str] = []
        # From its first look, which comes when one lease has passed undisturbed.
        while sent.count("BLMOVE") <= 6:
            line: Any = monitor.next_command()
            word = line["command"].split(" ")[0]
            if line["client_type"] != "lua" and (sent or word == "SCAN"):
                sent.append(word)
    assert len(sent[:-1]) / 6 < 10, sent
    assert sent.count("SCAN") <= 4
