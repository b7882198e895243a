"""``inferq info`` and ``models``: what they show to people and to programs."""

import json
import os
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import redis

from support.commands import Commands
from support.waiting import until
from support.workers import Doubler, Gate, Sums, Workers


@pytest.fixture
def npy(tmp_path: Path) -> Callable[[Any], Path]:
    """Write a value as .npy and give its path."""

    def write(value: Any) -> Path:
        path = tmp_path / "input.npy"
        np.save(path, np.asarray(value))
        return path

    return write


class TestInfo:
    def test_for_people(self, inferq: Commands, workers: Workers, npy: Callable[..., Path]) -> None:
        """Queues, counters and workers are shown, to a pipe without colour or cut lines."""
        workers.serve(Doubler())
        inferq("infer", "doubler", npy([1, 2, 3]))
        done = inferq("info")
        assert (done.code, done.err) == (0, "")
        assert "1 succeeded" in done.out
        assert "1, 3.0 rows each" in done.out
        assert re.search(rf"pid {os.getpid()} on \S+  \d", done.out)
        assert "\x1b" not in done.out
        assert "\x1b[" in inferq("info", env={"FORCE_COLOR": "1"}).out
        assert "\x1b[" not in inferq("info", "--no-color", env={"FORCE_COLOR": "1"}).out

    def test_one_bad_key_hides_no_other_model(
        self, inferq: Commands, workers: Workers, client: redis.Redis, prefix: str
    ) -> None:
        """A model whose key is another program's is named, and the others are shown."""
        workers.publish(Doubler())
        workers.publish(Gate())
        client.set(f"{prefix}:gate", "somebody else's")
        done = inferq("info", "--json")
        assert [each["model"] for each in done.objects] == ["doubler"]
        assert f"key '{prefix}:gate'" in done.err

    def test_for_programs(
        self, inferq: Commands, workers: Workers, npy: Callable[..., Path]
    ) -> None:
        """With --json each model is one object that holds what has happened."""
        gate = Gate()
        workers.serve(gate)
        workers.publish(Doubler())
        inferq("submit", "gate", npy(1))
        gate.wait_for_call()
        inferq("submit", "gate", npy(2))
        doubler, busy = inferq("info", "--json").objects
        assert (doubler["model"], busy["model"]) == ("doubler", "gate")
        assert (busy["depth"]["normal"], busy["in_flight"]) == (1, 1)
        (worker,) = busy["workers"]
        assert worker["state"] == "busy"
        assert worker["in_flight"] == 1
        assert worker["pid"] == os.getpid()
        assert 0 < worker["lease_s"] <= 15
        gate.open()
        until(lambda: inferq("info", "gate", "--json").objects[0]["requests"]["succeeded"] == 2)
        (after,) = inferq("info", "gate", "--json").objects
        assert after["batch_size"]["1"] == after["batches"] == after["rows"] == 2
        assert after["total_ms"]["p50"] > 0
        assert after["depth"]["normal"] == after["in_flight"] == 0

    def test_halves(self, inferq: Commands, workers: Workers) -> None:
        """Queues or workers can be left out."""
        workers.publish(Doubler())
        assert "no workers" not in inferq("info", "-Q").out
        assert "lanes" not in inferq("info", "-W").out
        assert list(inferq("info", "-W", "--json").objects[0]) == ["model", "workers"]

    def test_nothing(self, inferq: Commands) -> None:
        """A prefix without models, or a model nobody knows, is not found: 3."""
        for arguments in (("info",), ("info", "nobody"), ("models",)):
            done = inferq(*arguments)
            assert (done.code, done.out) == (3, "")
            assert "no worker has ever published" in done.event

    def test_requests_before_the_first_worker(
        self, inferq: Commands, client: redis.Redis, prefix: str
    ) -> None:
        """A plain push is seen though no worker has ever published the model."""
        client.rpush(f"{prefix}:early", "{}")
        assert inferq("info", "early", "--json").objects[0]["depth"]["normal"] == 1

    def test_again_and_again(self, inferq: Commands, workers: Workers) -> None:
        """With an interval it looks again, line after line, until Ctrl-C: 130."""
        watching = inferq.start("info", "--json", "-i", "50ms")
        until(lambda: watching.output("stdout") == "")
        workers.publish(Doubler())
        until(lambda: len(watching.output("stdout").splitlines()) >= 2)
        watching.send(signal.SIGINT)
        assert watching.wait() == 130
        assert {json.loads(line)["model"] for line in watching.output("stdout").splitlines()} == {
            "doubler"
        }

    def test_whoever_reads_may_go(self, inferq: Commands, workers: Workers) -> None:
        """A closed pipe ends it without a word."""
        workers.publish(Doubler())
        script = 'exec 3>&1; { "$0" -m inferq info -i 20ms 2>&3; echo "code $?" >&3; } | head -n 1'
        done = inferq._programs.start("/bin/sh", "-c", script, sys.executable, env=inferq.env)
        assert done.wait() == 0
        assert done.output("stdout").splitlines()[-1] == "code 1"


class TestModels:
    def test_lists(self, inferq: Commands, workers: Workers) -> None:
        """Every published model is a line that says what it takes and gives."""
        workers.publish(Sums())
        workers.publish(Doubler())
        assert inferq("models").out.splitlines() == [
            "doubler  x INT64 [] -> y INT64 []  (batches up to 32)",
            "sums  a INT64 [3], b INT64 [3] -> sum INT64 [3], size INT32 []  (batches up to 32)",
        ]
        assert [each["model"] for each in inferq("models", "--json").objects] == ["doubler", "sums"]
        assert inferq("models", "--json").objects[0]["limits"]["max_batch_size"] == 32
