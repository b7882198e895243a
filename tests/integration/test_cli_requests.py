"""``inferq infer``, ``submit``, ``result`` and ``cancel``: what they print, and how they end."""

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import redis

from inferq.contract.keys import Keys
from inferq.contract.tensors import Array
from inferq_worker import Model, TensorSpec
from support.commands import Commands
from support.workers import Doubler, Echo, Gate, Raiser, Sums, Workers


class Odd(Model):
    """Gives what JSON cannot hold: NaN, and bytes that are no text."""

    inputs = [TensorSpec("x", "FP32", [])]
    outputs = [TensorSpec("nan", "FP32", []), TensorSpec("raw", "BYTES", [])]

    def predict(self, x: Array) -> dict[str, Array]:
        return {"nan": x * np.nan, "raw": np.array([b"\xff"] * len(x), dtype=object)}


class Told(Model):
    """Gives back the parameters it was asked with."""

    inputs = [TensorSpec("x", "INT64", [])]
    outputs = [TensorSpec("said", "BYTES", []), TensorSpec("y", "INT64", [])]

    def predict(self, x: Array, parameters: dict[str, Any]) -> dict[str, Array]:
        said = json.dumps(parameters, sort_keys=True).encode()
        return {"said": np.array([said] * len(x), dtype=object), "y": x}


@pytest.fixture
def npy(tmp_path: Path) -> Callable[[Any], Path]:
    """Write a value as .npy and give its path."""

    def write(value: Any) -> Path:
        path = tmp_path / "input.npy"
        np.save(path, np.asarray(value))
        return path

    return write


