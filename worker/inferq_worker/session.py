"""A worker's conversation with Redis: patient, and suspicious after every break.

What a worker sends may be repeated, so trouble that passes is waited out. After a break the
server behind the address may be another one, whose memory of this worker cannot be trusted; that
is told to the loop as :class:`Displaced`.
"""

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from inferq.clock import SAMPLES, ClockSample, ServerClock
from inferq.contract.errors import InferqError, NoReply, QueueFull, ServerUnfit, Unavailable
from inferq.redis_link import Command, Link, command, pauses
from inferq.server_checks import parse_info
from inferq_worker.progress import Phase, Watcher

log = logging.getLogger(__name__)


class Displaced(Exception):
    """The seat is gone, or the server is another: drop what is in hand and take a new seat."""


class GaveUp(Exception):
    """Told to stop, and Redis did not answer within the time to drain."""


class Session:
    """One worker's link, with the patience it needs. For one thread.

    Args:
        link: a link of its own, whose socket timeout is longer than any block.
        stop: set when the worker is told to stop.
        drain_timeout_s: how long it goes on trying after that.
        watcher: is told of each try, since a worker that waits for Redis is not stuck.
    """

    def __init__(
        self, link: Link, stop: threading.Event, drain_timeout_s: float, watcher: Watcher
    ) -> None:
        self.link = link
        self._stop = stop
        self._drain_timeout_s = drain_timeout_s
        self._watcher = watcher
        self._clock = ServerClock()
        self._run_id: str | None = None
        self._server_uptime_s = 0.0
        self._quiet_since_s = math.inf
        self._is_troubled = False

    @property
    def undisturbed_s(self) -> float:
        """Seconds for which the server has answered without a break."""
        return time.monotonic() - self._quiet_since_s

    @property
    def server_uptime_s(self) -> float:
        """Seconds for which the server had been up when it was first met, or met again."""
        return self._server_uptime_s

    def send(self, *flight: Command) -> list[Any]:
        """Send a flight until it is answered without error, however long that takes.

        Raises:
            Displaced: a server answered, but another one.
            GaveUp: the worker is to stop, and the time to drain is over.
            ServerUnfit: the server refused what waiting will not change.
        """
        return self._persist(flight, (Unavailable, QueueFull, ServerUnfit))

    def ask(self, *flight: Command) -> list[Any]:
        """Send a flight until the server works; what it refuses stands in its place.

        For commands that a full memory, or a key that a client made something else, may refuse
        without anything being wrong with this worker.

        Raises:
            Displaced, GaveUp: see :meth:`send`.
        """
        return self._persist(flight, (Unavailable,))

    def _persist(
        self, flight: Sequence[Command], trouble: tuple[type[InferqError], ...]
    ) -> list[Any]:
        stopped_at_s = math.inf
        for pause_s in pauses():
            try:
                return self._attempt(flight, trouble)
            except (Unavailable, QueueFull) as error:
                self.disturbed(error)
                if self._stop.is_set():
                    stopped_at_s = min(stopped_at_s, time.monotonic())
                if time.monotonic() - stopped_at_s >= self._drain_timeout_s:
                    raise GaveUp from error
            self._watcher.enter(Phase.TURNING)
            # Not the stop event: a worker that is to stop still has a batch to deliver.
            time.sleep(pause_s)
        raise AssertionError("pauses() never ends")

    def wait(self, flight: Sequence[Command], abandon: Callable[[], bool]) -> list[Any] | None:
        """Send a blocking flight once; ``None`` if it broke or ``abandon`` became true.

        Error replies stand in their places.
        """
        try:
            return self.link.once(flight, abandon=abandon)
        except NoReply:
            return None
        except Unavailable as error:
            self.disturbed(error)
            return None

    def disturbed(self, error: InferqError) -> None:
        """Note trouble: it is logged once until all is well, and all estimates start anew."""
        if not self._is_troubled:
            log.warning("%s; trying again", error)
        self._is_troubled = True
        self._quiet_since_s = math.inf
        self._clock = ServerClock()

    def now_ms(self) -> int:
        """Return Redis time in ms."""
        now_s = time.monotonic()
        if self._clock.is_stale(now_s):
            samples = []
            for _ in range(SAMPLES):
                sent_s = time.monotonic()
                (answer,) = self.send(command("TIME"))
                samples.append(ClockSample.of(sent_s, time.monotonic(), answer))
            self._clock.adjust(samples)
        return self._clock.now_ms(time.monotonic())

    def _attempt(
        self, flight: Sequence[Command], trouble: tuple[type[InferqError], ...]
    ) -> list[Any]:
        if self._quiet_since_s == math.inf:
            self._meet()
        answers = self.link.once(flight)
        for answer in answers:
            if isinstance(answer, trouble):
                raise answer
        self._is_troubled = False
        return answers

    def _meet(self) -> None:
        """Get to know the server behind a new connection."""
        (text,) = self.link.run(command("INFO", "server"))
        info = parse_info(text)
        before, self._run_id = self._run_id, info["run_id"]
        self._server_uptime_s = float(info["uptime_in_seconds"])
        self._quiet_since_s = time.monotonic()
        if before not in {None, self._run_id}:
            raise Displaced
