"""The workers of a row as real processes: a supervising parent and its children, or one alone."""

import contextlib
import os
import random
import signal
import sys
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from faults import lone_worker
from support.bare import Bare
from support.processes import Program, Programs
from support.waiting import until

_FOLDER = Path(__file__).parents[2]
_PATIENCE_S = 30.0


class Group:
    """One supervised worker: a parent and its children.

    Args:
        bare: where its children are listed.
        program: the parent, or a worker without one.
    """

    def __init__(self, bare: Bare, program: Program) -> None:
        self._bare = bare
        self._program = program

    @staticmethod
    def start(
        programs: Programs, bare: Bare, model: str, processes: int, environment: Mapping[str, str]
    ) -> "Group":
        """Start a parent with children, and return when all have joined; 0: one alone."""
        target = f"faults.models:{model}"
        command: list[str | Path]
        if processes:
            command = [
                Path(sys.executable).with_name("inferq"), "worker", target, "-n", str(processes),
            ]  # fmt: skip
        else:
            command = [sys.executable, lone_worker.__file__, target]
        program = programs.start(*command, env=environment, cwd=_FOLDER)
        group = Group(bare, program)
        try:
            until(lambda: len(group.pids()) >= max(1, processes), _PATIENCE_S)
        except AssertionError:
            raise AssertionError(f"the workers did not join:\n{group.output()}") from None
        return group

    @property
    def deaths(self) -> int:
        """Children that ended before they were told to."""
        return self._program.output("stderr").count("starting another in")

    def output(self) -> str:
        """Return what parent and children have logged."""
        return self._program.output("stderr")

    def members(self) -> list[str]:
        """Return the ids of its workers that are on record now."""
        return [worker for worker in self._bare.workers() if self._has(pid_of(worker))]

    def pids(self) -> list[int]:
        """Return the processes of its workers that are on record now."""
        return [pid_of(worker) for worker in self.members()]

    def holders(self) -> list[str]:
        """Return the ids of its workers that hold requests now."""
        names = _claims(self._bare)
        return [
            worker
            for worker in self.members()
            if any(f":claimed:{worker}:" in each and self._bare.client.llen(each) for each in names)
        ]

    def kill_child(self, chance: random.Random) -> int | None:
        """Kill one child as the system would; return its process, ``None`` if none is there."""
        pids = self.pids()
        if not pids:
            return None
        pid = chance.choice(pids)
        os.kill(pid, signal.SIGKILL)
        return pid

    def freeze(self) -> None:
        """Stop all its processes, as a machine that sleeps."""
        self._signal_all(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let them go on."""
        self._signal_all(signal.SIGCONT)

    def kill(self) -> None:
        """Kill parent and children at once, as a machine that is lost."""
        # Frozen first, or the parent would see its children die before it does.
        self.freeze()
        self._signal_all(signal.SIGKILL)
        self._program.wait(_PATIENCE_S)

    def terminate(self) -> None:
        """Ask it to end, without waiting."""
        self._program.send(signal.SIGTERM)

    def stop(self) -> tuple[int, float]:
        """Ask it to end and wait; return the exit code and how many seconds that took."""
        since_s = time.monotonic()
        self.terminate()
        code = self._program.wait(_PATIENCE_S)
        return code, time.monotonic() - since_s

    def _has(self, pid: int) -> bool:
        return pid == self._program.pid or pid in _children_of(self._program.pid)

    def _signal_all(self, number: signal.Signals) -> None:
        # The parent first: it starts children.
        for pid in (self._program.pid, *_children_of(self._program.pid)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


def _children_of(pid: int) -> list[int]:
    try:
        return [int(text) for text in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def is_free(bare: Bare, pids: Collection[int]) -> bool:
    """Tell whether nothing is left on record of the workers of these processes."""
    claiming = [name.split(":claimed:")[1].rpartition(":")[0] for name in _claims(bare)]
    return not any(pid_of(worker) in pids for worker in (*bare.workers(), *claiming))


def _claims(bare: Bare) -> list[str]:
    names: Any = bare.client.hkeys(bare.keys.claims)
    return [name.decode() for name in names]


def pid_of(worker: str) -> int:
    """Return the process in a worker's id."""
    return int(worker.rsplit("-", 2)[1])
