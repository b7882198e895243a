"""``inferq worker``: what it serves, what it says, and how it ends."""

import json
import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import redis

from inferq import Producer
from inferq.contract.keys import Keys
from inferq.settings import ProducerSettings
from support.commands import Commands
from support.processes import Program

MODULE = '''
import os
import time

import numpy as np

from inferq_worker import Model, TensorSpec, model

inputs = [TensorSpec("x", "INT64", [])]
outputs = [TensorSpec("y", "INT64", [])]


class Doubler(Model):
    """Doubles numbers."""

    inputs = inputs
    outputs = outputs

    def predict(self, x):
        return x * 2


@model(inputs=inputs, outputs=outputs)
def tripler(x):
    return x * 3


instance = Doubler()
instance.name = "twice"


class Raises(Doubler):
    def load(self):
        raise OSError("no weights\\nat all")


class Named(Doubler):
    name = "not allowed"


class Without(Model):
    pass


class Says(Doubler):
    """Says that it was called, and takes its time."""

    def predict(self, x):
        print("called", flush=True)
        time.sleep(0.5)
        return x * 2


class Hangs(Doubler):
    def predict(self, x):
        print("called", flush=True)
        time.sleep(60)


class Fails(Doubler):
    def predict(self, x):
        raise ValueError("first line\\nsecond line")


number = 3
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a working directory with a user's module in it."""
    (tmp_path / "mine.py").write_text(MODULE)
    (tmp_path / "broken.py").write_text("import nothing_of_that_name\n")
    (tmp_path / "noisy.py").write_text("raise SystemExit('bye')\n")
    return tmp_path


@pytest.fixture
def serve(inferq: Commands, folder: Path) -> Callable[..., Program]:
    """Start a worker of the user's module, and return when it has joined."""

    def start(target: str, *arguments: str) -> Program:
        program = inferq.start("worker", f"mine:{target}", *arguments, cwd=folder)
        program.wait_for("joined model")
        return program

    return start


@pytest.fixture
def ask(redis_url: str, prefix: str) -> Callable[[str, int], int]:
    """Ask a model for one number."""

    def infer(model: str, number: int) -> int:
        settings = ProducerSettings(prefix=prefix)
        with Producer(redis_url, settings=settings) as producer:
            return int(producer.infer(model, number, timeout=20.0)["y"])

    return infer


class TestServes:
    @pytest.mark.parametrize(
        ("arguments", "model", "answer"),
        [
            (["Doubler"], "doubler", 14),
            (["tripler"], "tripler", 21),
            (["instance"], "twice", 14),
            (["Doubler", "--model", "other"], "other", 14),
        ],
    )
    def test_a_target(
        self,
        serve: Callable[..., Program],
        ask: Callable[[str, int], int],
        arguments: list[str],
        model: str,
        answer: int,
    ) -> None:
        """A class, an instance or a function of the working directory is served under its name."""
        serve(*arguments)
        assert ask(model, 7) == answer

    def test_says_what_it_serves(self, serve: Callable[..., Program], redis_url: str) -> None:
        """Its first lines name model, batch size, server and worker; the last what it did."""
        worker = serve("Doubler", "--max-batch-size", "7", "--log-format", "json")
        worker.send(signal.SIGTERM)
        assert worker.wait() == 0
        assert worker.output("stdout") == ""
        events = [json.loads(line) for line in worker.output("stderr").splitlines()]
        assert all({"time", "level", "event", "logger"} <= event.keys() for event in events)
        told = [event["event"] for event in events]
        assert f"serving doubler in batches of up to 7 from {redis_url}" in told
        (joined,) = (event for event in events if "joined model" in event["event"])
        assert joined["model"] == "doubler"
        assert joined["worker"] in joined["event"]
        assert told[-1] == "stopped after 0 requests"

    def test_console_form(self, serve: Callable[..., Program]) -> None:
        """For people a line is time, level and event."""
        worker = serve("Doubler", "--log-format", "console")
        worker.wait_for(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z info    worker \S+ joined model")

    def test_a_raising_model_is_one_line(
        self, serve: Callable[..., Program], inferq: Commands, folder: Path
    ) -> None:
        """What a model raises is one line in the log that names the place."""
        worker = serve("Fails", "--log-format", "console")
        np.save(folder / "x.npy", np.int64(1))
        assert inferq("infer", "fails", folder / "x.npy").code == 1
        line = worker.wait_for(r"error .*first line.*")[0]
        assert "mine.py:" in line
        assert "Traceback" not in worker.output("stderr")


class TestEnds:
    def test_burst(self, inferq: Commands, folder: Path) -> None:
        """With --burst it answers what waits, and ends with 0."""
        assert inferq("worker", "mine:Doubler", "--burst", cwd=folder).code == 0
        np.save(folder / "x.npy", np.arange(3))
        for name in ("a", "b"):
            inferq("submit", "doubler", folder / "x.npy", "--id", name)
        done = inferq("worker", "mine:Doubler", "-b", cwd=folder)
        assert done.code == 0
        assert "stopped after 2 requests" in done.err
        (reply,) = inferq("--json", "result", "doubler", "b").objects
        assert reply["outputs"][0]["data"] == [0, 2, 4]
        assert reply["parameters"]["batch_size"] == 2

    def test_max_requests(
        self, serve: Callable[..., Program], ask: Callable[[str, int], int]
    ) -> None:
        """After so many requests it ends with 0."""
        worker = serve("Doubler", "--max-requests", "2")
        assert [ask("doubler", 1), ask("doubler", 2)] == [2, 4]
        assert worker.wait() == 0
        assert "stopped after 2 requests" in worker.output("stderr")

    def test_max_idle(self, serve: Callable[..., Program], ask: Callable[[str, int], int]) -> None:
        """Once no request has come for so long it ends with 0, long before its block does."""
        worker = serve("Doubler", "--max-idle", "500ms", "--lease", "10min")
        assert ask("doubler", 1) == 2
        assert worker.wait() == 0
        assert "stopped after 1 requests" in worker.output("stderr")

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    def test_signal(
        self,
        serve: Callable[..., Program],
        inferq: Commands,
        folder: Path,
        number: signal.Signals,
    ) -> None:
        """A signal lets the batch that runs be answered; then it ends with 0."""
        worker = serve("Says")
        np.save(folder / "x.npy", np.int64(21))
        inferq("submit", "says", folder / "x.npy", "--id", "r1")
        worker.wait_for("called", stream="stdout")
        worker.send(number)
        assert worker.wait(20.0) == 0
        assert inferq("--json", "result", "says", "r1").objects[0]["outputs"][0]["data"] == [42]
        assert "stopped after 1 requests" in worker.output("stderr")

    def test_second_signal(
        self, serve: Callable[..., Program], inferq: Commands, folder: Path
    ) -> None:
        """A second signal ends it at once, whatever runs, with 75."""
        worker = serve("Hangs")
        np.save(folder / "x.npy", np.int64(1))
        inferq("submit", "hangs", folder / "x.npy")
        worker.wait_for("called", stream="stdout")
        worker.send(signal.SIGTERM)
        worker.wait_for("one more signal ends it at once")
        worker.send(signal.SIGTERM)
        assert worker.wait(20.0) == 75


class TestDoesNotStart:
    @pytest.mark.parametrize(
        ("target", "words"),
        [
            ("nothing_here:Model", "nothing_here"),
            ("mine:Missing", "Missing"),
            ("mine", "MODULE:OBJECT"),
            ("broken:Model", "nothing_of_that_name"),
            ("noisy:Model", "SystemExit: bye"),
            ("mine:number", "is a int"),
            ("mine:Without", "lists no tensor"),
            ("mine:Named", "'not allowed'"),
            ("mine:Raises", "does not load: OSError: no weights"),
        ],
    )
    def test_is_78(self, inferq: Commands, folder: Path, target: str, words: str) -> None:
        """A target that does not import or load is one line that says why, and code 78."""
        done = inferq("worker", target, "--log-level", "warning", cwd=folder)
        assert (done.code, done.out) == (78, "")
        assert words in done.event

    def test_name(self, inferq: Commands, folder: Path) -> None:
        """A name that no model may have is refused."""
        done = inferq("worker", "mine:Doubler", "--model", "a b", "-q", cwd=folder)
        assert done.code == 78
        assert "'a b'" in done.event

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (["--lease", "1ms"], "lease_s"),
            (["--max-batch-size", "0"], "max_batch_size"),
        ],
    )
    def test_setting(
        self, inferq: Commands, folder: Path, arguments: list[str], words: str
    ) -> None:
        """A setting out of its range is named, and the code is 78."""
        done = inferq("worker", "mine:Doubler", "-q", *arguments, cwd=folder)
        assert (done.code, done.out) == (78, "")
        assert words in done.event

    def test_wrong_type_of_key(
        self, inferq: Commands, folder: Path, client: redis.Redis, prefix: str
    ) -> None:
        """A queue key that belongs to another program is named, and the code is 78."""
        client.set(Keys(prefix, "doubler").normal, "somebody else's")
        done = inferq("worker", "mine:Doubler", "-q", cwd=folder)
        assert done.code == 78
        assert f"key '{prefix}:doubler'" in done.event
        assert "is a string, not a list" in done.event

    def test_redis_away(self, inferq: Commands, folder: Path) -> None:
        """Without a server it gives up after a while with 69, and shows no password."""
        url = "redis://me:hunter2@127.0.0.1:1/0"
        done = inferq("worker", "mine:Doubler", "-q", "--url", url, cwd=folder)
        assert done.code == 69
        assert "redis://me:***@127.0.0.1:1/0" in done.err
        assert "hunter2" not in done.err
