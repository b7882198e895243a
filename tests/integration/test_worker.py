"""A worker and a client that only knows the wire contract: replies and batches."""

import json
from typing import Any

import redis

from inferq.contract.replies import Reply
from inferq_worker import ModelServer
from support.bare import Bare, doubled
from support.batches import message
from support.waiting import until
from support.workers import Doubler, Gate, Sums, Workers


class TestReplies:
    def test_json_pushed_by_hand(self, client: redis.Redis, workers: Workers) -> None:
        """A bare RPUSH of JSON is answered in JSON, without a pending mark before."""
        bare = Bare(client, workers.keys(Doubler()))
        workers.serve(Doubler())
        bare.push(doubled("r1", 4, 5))
        reply = bare.reply("r1")
        assert isinstance(reply, Reply)
        assert (reply.id, reply.model_name) == ("r1", "doubler")
        raw: Any = client.get(bare.keys.reply("r1"))
        assert json.loads(raw)["outputs"] == [
            {"name": "y", "datatype": "INT64", "shape": [2], "data": [8, 10]}
        ]

    def test_frame_pushed_by_hand(self, client: redis.Redis, workers: Workers) -> None:
        """A bare RPUSH of a frame is answered with a frame."""
        bare = Bare(client, workers.keys(Doubler()))
        workers.serve(Doubler())
        bare.push(message("r1", ("x", "INT64", [4, 5])))
        assert bare.values("r1") == [8, 10]
        raw: Any = client.get(bare.keys.reply("r1"))
        assert raw.startswith(b"OIP1")

    def test_both_forms_in_one_batch(self, client: redis.Redis, workers: Workers) -> None:
        """JSON and frames share a model call, and each is answered in its own form."""
        gate = Gate(8)
        gate.open()
        bare = Bare(client, workers.keys(gate))
        bare.push(doubled("j", 1), message("f", ("x", "INT64", [2])), doubled("k", 3))
        workers.serve(gate)
        assert [bare.values(name) for name in ("j", "f", "k")] == [[2], [4], [6]]
        assert gate.sizes == [3]

    def test_selected_outputs(self, client: redis.Redis, workers: Workers) -> None:
        """Only the outputs that a request names come back."""
        bare = Bare(client, workers.keys(Sums()))
        workers.serve(Sums())
        tensors = [("a", "INT64", [[1, 2, 3]]), ("b", "INT64", [[4, 5, 6]])]
        bare.push(message("r1", *tensors, outputs=["sum"]), message("r2", *tensors))
        one, both = bare.reply("r1"), bare.reply("r2")
        assert isinstance(one, Reply)
        assert isinstance(both, Reply)
        assert {name: array.tolist() for name, array in one.items()} == {"sum": [[5, 7, 9]]}
        assert set(both) == {"sum", "size"}

    def test_inbox(self, client: redis.Redis, workers: Workers) -> None:
        """A request that names a box has its id pushed there, after its reply is written."""
        bare = Bare(client, workers.keys(Doubler()))
        workers.serve(Doubler())
        bare.push(doubled("r1", 1, parameters={"reply_to": "box"}))
        hint: Any = client.blpop([bare.keys.inbox("box")], timeout=10)
        assert hint[1] == b"r1"
        assert bare.is_answered("r1")

    def test_first_reply_stays(self, client: redis.Redis, workers: Workers) -> None:
        """Requests of one id are all run, and the first reply is never overwritten."""
        gate = Gate(8)
        gate.open()
        bare = Bare(client, workers.keys(gate))
        bare.push(doubled("r1", 1), doubled("r1", 50), doubled("r2", 3))
        workers.serve(gate)
        assert bare.values("r2") == [6]
        bare.push(doubled("r1", 70), doubled("r3", 4))
        assert bare.values("r3") == [8]
        assert bare.values("r1") == [2]
        assert gate.seen == [1, 50, 3, 70, 4]
        assert bare.metrics()["discarded"] == 2
        assert bare.metrics()["requests_succeeded"] == 3

    def test_reasons(self, client: redis.Redis, workers: Workers) -> None:
        """A reply says in its parameters how it was batched, where, and how long that took."""
        bare = Bare(client, workers.keys(Doubler()))
        stamp = bare.now_ms() - 5_000
        bare.push(doubled("r1", 1, parameters={"submitted_ms": stamp}), doubled("r2", 2, 3))
        workers.serve(Doubler())
        parameters = bare.parameters("r1")
        assert parameters.pop("queue_ms") >= 5_000
        assert parameters.pop("compute_ms") >= 0
        assert parameters == {
            "batch_size": 2,
            "batch_rows": 3,
            "batch_reason": "idle",
            "attempt": 1,
            "worker": bare.workers()[0],
        }


