"""``inferq worker`` as a parent with children: what it survives, and how it ends."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from inferq import Crashed, Producer
from inferq.contract.keys import Keys
from inferq.settings import ProducerSettings
from support.perilous import DIE, HANG
from support.processes import Program, Programs
from support.waiting import until

TESTS = Path(__file__).parents[1]


class Fleet:
    """Starts supervised workers of ``perilous``, and asks them."""

    def __init__(self, programs: Programs, url: str, prefix: str, folder: Path) -> None:
        self.keys = Keys(prefix, "perilous")
        self.producer = Producer(url, settings=ProducerSettings(prefix=prefix, poll_s=0.1))
        self._programs = programs
        self._env = {
            "INFERQ_REDIS_URL": url,
            "INFERQ_PREFIX": prefix,
            "PYTHONPATH": str(TESTS),
            # Signs of life of other runs on this machine are none of this test's.
            "XDG_RUNTIME_DIR": str(folder),
            "INFERQ_LEASE_S": "3",
        }

    def start(self, model: str, *flags: str, **settings: object) -> Program:
        extra = {f"INFERQ_{name.upper()}": str(value) for name, value in settings.items()}
        return self._programs.inferq(
            "worker", f"support.perilous:{model}", *flags, env={**self._env, **extra}
        )

    def serve(self, *flags: str, **settings: object) -> Program:
        """Start and return once a first child serves."""
        program = self.start("Perilous", *flags, **settings)
        program.wait_for("joined model")
        return program

    def check(self) -> Program:
        return self._programs.inferq("check", "--worker", "--json", env=self._env)

    def ask(self, value: float) -> float:
        return float(self.producer.infer("perilous", value, timeout=30)["y"])


@pytest.fixture
def fleet(programs: Programs, redis_url: str, prefix: str, tmp_path: Path) -> Iterator[Fleet]:
    tmp_path.chmod(0o700)
    made = Fleet(programs, redis_url, prefix, tmp_path)
    with made.producer:
        yield made


def children_of(program: Program) -> list[int]:
    found = Path(f"/proc/{program.pid}/task/{program.pid}/children").read_text().split()
    return [int(pid) for pid in found]


def test_killed_child_loses_nothing(fleet: Fleet) -> None:
    """Requests under way while children are killed with -9 are all answered, each with its own."""
    program = fleet.serve("--processes", "2", max_attempts=100)
    handles = []
    for start in range(0, 400, 40):
        handles += fleet.producer.submit_many(
            "perilous", [float(n) for n in range(start, start + 40)]
        )
        for pid in children_of(program)[:1]:
            os.kill(pid, signal.SIGKILL)
    values = [float(handle.result(timeout=60)["y"]) for handle in handles]
    assert values == [2.0 * n for n in range(400)]


def test_poison_takes_no_innocent(fleet: Fleet) -> None:
    """A request that ends its process is answered crashed; those beside it get their results."""
    fleet.serve("--processes", "2")
    handles = fleet.producer.submit_many("perilous", [1.0, 2.0, DIE, 3.0])
    assert [float(handles[n].result(timeout=60)["y"]) for n in (0, 1, 3)] == [2, 4, 6]
    with pytest.raises(Crashed, match="4 times"):
        handles[2].result(timeout=60)


def test_overrun_batch_is_killed(fleet: Fleet) -> None:
    """A batch that runs longer than its limit ends its process, and others are answered."""
    program = fleet.serve("--batch-timeout", "500ms", max_attempts=1)
    hanging = fleet.producer.submit("perilous", HANG)
    program.wait_for(r"more than batch_timeout, 0\.5 s")
    assert fleet.ask(4.0) == 8.0
    with pytest.raises(Crashed):
        hanging.result(timeout=60)


def test_drain_in_time(fleet: Fleet) -> None:
    """SIGTERM ends parent and children in order, and nothing of theirs stays registered."""
    program = fleet.serve("--processes", "2")
    assert fleet.ask(1.0) == 2.0
    program.send(signal.SIGTERM)
    assert program.wait(30) == 0
    assert "stopped after 1 requests" in program.output("stderr")


def test_drain_cut_short(fleet: Fleet, client: redis.Redis) -> None:
    """What still runs after the time to drain is killed, runs again elsewhere, and code 75 says so."""
    program = fleet.serve("--drain-timeout", "500ms", max_attempts=2)
    hanging = fleet.producer.submit("perilous", HANG)
    until(lambda: in_flight(fleet, client))
    program.send(signal.SIGTERM)
    assert program.wait(30) == 75
    fleet.serve("--batch-timeout", "500ms", max_attempts=2)
    with pytest.raises(Crashed, match="2 times"):
        hanging.result(timeout=60)


def in_flight(fleet: Fleet, client: redis.Redis) -> bool:
    return bool(client.hlen(fleet.keys.claims)) and not client.llen(fleet.keys.normal)


def test_second_signal_ends_at_once(fleet: Fleet, client: redis.Redis) -> None:
    """A second signal does not wait for the time to drain."""
    program = fleet.serve()
    fleet.producer.submit("perilous", HANG)
    until(lambda: in_flight(fleet, client))
    program.send(signal.SIGTERM)
    program.send(signal.SIGINT)
    assert program.wait(20) == 75


@pytest.mark.parametrize("model", ["Unloadable", "Nowhere"])
def test_unfit_model_is_not_started_again(fleet: Fleet, model: str) -> None:
    """A model that does not import or load ends all processes with one line and code 78."""
    program = fleet.start(model, "--processes", "3", "--quiet")
    assert program.wait(30) == 78
    assert len(program.output("stderr").splitlines()) == 1


def test_child_that_dies_loading_is_started_again(fleet: Fleet) -> None:
    """A process that dies without a word is started again, with a growing pause."""
    program = fleet.start("Doomed")
    program.wait_for("starting another in 0 s")
    program.wait_for(r"starting another in 0\.5 s")
    program.wait_for("starting another in 1 s", timeout_s=20)
    program.send(signal.SIGTERM)
    assert program.wait(20) == 0


def test_children_end_with_their_parent(fleet: Fleet) -> None:
    """Children whose parent was killed finish and leave."""
    program = fleet.serve("--processes", "2")
    until(lambda: len(children_of(program)) == 2)
    children = children_of(program)
    program.send(signal.SIGKILL)
    until(lambda: not any(Path(f"/proc/{pid}/cmdline").exists() for pid in children), 30)
    assert program.output("stderr").count("the parent process is gone") == 2


def test_other_tensors_are_refused(fleet: Fleet) -> None:
    """A worker whose tensors differ from a live one's ends with 78 and names the other."""
    first = fleet.serve()
    living = first.wait_for(r"worker (\S+) joined")[1]
    second = fleet.start("Wider", "--quiet")
    assert second.wait(30) == 78
    assert living.strip('"') in second.output("stderr")
    first.send(signal.SIGTERM)
    assert first.wait(30) == 0
    third = fleet.start("Wider")
    third.wait_for("joined model")


def test_probe(fleet: Fleet) -> None:
    """The probe tells a worker that turns from none at all."""
    nobody = fleet.check()
    assert nobody.wait() == 1
    program = fleet.serve()

    def beats() -> bool:
        probe = fleet.check()
        return probe.wait() == 0 and json.loads(probe.output("stdout"))["alive"]

    until(beats, 20)
    program.send(signal.SIGTERM)
    program.wait(20)
    assert fleet.check().wait() == 1


def test_child_that_is_told_to_stop_is_replaced(fleet: Fleet) -> None:
    """A signal to one child does not shrink the fleet: another takes its place."""
    program = fleet.serve()
    (child,) = children_of(program)
    os.kill(child, signal.SIGTERM)
    until(lambda: children_of(program) not in ([child], []), 20)
    assert fleet.ask(2.0) == 4.0
