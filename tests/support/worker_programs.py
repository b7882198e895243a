"""Workers as programs of their own, to be stopped, killed and frozen."""

from pathlib import Path
from typing import Any

import pytest
import redis

from inferq.contract.keys import Keys
from support import worker_main
from support.bare import Bare
from support.processes import Program, Programs

_MAIN = Path(worker_main.__file__)


class WorkerPrograms:
    """Starts workers of ``doubler`` on one server, and opens their gates.

    Attributes:
        bare: a client of the model's queue.
    """

    def __init__(self, programs: Programs, url: str, prefix: str, client: redis.Redis) -> None:
        self.bare = Bare(client, Keys(prefix, worker_main.Doubler.name))
        self._programs = programs
        self._settings = {"INFERQ_REDIS_URL": url, "INFERQ_PREFIX": prefix}

    def start(self, model: str = "Doubler", *arguments: str, **settings: Any) -> Program:
        """Start a worker; ``settings`` are its own, by name."""
        given = {f"INFERQ_{name.upper()}": str(value) for name, value in settings.items()}
        environment = {**self._settings, **given}
        return self._programs.python(_MAIN, model, *arguments, env=environment)

    def serve(self, model: str = "Doubler", **settings: Any) -> Program:
        """Start a worker and return when it has joined."""
        started = self.start(model, **settings)
        started.wait_for("joined model")
        return started

    def wait_for_call(self) -> list[int]:
        """Return the values of the next call, in order, once it has begun."""
        prefix = self.bare.keys.prefix
        entered: Any = self.bare.client.blpop([f"{prefix}:entered"], timeout=30)
        assert entered, "the model was not called"
        return [int(value) for value in entered[1].split(b",")]

    def open_gate(self, calls: int = 1) -> None:
        """Let so many calls pass."""
        self.bare.client.rpush(f"{self.bare.keys.prefix}:gate", *["pass"] * calls)


@pytest.fixture
def worker_programs(
    programs: Programs, redis_url: str, prefix: str, client: redis.Redis
) -> WorkerPrograms:
    """Start workers on the run's server under the test's prefix; they end with the test."""
    return WorkerPrograms(programs, redis_url, prefix, client)
