"""A worker process under a parent: what it is given, what it tells, and how it ends.

The parent writes one JSON line to the child's standard input and then holds the pipe open; its
end means that the parent is gone. The child tells over a pipe of its own: its model's name, each
worker id before it claims under it, and why it could not start.
"""

import contextlib
import json
import logging
import math
import os
import signal
import threading
from typing import Any, NamedTuple

from inferq.contract.errors import InferqError, InvalidRequest, ModelUnfit
from inferq_worker.model import import_model
from inferq_worker.progress import Board, Phase
from inferq_worker.settings import WorkerSettings
from inferq_worker.worker import Worker

log = logging.getLogger(__name__)

_STDIN = 0


class Assignment(NamedTuple):
    """What a child is to do.

    Attributes:
        target: ``MODULE:OBJECT``.
        model: the name to serve it under, or ``None`` for its own.
        settings: keyword arguments of :class:`WorkerSettings`.
        tell_fd, board_fd: inherited descriptors of the telling pipe and the progress board.
        burst, max_requests, max_idle_s: when to end without being told; see ``Worker.run``.
    """

    target: str
    model: str | None
    settings: dict[str, Any]
    tell_fd: int = -1
    board_fd: int = -1
    burst: bool = False
    max_requests: float | None = None
    max_idle_s: float | None = None

    def to_line(self) -> bytes:
        """Write it as one line."""
        return json.dumps(self._asdict()).encode() + b"\n"

    @staticmethod
    def from_line(line: bytes) -> "Assignment":
        """Read such a line."""
        return Assignment(**json.loads(line))


class _Telling:
    """The child's side of the board and the telling pipe."""

    def __init__(self, assignment: Assignment) -> None:
        self._board = Board(assignment.board_fd)
        self._pipe = assignment.tell_fd
        self.enter = self._board.enter
        self.completed = self._board.completed

    def seated(self, worker: str) -> None:
        self.tell(seat=worker)

    def tell(self, **words: object) -> None:
        # One write below PIPE_BUF is atomic, and the line stays readable after a kill.
        with contextlib.suppress(BrokenPipeError):
            os.write(self._pipe, json.dumps(words).encode() + b"\n")


def run(assignment: Assignment) -> int:
    """Serve until told to stop; return the process's exit code.

    ``SIGTERM`` finishes what runs.
    """
    telling = _Telling(assignment)
    telling.enter(Phase.LOADING)
    try:
        settings = WorkerSettings(**assignment.settings)
        worker = _worker(assignment, settings, telling)
        signal.signal(signal.SIGTERM, lambda *_: worker.stop())
        _end_with_parent(worker)
        telling.tell(model=worker.name)
        answered = worker.run(
            burst=assignment.burst,
            max_requests=_or_never(assignment.max_requests),
            max_idle_s=_or_never(assignment.max_idle_s),
        )
    except InferqError as error:
        telling.tell(error=type(error).__name__, sentence=str(error))
        return 1
    telling.tell(answered=answered)
    return 0


def _worker(assignment: Assignment, settings: WorkerSettings, telling: _Telling) -> Worker:
    model = import_model(assignment.target)
    try:
        return Worker(model, settings, name=assignment.model, watcher=telling)
    except InvalidRequest as error:
        # A model of that name cannot be served, whoever asks.
        raise ModelUnfit(str(error)) from None


def _or_never(limit: float | None) -> float:
    """JSON has no infinity."""
    return math.inf if limit is None else limit


def _end_with_parent(worker: Worker) -> None:
    """Stop when standard input ends, and end for good if stopping takes too long."""

    def wait() -> None:
        # Not sys.stdin: its lock, held here for ever, would be in the way of an orderly exit.
        while os.read(_STDIN, 1):
            pass
        log.warning("the parent process is gone; stopping")
        worker.stop()
        # Nobody is left who would put an end to a model that hangs.
        killer = threading.Timer(worker.settings.drain_timeout_s, os._exit, (75,))
        killer.daemon = True
        killer.start()

    threading.Thread(target=wait, name="inferq-lifeline", daemon=True).start()
