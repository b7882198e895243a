"""The sign of life that a parent leaves for probes: a small file, written anew every second.

A probe must not ask Redis: an outage there is no reason to restart a model that took minutes to
load. It asks whether the claim loops turn, which their parent knows.
"""

import contextlib
import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from inferq.embedded import runtime_folder

_EACH_S = 1.0
# A parent that has not written for so long does not turn itself.
_STALE_S = 10.0


@dataclass(frozen=True)
class Pulse:
    """What one parent wrote last.

    Attributes:
        pid: the parent's.
        target: what it serves.
        processes: how many children it is to have.
        turning: children whose loop turns, or whose model is being loaded.
        age_s: how long ago that was.
    """

    pid: int
    target: str
    processes: int
    turning: int
    age_s: float = 0.0

    @property
    def is_beating(self) -> bool:
        """Whether the parent turns, and at least one of its children."""
        return self.turning > 0 and self.age_s < _STALE_S

    def line(self) -> str:
        """Return it in words."""
        state = "alive" if self.is_beating else "stuck"
        return (
            f"{state}  {self.target}: {self.turning} of {self.processes} processes turn, seen "
            f"{self.age_s:.1f} s ago by process {self.pid}"
        )

    def to_json(self) -> dict[str, Any]:
        """Return it as an object that JSON can hold."""
        return {**asdict(self), "beating": self.is_beating}


class PulseWriter:
    """Writes one parent's sign of life; :meth:`close` takes it away."""

    def __init__(self, target: str, processes: int) -> None:
        self._target = target
        self._processes = processes
        self._path = _folder() / f"{os.getpid()}.json"
        self._next_s = 0.0

    def write(self, turning: int) -> None:
        """Write it if a second has passed. A full disk is no reason to stop serving."""
        now_s = time.monotonic()
        if now_s < self._next_s:
            return
        self._next_s = now_s + _EACH_S
        pulse = Pulse(os.getpid(), self._target, self._processes, turning)
        beside = self._path.with_suffix(".new")
        with contextlib.suppress(OSError):
            # One by one: parents=True would make the outer folder readable to everybody.
            for folder in (self._path.parent.parent, self._path.parent):
                folder.mkdir(mode=0o700, exist_ok=True)
            beside.write_text(json.dumps(asdict(pulse)))
            beside.replace(self._path)

    def close(self) -> None:
        """Take it away."""
        with contextlib.suppress(OSError):
            self._path.unlink()


def read_pulses() -> list[Pulse]:
    """Return the signs of life of this user's parents on this machine.

    One whose process is gone was killed, and is no worker any more.
    """
    pulses = []
    for path in sorted(_folder().glob("*.json")):
        with contextlib.suppress(OSError, ValueError, TypeError):
            age_s = max(0.0, time.time() - path.stat().st_mtime)
            pulse = Pulse(**{**json.loads(path.read_text()), "age_s": age_s})
            if _is_running(pulse.pid):
                pulses.append(pulse)
    return pulses


def _folder() -> Path:
    return runtime_folder() / "workers"


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
