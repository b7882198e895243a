"""What a worker's loop is doing and since when, for whoever watches it.

A supervised child writes it into 24 bytes of memory that its parent can read at any time, also
while the child's model holds the interpreter or the child is dead. The clock is the system's
monotonic one, which processes of one machine share.
"""

import mmap
import os
import time
from enum import IntEnum
from struct import Struct
from typing import NamedTuple, Protocol

_RECORD = Struct("<qqq")


class Phase(IntEnum):
    """What the loop is doing."""

    LOADING = 0
    TURNING = 1
    """Talking to Redis, or between two such talks."""
    WAITING = 2
    """Blocked until a request arrives."""
    RUNNING = 3
    """In the model."""


class Progress(NamedTuple):
    """One look: the phase, when it began (monotonic ns), and batches completed so far."""

    phase: Phase
    since_ns: int
    batches: int

    def age_s(self, now_ns: int) -> float:
        """Seconds since the phase began."""
        return (now_ns - self.since_ns) / 1e9


class Watcher(Protocol):
    """Whom a loop tells what it does."""

    def enter(self, phase: Phase) -> None:
        """Begin a phase, or begin it anew."""

    def completed(self) -> None:
        """Count a completed batch."""

    def seated(self, worker: str) -> None:
        """Learn the loop's new worker id, before anything is claimed under it."""


class Unwatched:
    """The watcher of a worker without a parent: nobody."""

    def enter(self, phase: Phase) -> None:
        """Nothing to do."""

    def completed(self) -> None:
        """Nothing to do."""

    def seated(self, worker: str) -> None:
        """Nothing to do."""


class Board:
    """The shared memory between a child and its parent. One writes, the other reads.

    A read may meet a half-written record: act on what two looks agree on.

    Args:
        descriptor: an open file of at least 24 bytes; stays the caller's.
    """

    SIZE = _RECORD.size

    def __init__(self, descriptor: int) -> None:
        self._memory = mmap.mmap(descriptor, self.SIZE)
        self._phase = Phase.LOADING
        self._since_ns = 0
        self._batches = 0

    @staticmethod
    def create() -> int:
        """Make an anonymous file for a board; return its descriptor, inheritable on request."""
        descriptor = os.memfd_create("inferq-progress")
        os.ftruncate(descriptor, Board.SIZE)
        return descriptor

    def enter(self, phase: Phase) -> None:
        """Write that a phase begins now."""
        self._phase = phase
        self._since_ns = time.monotonic_ns()
        self._write()

    def completed(self) -> None:
        """Write that one more batch is completed."""
        self._batches += 1
        self._write()

    def look(self) -> Progress:
        """Read what was written last."""
        phase, since_ns, batches = _RECORD.unpack_from(self._memory)
        return Progress(Phase(phase), since_ns, batches)

    def close(self) -> None:
        """Unmap the memory."""
        self._memory.close()

    def _write(self) -> None:
        _RECORD.pack_into(self._memory, 0, self._phase, self._since_ns, self._batches)


class Limits(NamedTuple):
    """How long a healthy loop stays in a phase, in seconds; infinite where nothing bounds it."""

    turning_s: float
    waiting_s: float
    running_s: float

    def overrun(self, progress: Progress, now_ns: int) -> str | None:
        """Return why this loop counts as stuck, in words, or ``None`` if it turns."""
        age_s = progress.age_s(now_ns)
        if progress.phase is Phase.RUNNING and age_s > self.running_s:
            return f"its batch runs for more than batch_timeout, {self.running_s:g} s"
        if progress.phase is Phase.WAITING and age_s > self.waiting_s:
            return f"it waits for requests for more than {self.waiting_s:g} s without a look"
        if progress.phase is Phase.TURNING and age_s > self.turning_s:
            return f"its loop has not turned for {self.turning_s:g} s"
        return None
