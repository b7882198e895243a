"""Counters, times to live, and what a worker leaves behind."""

import threading
from typing import Any

import redis

from inferq.contract.keys import models_key
from inferq.contract.replies import Reply
from support.bare import Bare, doubled
from support.waiting import until
from support.workers import Doubler, Raiser, Workers


class TestBookkeeping:
    def test_counters(self, client: redis.Redis, workers: Workers) -> None:
        """The counters are exactly what happened, request by request and call by call."""
        raiser = Raiser()
        raiser.max_batch_size = 4
        bare = Bare(client, workers.keys(raiser))
        sent = [
            doubled("a", 1, parameters={"submitted_ms": bare.now_ms() - 2_000}),
            doubled("b", 2, 3),
            b"junk",
            b'{"id":"c"}',
            doubled("d", -1),
            doubled("e", 5),
        ]
        bare.push(*sent)
        workers.serve(raiser)
        replies = {name: bare.reply(name) for name in "abcde"}
        assert sum(isinstance(reply, Reply) for reply in replies.values()) == 3
        until(bare.is_drained)
        metrics = bare.metrics()
        assert metrics.pop("queue_ns_sum") >= 2 * 10**9
        assert metrics.pop("total_ns_sum") >= 2 * 10**9
        assert metrics.pop("compute_ns_sum") > 0
        compute = [metrics.pop(name) for name in list(metrics) if name.startswith("compute_le_")]
        assert sum(compute) == 4
        bytes_out = sum(len(raw) for name in "abcde" if (raw := client.get(bare.keys.reply(name))))
        assert metrics == {
            "requests_succeeded": 3,
            "requests_invalid_request": 1,
            "requests_model_error": 1,
            "dead": 1,
            # a and b in the first claim; then d and e, d alone, e alone.
            "batches": 4,
            "rows": 3 + 2 + 1 + 1,
            "batch_size_le_1": 2,
            "batch_size_le_2": 2,
            "queue_le_2.5": 1,
            "total_le_2.5": 1,
            "bytes_in": sum(map(len, sent)),
            "bytes_out": bytes_out,
        }

    def test_lives(self, client: redis.Redis, workers: Workers) -> None:
        """Every key has a time to live, but for those that the contract lists as lasting."""
        bare = Bare(client, workers.keys(Raiser()))
        workers.serve(Raiser(), reply_ttl_s=100, inbox_ttl_s=50)
        bare.push(
            doubled("a", 1, parameters={"reply_to": "box"}),
            doubled("b", -1, parameters={"reply_ttl": 3_600}),
            b'{"id":"c"}',
            b"junk",
        )
        for name in "abc":
            bare.reply(name)
        until(bare.is_drained)
        (worker,) = bare.workers()
        lives = bare.lives()
        for_ever = {name for name, life in lives.items() if life == -1}
        assert for_ever <= {
            "metrics", "model", "workers", "claims", "closed", "dead", models_key(bare.keys.prefix)
        }  # fmt: skip
        assert 90_000 < lives["reply:a"] <= 100_000
        assert 3_500_000 < lives["reply:b"] <= 3_600_000
        assert 90_000 < lives["reply:c"] <= 100_000
        assert 40_000 < lives["inbox:box"] <= 50_000
        assert 0 < lives[f"worker:{worker}"] <= 30_000

    def test_what_a_worker_tells(self, client: redis.Redis, workers: Workers) -> None:
        """A worker tells its host, process, version and state under its own key."""
        bare = Bare(client, workers.keys(Doubler()))
        workers.serve(Doubler())
        (worker,) = bare.workers()
        told: Any = client.hgetall(bare.keys.worker(worker))
        assert set(told) == {b"host", b"pid", b"version", b"state", b"batch"}
        assert told[b"state"] == b"idle"

    def test_nothing_is_left(self, client: redis.Redis, workers: Workers) -> None:
        """A worker that has left leaves replies, counters, the model, and for a minute its name."""
        bare = Bare(client, workers.keys(Doubler()))
        workers.serve(Doubler())
        bare.push(doubled("a", 1), doubled("b", 2))
        bare.values("b")
        workers.stop()
        lives = bare.lives()
        (gone,) = (name for name in lives if name.startswith("worker:"))
        assert 0 < lives.pop(gone) <= 60_000
        assert set(lives) == {
            "metrics", "model", "reply:a", "reply:b", models_key(bare.keys.prefix)
        }  # fmt: skip

    def test_hundreds_of_senders(self, client: redis.Redis, workers: Workers) -> None:
        """Bare senders in many threads all get the answers to their own requests."""
        bare = Bare(client, workers.keys(Doubler()))
        workers.serve(Doubler())

        def send(sender: int) -> None:
            for number in range(20):
                bare.push(doubled(f"s{sender}-{number}", 1_000 * sender + number))

        threads = [threading.Thread(target=send, args=(sender,)) for sender in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for sender in range(8):
            for number in range(20):
                assert bare.values(f"s{sender}-{number}") == [2 * (1_000 * sender + number)]
