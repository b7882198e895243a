"""The parent of a model's worker processes: starts, watches, kills, buries, starts again.

Children are fresh interpreters, never forks: a forked CUDA context or lock is broken. The parent
imports no model and holds no requests, so nothing a model does can stop it from watching.

::

    absent --start--> running --died--> buried --back-off--> absent
                         |
                         '--overran--> lease dropped --kill--> died
"""

import contextlib
import json
import logging
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from inferq.contract import errors
from inferq.contract.errors import InferqError, SetupError, Unavailable
from inferq.contract.keys import Keys
from inferq.endpoint import open_endpoint
from inferq.redis_link import Link
from inferq_worker.backoff import Backoff
from inferq_worker.child import Assignment
from inferq_worker.fleet import Fleet
from inferq_worker.progress import Board, Limits
from inferq_worker.pulse import PulseWriter
from inferq_worker.settings import WorkerSettings

log = logging.getLogger(__name__)

_TICK_S = 0.2
# Beyond a block or a socket timeout: scheduling, and a slow machine.
_MARGIN_S = 10.0
_LAST_WORDS_S = 2.0

DRAINED = 0
CUT_SHORT = 75


@dataclass
class _Child:
    """One running child; owned by the supervisor's loop."""

    process: subprocess.Popen[bytes]
    board: Board
    tell_fd: int
    seats: list[str] = field(default_factory=list)
    stuck_since_ns: int | None = None
    killed: bool = False
    unread: bytes = b""

    def close(self) -> None:
        """Release what the parent held for it."""
        os.close(self.tell_fd)
        self.board.close()
        if self.process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.close()


@dataclass
class _Place:
    """One of the places for a child."""

    number: int
    backoff: Backoff = field(default_factory=Backoff)
    child: _Child | None = None
    start_at_s: float = 0.0
    done: bool = False