class TestBatches:
    def test_order_of_the_lanes(self, client: redis.Redis, workers: Workers) -> None:
        """What was handed back comes first, then high, normal and low, each in order."""
        gate = Gate(1)
        gate.open()
        bare = Bare(client, workers.keys(gate))
        for lane, values in (("low", (7, 8)), ("normal", (5, 6)), ("high", (3, 4))):
            bare.push(*(doubled(f"r{value}", value) for value in values), lane=lane)
        client.rpush(bare.keys.returned, doubled("r1", 1), doubled("r2", 2))
        workers.serve(gate)
        until(bare.is_drained)
        assert gate.seen == [1, 2, 3, 4, 5, 6, 7, 8]

    def test_priority_on_the_list(self, client: redis.Redis, workers: Workers) -> None:
        """On the list the lane decides, not the priority that a message carries."""
        gate = Gate(1)
        gate.open()
        bare = Bare(client, workers.keys(gate))
        bare.push(*(doubled(f"r{n}", n, parameters={"priority": 9 - n}) for n in (1, 2, 3)))
        workers.serve(gate)
        until(bare.is_drained)
        assert gate.seen == [1, 2, 3]

    def test_full_batches_of_a_full_queue(self, client: redis.Redis, workers: Workers) -> None:
        """A queue that was filled before is drained in full batches, the rest last."""
        gate = Gate(4)
        gate.open()
        bare = Bare(client, workers.keys(gate))
        bare.push(*(doubled(f"r{number}", number) for number in range(10)))
        workers.serve(gate)
        assert [bare.values(f"r{number}") for number in range(10)] == [[2 * n] for n in range(10)]
        assert gate.sizes == [4, 4, 2]
        reasons = [bare.parameters(f"r{number}")["batch_reason"] for number in (0, 7, 9)]
        assert reasons == ["full", "full", "idle"]

    def test_rows_of_a_call(self, client: redis.Redis, workers: Workers) -> None:
        """A claim with more rows than a call may hold runs as several, and completes once."""
        gate = Gate(4)
        gate.open()
        bare = Bare(client, workers.keys(gate))
        bare.push(*(doubled(f"r{number}", *[number] * 3) for number in range(4)))
        workers.serve(gate)
        assert [bare.values(f"r{number}") for number in range(4)] == [[2 * n] * 3 for n in range(4)]
        assert gate.sizes == [4, 4, 4]
        assert {bare.parameters(f"r{number}")["batch_reason"] for number in range(4)} == {"full"}

    def test_one_request_of_many_rows(self, client: redis.Redis, workers: Workers) -> None:
        """A request larger than a call is cut and its rows come back as one reply."""
        gate = Gate(4)
        gate.open()
        bare = Bare(client, workers.keys(gate))
        bare.push(doubled("r1", *range(11)))
        workers.serve(gate)
        assert bare.values("r1") == [2 * n for n in range(11)]
        assert gate.sizes == [4, 4, 3]

    def test_greedy(self, client: redis.Redis, workers: Workers) -> None:
        """A lone request starts at once; the next batch takes what has come meanwhile."""
        gate = Gate(8)
        bare = Bare(client, workers.keys(gate))
        workers.serve(gate)
        bare.push(doubled("r0", 0))
        gate.wait_for_call()
        bare.push(*(doubled(f"r{number}", number) for number in range(1, 6)))
        gate.open()
        until(bare.is_drained)
        assert gate.sizes == [1, 5]

    def test_nothing_is_claimed_ahead(self, client: redis.Redis, workers: Workers) -> None:
        """While a batch runs, what waits stays in the lane for whoever is free."""
        gate = Gate(2)
        bare = Bare(client, workers.keys(gate))
        bare.push(*(doubled(f"r{number}", number) for number in range(5)))
        workers.serve(gate)
        gate.wait_for_call()
        assert client.llen(bare.keys.normal) == 3

    def test_byte_budget(self, client: redis.Redis, workers: Workers) -> None:
        """A claim is closed by its bytes too; what is above the budget alone runs alone."""
        gate = Gate(8)
        gate.open()
        bare = Bare(client, workers.keys(gate))
        small = [doubled(f"r{number}", number) for number in range(4)]
        large = doubled("large", 9, parameters={"note": "x" * 500})
        bare.push(small[0], small[1], small[2], large, small[3])
        workers.serve(gate, claim_bytes=2 * len(small[0]) + 10)
        until(bare.is_drained)
        assert gate.sizes == [2, 1, 1, 1]
        assert bare.parameters("large")["batch_reason"] == "full"

    def test_setting_of_the_batch_size(self, client: redis.Redis, workers: Workers) -> None:
        """The worker's setting goes before the model's own batch size, also in what it publishes."""
        gate = Gate(8)
        gate.open()
        bare = Bare(client, workers.keys(gate))
        bare.push(*(doubled(f"r{number}", number) for number in range(5)))
        workers.serve(gate, max_batch_size=2)
        until(bare.is_drained)
        assert gate.sizes == [2, 2, 1]
        described: Any = client.get(bare.keys.description)
        assert json.loads(described)["limits"]["max_batch_size"] == 2

    def test_model_server_makes_the_same_batches(
        self, client: redis.Redis, workers: Workers
    ) -> None:
        """A worker and a model server give the same calls, of the same rows, for the same rows."""
        served, local = Gate(16), Gate(16)
        served.open()
        local.open()
        bare = Bare(client, workers.keys(served))
        bare.push(*(doubled(f"r{number}", number) for number in range(50)))
        workers.serve(served)
        results, _ = ModelServer("gate", 16, local).predict(list(range(50)))
        assert [bare.values(f"r{number}")[0] for number in range(50)] == [
            result["y"] for result in results
        ]
        assert served.sizes == local.sizes == [16, 16, 16, 2]
        assert served.seen == local.seen

    def test_two_workers(self, client: redis.Redis, workers: Workers) -> None:
        """Two workers share a queue: every request is answered once, by its own values."""
        gates = Gate(4), Gate(4)
        bare = Bare(client, workers.keys(gates[0]))
        for gate in gates:
            workers.serve(gate)
        bare.push(*(doubled(f"r{number}", number) for number in range(200)))
        for gate in gates:
            gate.wait_for_call()
        for gate in gates:
            gate.open()
        assert [bare.values(f"r{number}") for number in range(200)] == [[2 * n] for n in range(200)]
        assert sorted(gates[0].seen + gates[1].seen) == list(range(200))
        assert bare.metrics()["requests_succeeded"] == 200
        assert "discarded" not in bare.metrics()