class TestInfer:
    def test_readable(self, inferq: Commands, workers: Workers, npy: Callable[..., Path]) -> None:
        """The reply is an OIP response, an output a line."""
        workers.serve(Doubler())
        done = inferq("infer", "doubler", npy([3, 4]))
        assert (done.code, done.err) == (0, "")
        reply = json.loads(done.out)
        assert reply["model_name"] == "doubler"
        assert reply["outputs"] == [
            {"name": "y", "datatype": "INT64", "shape": [2], "data": [6, 8]}
        ]
        assert reply["parameters"]["batch_rows"] == 2
        assert '    {"name": "y"' in done.out

    def test_one_line(self, inferq: Commands, workers: Workers, npy: Callable[..., Path]) -> None:
        """With --json, here after the command, the same is one line."""
        workers.serve(Doubler())
        (reply,) = inferq("infer", "doubler", npy(3), "--json").objects
        assert reply["outputs"][0]["data"] == [6]

    def test_from_standard_input(self, inferq: Commands, workers: Workers, tmp_path: Path) -> None:
        """An object of tensors comes through a pipe, with and without the dash."""
        workers.serve(Doubler())
        source = tmp_path / "input.json"
        source.write_text('{"x": [1, 2]}')
        for arguments in (("-",), ()):
            (reply,) = inferq("--json", "infer", "doubler", *arguments, stdin=source).objects
            assert reply["outputs"][0]["data"] == [2, 4]

    def test_oip_request(self, inferq: Commands, workers: Workers, tmp_path: Path) -> None:
        """An OIP request keeps its id, its own parameters and its choice of outputs."""
        workers.serve(Told())
        source = tmp_path / "request.json"
        source.write_text(
            json.dumps(
                {
                    "id": "mine",
                    "parameters": {"top": 3, "timeout": 20_000_000},
                    "inputs": [{"name": "x", "datatype": "INT64", "shape": [1], "data": [1]}],
                    "outputs": [{"name": "said"}],
                }
            )
        )
        (reply,) = inferq("--json", "infer", "told", source).objects
        assert reply["id"] == "mine"
        assert [output["name"] for output in reply["outputs"]] == ["said"]
        assert json.loads(reply["outputs"][0]["data"][0]) == {"top": 3}

    def test_flags(self, inferq: Commands, workers: Workers, npy: Callable[..., Path]) -> None:
        """Id, lane, budget, outputs and parameters can be given as flags."""
        workers.serve(Told())
        done = inferq(
            "--json", "infer", "told", npy(1), "--id", "mine", "--priority", "high",
            "--timeout", "20s", "--output", "said", "--parameter", "top=3",
            "--parameter", "mode=greedy",
        )  # fmt: skip
        (reply,) = done.objects
        assert reply["id"] == "mine"
        (said,) = reply["outputs"]
        assert json.loads(said["data"][0]) == {"mode": "greedy", "top": 3}

    def test_several_tensors(self, inferq: Commands, workers: Workers, tmp_path: Path) -> None:
        """Tensors can come from files of their own, as .npy and as JSON."""
        workers.serve(Sums())
        np.save(tmp_path / "a.npy", np.arange(3))
        (tmp_path / "b.json").write_text("[1, 1, 1]")
        done = inferq(
            "--json", "infer", "sums", "--input", f"a={tmp_path}/a.npy",
            "--input", f"b={tmp_path}/b.json",
        )  # fmt: skip
        assert done.objects[0]["outputs"][0]["data"] == [1, 2, 3]

    def test_no_form_in_json(
        self, inferq: Commands, workers: Workers, npy: Callable[..., Path], tmp_path: Path
    ) -> None:
        """What JSON cannot hold is refused in a sentence that names --npz, which holds it."""
        workers.serve(Odd())
        done = inferq("infer", "odd", npy(np.float32(1)))
        assert (done.code, done.out) == (1, "")
        assert "NaN and Infinity have no JSON form" in done.event
        assert "--npz FILE" in done.event
        saved = tmp_path / "reply.npz"
        done = inferq("--json", "infer", "odd", npy(np.float32(1)), "--npz", saved)
        assert done.code == 0, done.err
        assert done.objects[0]["outputs"] == [
            {"name": "nan", "datatype": "FP32", "shape": []},
            {"name": "raw", "datatype": "BYTES", "shape": []},
        ]
        with np.load(saved, allow_pickle=False) as arrays:
            assert np.isnan(arrays["nan"])
            assert arrays["raw"] == b"\xff"

    def test_model_fails(
        self, inferq: Commands, workers: Workers, npy: Callable[..., Path]
    ) -> None:
        """A request that the model cannot answer ends with 1 and the model's words."""
        workers.serve(Raiser())
        done = inferq("infer", "raiser", npy(-1))
        assert (done.code, done.out) == (1, "")
        assert "below zero" in done.event

    def test_wrong_input(self, inferq: Commands, workers: Workers, tmp_path: Path) -> None:
        """An input that is not the model's ends with 1 and names what is wrong."""
        workers.publish(Echo())
        source = tmp_path / "input.json"
        for text, words in (
            ('{"x": [1]}', "'x': expected shape"),
            ('{"z": [1]}', "unknown tensor 'z'"),
            ('{"x": ["a", "b"]}', "FP32"),
            ("{", "neither .npy nor JSON"),
        ):
            source.write_text(text)
            done = inferq("infer", "echo", source)
            assert done.code == 1, done
            assert words in done.event

    def test_nobody_answers(
        self, inferq: Commands, workers: Workers, npy: Callable[..., Path]
    ) -> None:
        """A known model without a worker keeps the request; the wait ends with 75."""
        workers.publish(Doubler())
        done = inferq("infer", "doubler", npy(1), "--timeout", "100ms")
        assert (done.code, done.out) == (75, "")
        assert "no reply" in done.event

    def test_unknown_model(self, inferq: Commands, npy: Callable[..., Path]) -> None:
        """A model nobody has published ends with 3."""
        done = inferq("infer", "nobody", npy(1))
        assert done.code == 3
        assert "'nobody'" in done.event

    def test_queue_is_full(
        self, inferq: Commands, workers: Workers, npy: Callable[..., Path]
    ) -> None:
        """A full queue ends with 75, and nothing is submitted."""
        workers.publish(Doubler())
        limited = {"INFERQ_QUEUE_LIMIT": "1"}
        assert inferq("submit", "doubler", npy(1), env=limited).code == 0
        done = inferq("submit", "doubler", npy(1), env=limited)
        assert (done.code, done.out) == (75, "")
        assert "its limit is 1" in done.event

    def test_interrupted(
        self, inferq: Commands, workers: Workers, npy: Callable[..., Path]
    ) -> None:
        """Ctrl-C ends the wait with 130 and says how to get the reply later."""
        gate = Gate()
        workers.serve(gate)
        waiting = inferq.start("infer", "gate", npy(1), "--id", "r1")
        gate.wait_for_call()
        waiting.send(signal.SIGINT)
        assert waiting.wait() == 130
        assert waiting.output("stderr") == (
            "inferq: interrupted; request 'r1' may still be answered: inferq result gate r1"
        )