class Supervisor:
    """Runs a model in several processes until told to stop.

    Args:
        command: what starts a child; it reads an :class:`Assignment` from standard input.
        assignment: what each child is to do; descriptors are filled in for each.
        settings: the same as the children's.
        processes: how many children.
        environments: variables to add for each child, by its place (devices, threads).

    Attributes:
        answered: requests answered by children that ended in order.
    """

    def __init__(
        self,
        command: Sequence[str],
        assignment: Assignment,
        settings: WorkerSettings,
        *,
        processes: int = 1,
        environments: Sequence[Mapping[str, str]] = (),
    ) -> None:
        self._command = list(command)
        self._assignment = assignment
        self._settings = settings
        self._environments = environments
        self._places = [_Place(number) for number in range(processes)]
        self._selector = selectors.DefaultSelector()
        self._signals = 0
        self._fleet: Fleet | None = None
        self._drain_until_s = float("inf")
        self._failure: InferqError | None = None
        self._was_cut = False
        self.answered = 0
        self._limits = Limits(
            turning_s=settings.block_s + _MARGIN_S,
            waiting_s=settings.block_s + _MARGIN_S,
            running_s=settings.batch_timeout_s or float("inf"),
        )

    def run(self) -> int:
        """Start the children and watch them until they end or are told to; return an exit code.

        The first ``SIGTERM`` or ``SIGINT`` drains: what runs is finished within
        ``drain_timeout``; what still runs then, or at a second signal, is killed and its requests
        are set free with one more attempt: exit code 75 instead of 0.

        Raises:
            SetupError: the model, the server or a setting is unfit; no child is started again.
            Unavailable: no child ever reached Redis.
        """
        with contextlib.ExitStack() as resources:
            endpoint = resources.enter_context(open_endpoint(self._settings.redis_url))
            link = Link(endpoint)
            resources.callback(link.close)
            resources.enter_context(self._signals_caught())
            resources.callback(self._end_all)
            pulse = PulseWriter(self._assignment.target, len(self._places))
            resources.callback(pulse.close)
            while not all(place.done for place in self._places):
                self._start_due()
                for key, _ in self._selector.select(_TICK_S):
                    if isinstance(key.data, _Child):
                        self._hear(key.data, link)
                    else:
                        os.read(key.fd, 64)
                self._watch()
                pulse.write(sum(self._turns(child) for child in self._children()))
                self._reap(link)
                self._drain()
            if self._fleet is not None:
                self._fleet.stop(_LAST_WORDS_S)
        if self._failure is not None:
            raise self._failure
        return CUT_SHORT if self._was_cut else DRAINED

    # Children ---------------------------------------------------------------------------------

    def _start_due(self) -> None:
        for place in self._places:
            is_due = not place.done and place.child is None
            if is_due and time.monotonic() >= place.start_at_s:
                place.child = self._start(place)

    def _start(self, place: _Place) -> _Child:
        tell_fd, child_tell_fd = os.pipe()
        board_fd = Board.create()
        environment = dict(os.environ)
        if self._environments:
            environment |= self._environments[place.number]
        process = subprocess.Popen(  # noqa: S603 - the command is our own
            self._command,
            stdin=subprocess.PIPE,
            pass_fds=(child_tell_fd, board_fd),
            env=environment,
            # Ctrl-C goes to a whole process group; how it ends the children is up to the parent.
            process_group=0,
        )
        child = _Child(process, Board(board_fd), tell_fd)
        assignment = self._assignment._replace(tell_fd=child_tell_fd, board_fd=board_fd)
        if process.stdin is not None:
            process.stdin.write(assignment.to_line())
            process.stdin.flush()
        os.close(child_tell_fd)
        os.close(board_fd)
        os.set_blocking(tell_fd, False)
        self._selector.register(tell_fd, selectors.EVENT_READ, child)
        return child

    def _hear(self, child: _Child, link: Link) -> None:
        """Read what a child tells; at the end of its pipe there is nothing more to hear."""
        while True:
            try:
                text = os.read(child.tell_fd, 65_536)
            except BlockingIOError:
                return
            if not text:
                with contextlib.suppress(KeyError):
                    self._selector.unregister(child.tell_fd)
                return
            *lines, child.unread = (child.unread + text).split(b"\n")
            for line in lines:
                self._understand(child, json.loads(line), link)

    def _understand(self, child: _Child, words: Mapping[str, Any], link: Link) -> None:
        if "model" in words and self._fleet is None:
            keys = Keys(self._settings.prefix, words["model"])
            self._fleet = Fleet(keys, link, self._settings)
            self._fleet.start()
        if "seat" in words and self._fleet is not None:
            for old in child.seats:
                self._fleet.drop(old)
            child.seats.append(words["seat"])
            self._fleet.keep(words["seat"])
        self.answered += words.get("answered", 0)
        if "error" in words:
            kind = getattr(errors, words["error"], InferqError)
            self._judge(kind(words["sentence"]))

    def _judge(self, failure: InferqError) -> None:
        """Decide whether a child's failure is everybody's: then starting it again is no use."""
        was_there = any(place.child is not None and place.child.seats for place in self._places)
        if isinstance(failure, SetupError) or (isinstance(failure, Unavailable) and not was_there):
            self._failure = self._failure or failure
            self._begin_to_drain()
        else:
            log.error("%s", failure)

    def _watch(self) -> None:
        """Kill children whose loop does not turn; two looks must agree."""
        now_ns = time.monotonic_ns()
        for child in self._children():
            progress = child.board.look()
            why = self._limits.overrun(progress, now_ns)
            if why is None or child.killed:
                child.stuck_since_ns = None
            elif child.stuck_since_ns == progress.since_ns:
                log.error("killing worker process %d: %s", child.process.pid, why)
                self._kill(child)
            else:
                child.stuck_since_ns = progress.since_ns

    def _turns(self, child: _Child) -> bool:
        return not child.killed and child.stuck_since_ns is None

    def _kill(self, child: _Child) -> None:
        """Kill a child, and free its requests even if it will not die: its id is fenced."""
        child.killed = True
        if self._fleet is not None:
            for seat in child.seats:
                self._fleet.drop(seat)
        child.process.kill()
        self._bury(child)

    def _bury(self, child: _Child) -> None:
        if self._fleet is not None:
            for seat in child.seats:
                self._fleet.bury(seat)

    def _reap(self, link: Link) -> None:
        for place in self._places:
            child = place.child
            if child is None or child.process.poll() is None:
                continue
            self._hear(child, link)
            with contextlib.suppress(KeyError):
                self._selector.unregister(child.tell_fd)
            self._bury(child)
            code = child.process.returncode
            batches = child.board.look().batches
            child.close()
            place.child = None
            if self._is_draining or (code == 0 and self._ends_by_itself):
                place.done = True
                continue
            pause_s = place.backoff.died(after_work=batches > 0)
            place.start_at_s = time.monotonic() + pause_s
            log.error(
                "worker process %d %s; starting another in %g s",
                child.process.pid, _ended(code), pause_s,
            )  # fmt: skip

    def _children(self) -> list[_Child]:
        return [place.child for place in self._places if place.child is not None]

    # Ending -----------------------------------------------------------------------------------

    @property
    def _ends_by_itself(self) -> bool:
        """Whether an orderly end is what was asked for, and not somebody's signal to one child."""
        given = self._assignment
        return given.burst or given.max_requests is not None or given.max_idle_s is not None

    @property
    def _is_draining(self) -> bool:
        return self._drain_until_s < float("inf")

    def _begin_to_drain(self) -> None:
        if self._is_draining:
            return
        self._drain_until_s = time.monotonic() + self._settings.drain_timeout_s
        for place in self._places:
            if place.child is None:
                place.done = True
            else:
                place.child.process.terminate()

    def _drain(self) -> None:
        """Act on the signals so far, and on the end of the time to drain."""
        if self._signals and not self._is_draining:
            log.info(
                "stopping: what runs has %g s to finish; one more signal ends it at once",
                self._settings.drain_timeout_s,
            )
            self._begin_to_drain()
        if self._signals > 1 or time.monotonic() >= self._drain_until_s:
            for child in self._children():
                if not child.killed:
                    log.error("worker process %d is cut short", child.process.pid)
                    self._was_cut = True
                    self._kill(child)

    def _end_all(self) -> None:
        for child in self._children():
            child.process.kill()
            child.process.wait()
            child.close()
        self._selector.close()

    @contextlib.contextmanager
    def _signals_caught(self) -> Iterator[None]:
        """Count signals instead of dying of them, and let each end the wait of the selector."""
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
        self._selector.register(reading, selectors.EVENT_READ, None)

        def count(*_: object) -> None:
            self._signals += 1

        caught = (signal.SIGTERM, signal.SIGINT)
        before: dict[int, Any] = {each: signal.signal(each, count) for each in caught}
        wakeup = signal.set_wakeup_fd(writing)
        try:
            yield
        finally:
            signal.set_wakeup_fd(wakeup)
            for each, handler in before.items():
                signal.signal(each, handler)
            os.close(reading)
            os.close(writing)


def _ended(code: int) -> str:
    if code < 0:
        return f"was ended by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"
