"""A link whose server is a script: each flight gets the next outcome that was written down."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

from inferq.contract.errors import InferqError
from inferq.redis_link import Command, command

Outcome = list[Any] | InferqError


class ScriptedLink:
    """Stands in for :class:`inferq.redis_link.Link`, with its errors and its manners.

    A flight gets the next outcome: answers, in which error replies stand in their places, or an
    error that is raised. ``INFO`` is not among them: it is answered from ``run_id`` and
    ``uptime_s``, or raises ``absent``.

    Attributes:
        flights: what was sent, without ``INFO``.
        meetings: how often ``INFO`` was asked for.
    """

    def __init__(self, *outcomes: Outcome) -> None:
        self.outcomes = list(outcomes)
        self.run_id = "one"
        self.uptime_s = 100
        self.absent: list[InferqError] = []
        self.flights: list[list[tuple[Any, ...]]] = []
        self.meetings = 0

    def once(
        self,
        commands: Sequence[Command],
        *,
        wait_s: float = float("inf"),
        abandon: Callable[[], bool] | None = None,
    ) -> list[Any]:
        del wait_s, abandon
        self.flights.append([sent.words for sent in commands])
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, InferqError):
            raise outcome
        assert len(outcome) == len(commands)
        return outcome

    def run(self, *commands: Command, patience_s: float = 0.0) -> list[Any]:
        del patience_s
        if list(commands) == [command("INFO", "server")]:
            self.meetings += 1
            if self.absent:
                raise self.absent.pop(0)
            info = f"# Server\r\nrun_id:{self.run_id}\r\nuptime_in_seconds:{self.uptime_s}\r\n"
            return [info.encode()]
        answers = self.once(commands)
        for answer in answers:
            if isinstance(answer, InferqError):
                raise answer
        return answers

    def close(self) -> None:
        """Nothing is open."""


def is_set(*, stopped: bool) -> threading.Event:
    """Return a stop event, set or not."""
    event = threading.Event()
    if stopped:
        event.set()
    return event