class TestLater:
    def test_submit_and_result(
        self, inferq: Commands, workers: Workers, npy: Callable[..., Path]
    ) -> None:
        """Submit prints the id and nothing else; result finds the reply under it."""
        gate = Gate()
        workers.serve(gate)
        submitted = inferq("submit", "gate", npy(4))
        assert (submitted.code, submitted.err) == (0, "")
        (request_id,) = submitted.out.splitlines()
        pending = inferq("result", "gate", request_id)
        assert pending.code == 75
        assert "still pending" in pending.event
        gate.open()
        for arguments in (("--timeout", "20s"), ()):
            (reply,) = inferq("--json", "result", "gate", request_id, *arguments).objects
            assert reply["id"] == request_id
            assert reply["outputs"][0]["data"] == [8]

    def test_submit_for_programs(
        self, inferq: Commands, workers: Workers, npy: Callable[..., Path]
    ) -> None:
        """With --json id and model are one object."""
        workers.publish(Doubler())
        done = inferq("submit", "doubler", npy(4), "--id", "r1", "--json")
        assert done.objects == [{"id": "r1", "model": "doubler"}]

    def test_lanes(
        self,
        inferq: Commands,
        workers: Workers,
        npy: Callable[..., Path],
        client: redis.Redis,
        prefix: str,
    ) -> None:
        """The lane is chosen by --priority."""
        workers.publish(Doubler())
        for lane in ("high", "normal", "low"):
            assert inferq("submit", "doubler", npy(4), "--priority", lane).code == 0
            assert client.lrange(Keys(prefix, "doubler").lane(lane), 0, -1) != [b""]

    def test_result_of_nothing(self, inferq: Commands, workers: Workers) -> None:
        """An id that nobody knows ends with 3."""
        workers.publish(Doubler())
        done = inferq("result", "doubler", "r0")
        assert (done.code, done.out) == (3, "")
        assert "'r0'" in done.event

    def test_expired(self, inferq: Commands, workers: Workers, npy: Callable[..., Path]) -> None:
        """A request whose budget ran out before a worker came ends with 75."""
        workers.publish(Doubler())
        assert inferq("submit", "doubler", npy(1), "--id", "r1", "--timeout", "1ms").code == 0
        workers.serve(Doubler())
        done = inferq("result", "doubler", "r1", "--timeout", "20s")
        assert done.code == 75
        assert "timeout ran out" in done.event

    def test_cancel(self, inferq: Commands, workers: Workers, npy: Callable[..., Path]) -> None:
        """A waiting request can be withdrawn, and its result says so with 1."""
        workers.publish(Doubler())
        inferq("submit", "doubler", npy(1), "--id", "r1")
        assert inferq("cancel", "doubler", "r1").out == "cancelled"
        again = inferq("cancel", "doubler", "r1", "--json")
        assert again.objects == [{"id": "r1", "model": "doubler", "cancelled": True}]
        done = inferq("result", "doubler", "r1")
        assert done.code == 1
        assert "withdrawn" in done.event

    def test_cancel_too_late(
        self, inferq: Commands, workers: Workers, npy: Callable[..., Path]
    ) -> None:
        """A request that is answered cannot be withdrawn: 1; one nobody knows: 3."""
        workers.serve(Doubler())
        inferq("infer", "doubler", npy(1), "--id", "r1")
        done = inferq("cancel", "doubler", "r1")
        assert done.code == 1
        assert "answered already" in done.event
        assert inferq("cancel", "doubler", "r0").code == 3
