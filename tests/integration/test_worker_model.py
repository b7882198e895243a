"""What a model does, and how long it takes, seen by a client."""

from typing import Any

import numpy as np
import redis

from inferq.contract.keys import models_key
from inferq.contract.replies import Reply
from inferq_worker import Model, TensorSpec
from support.bare import Bare, doubled
from support.waiting import until
from support.workers import Doubler, Gate, Raiser, Workers


class TestModel:
    def test_published_after_it_is_loaded(self, client: redis.Redis, workers: Workers) -> None:
        """The model is made known once it is loaded, before the first request runs."""
        seen: list[tuple[Any, Any]] = []
        keys = workers.keys(Doubler())

        def look() -> None:
            name = client.sismember(models_key(keys.prefix), "doubler")
            seen.append((client.exists(keys.description), name))

        class Watching(Doubler):
            name = "doubler"

            def load(self) -> None:
                look()

            def predict(self, x: Any) -> Any:
                look()
                return super().predict(x)

        bare = Bare(client, keys)
        bare.push(doubled("r1", 1))
        workers.serve(Watching())
        assert bare.values("r1") == [2]
        assert seen == [(0, 0), (1, 1)]

    def test_parameters(self, client: redis.Redis, workers: Workers) -> None:
        """A model that asks gets the sender's own parameters, one call for each set of them."""

        class Scaler(Model):
            inputs = Doubler.inputs
            outputs = Doubler.outputs
            calls: list[tuple[dict[str, Any], list[int]]] = []

            def predict(self, x: Any, parameters: dict[str, Any]) -> Any:
                self.calls.append((parameters, x.tolist()))
                return x * parameters.get("by", 1)

        scaler = Scaler()
        bare = Bare(client, workers.keys(scaler))
        bare.push(
            doubled("r1", 1, parameters={"by": 3, "reply_ttl": 70}),
            doubled("r2", 2, parameters={"inferq_by": 9}),
            doubled("r3", 3, parameters={"by": 3}),
            doubled("r4", 4, parameters={"by": 5}),
        )
        workers.serve(scaler)
        assert [bare.values(f"r{number}") for number in (1, 2, 3, 4)] == [[3], [2], [9], [20]]
        assert scaler.calls == [({"by": 3}, [1, 3]), ({}, [2]), ({"by": 5}, [4])]

    def test_exception(self, client: redis.Redis, workers: Workers) -> None:
        """The request that makes the model raise gets a typed error; its neighbours are answered."""
        bare = Bare(client, workers.keys(Raiser()))
        bare.push(*(doubled(f"r{number}", -1 if number == 5 else number) for number in range(9)))
        workers.serve(Raiser())
        assert bare.error("r5") == ("model_error", "the model raised ValueError: below zero")
        assert [bare.values(f"r{n}") for n in range(9) if n != 5] == [
            [2 * n] for n in range(9) if n != 5
        ]
        bare.push(doubled("later", 21))
        assert bare.values("later") == [42]
        assert bare.metrics()["requests_model_error"] == 1

    def test_exit_in_the_model(self, client: redis.Redis, workers: Workers) -> None:
        """A model that calls exit answers with a typed error, and its worker goes on."""

        class Leaver(Doubler):
            def predict(self, x: Any) -> Any:
                if (x < 0).any():
                    raise SystemExit(3)
                return x * 2

        bare = Bare(client, workers.keys(Leaver()))
        workers.serve(Leaver())
        bare.push(doubled("r1", -1), doubled("r2", 2))
        assert bare.error("r1")[0] == "model_error"
        assert bare.values("r2") == [4]

    def test_output_without_a_json_form(self, client: redis.Redis, workers: Workers) -> None:
        """NaN in the reply of a JSON request is a model error that names the binary form."""

        class Unsure(Model):
            inputs = [TensorSpec("x", "INT64", [])]
            outputs = [TensorSpec("y", "FP32", [])]

            def predict(self, x: Any) -> Any:
                return np.full(len(x), np.nan, dtype="f4")

        bare = Bare(client, workers.keys(Unsure()))
        workers.serve(Unsure())
        bare.push(doubled("j", 1), doubled("b", 1, parameters={"binary_data_output": True}))
        code, sentence = bare.error("j")
        assert code == "model_error"
        assert "binary_data_output" in sentence
        reply = bare.reply("b")
        assert isinstance(reply, Reply)
        assert np.isnan(reply["y"]).all()

    def test_reply_over_the_limit(self, client: redis.Redis, workers: Workers) -> None:
        """An answer over the byte limit is a typed error, and its neighbours are answered."""

        class Verbose(Model):
            inputs = [TensorSpec("x", "INT64", [])]
            outputs = [TensorSpec("y", "BYTES", [])]

            def predict(self, x: Any) -> Any:
                return np.array([b"?" * int(each) for each in x], dtype=object)

        bare = Bare(client, workers.keys(Verbose()))
        workers.serve(Verbose(), max_message_bytes=2_000)
        bare.push(doubled("long", 2_000), doubled("short", 3))
        assert bare.error("long")[0] == "too_large"
        assert isinstance(bare.reply("short"), Reply)

    def test_lease_is_kept_while_the_model_runs(
        self, client: redis.Redis, workers: Workers
    ) -> None:
        """A model that runs for longer than the lease keeps its worker's seat."""
        gate = Gate(1)
        bare = Bare(client, workers.keys(gate))
        workers.serve(gate, lease_s=1.5)
        bare.push(doubled("r1", 1))
        gate.wait_for_call()
        (worker,) = bare.workers()
        ends = set()

        def prolonged() -> bool:
            end: Any = client.zscore(bare.keys.workers, worker)
            assert end > bare.now_ms()
            ends.add(end)
            return len(ends) > 3

        until(prolonged)
        gate.open()
        assert bare.values("r1") == [2]
        assert bare.workers() == [worker]
        assert bare.parameters("r1")["attempt"] == 1


class TestTimeouts:
    def test_late(self, client: redis.Redis, workers: Workers) -> None:
        """A request whose budget is spent is answered so without running; others run."""
        gate = Gate(8)
        gate.open()
        bare = Bare(client, workers.keys(gate))
        long_ago = {"submitted_ms": bare.now_ms() - 10_000}
        bare.push(
            doubled("late", 1, parameters={**long_ago, "timeout": 5_000_000, "reply_to": "box"}),
            doubled("in_time", 2, parameters={**long_ago, "timeout": 60_000_000}),
            doubled("no_hurry", 3, parameters=long_ago),
            doubled("no_stamp", 4, parameters={"timeout": 1}),
        )
        workers.serve(gate)
        code, sentence = bare.error("late")
        assert code == "expired"
        assert sentence.startswith("timeout ran out ")
        assert [bare.values(name) for name in ("in_time", "no_hurry", "no_stamp")] == [
            [4],
            [6],
            [8],
        ]
        assert gate.seen == [2, 3, 4]
        assert bare.hints("box") == ["late"]
        assert bare.metrics()["requests_expired"] == 1

    def test_expires_while_it_waits(self, client: redis.Redis, workers: Workers) -> None:
        """A request that waits behind a running batch expires when the worker gets to it."""
        gate = Gate(1)
        bare = Bare(client, workers.keys(gate))
        workers.serve(gate)
        bare.push(doubled("first", 1))
        gate.wait_for_call()
        stamp = bare.now_ms()
        bare.push(doubled("late", 2, parameters={"submitted_ms": stamp, "timeout": 20_000}))
        until(lambda: bare.now_ms() > stamp + 20)
        gate.open()
        assert bare.error("late")[0] == "expired"
        assert gate.seen == [1]
