"""The loop: claim, run, complete.

Dumb on purpose: what to claim, how to run and what to write is decided elsewhere. One flight
completes batch k and claims batch k + 1. With nothing to claim it blocks, and the first request
wakes it together with whatever came along.
"""

import logging
import math
import threading
import time
from collections.abc import Sequence
from enum import Enum
from typing import Any

from inferq.contract.errors import Expired, InferqError, QueueFull, sentence
from inferq.contract.requests import Refusal, Request
from inferq.redis_link import command
from inferq_worker.delivery import Delivery, Parcel, Timing, Why
from inferq_worker.intake import Claim, Intake, Mode, Refused
from inferq_worker.membership import Membership
from inferq_worker.progress import Phase, Watcher
from inferq_worker.runner import Outcome, Runner
from inferq_worker.session import Displaced, GaveUp, Session
from inferq_worker.settings import WorkerSettings

log = logging.getLogger(__name__)

# Pauses of a worker whose blocking move is refused: full memory is drained by the script alone.
_REFUSED_PAUSES_S = (0.01, 0.02, 0.04, 0.08, 0.16, 0.25)


class Until(Enum):
    """What ends a loop besides being stopped."""

    STOPPED = "stopped"
    EMPTY = "empty"


class Loop:
    """One worker's main loop over a loaded model. For one thread, but for :meth:`stop`."""

    def __init__(  # noqa: PLR0917 - the parts of a worker, put together in one place
        self,
        session: Session,
        membership: Membership,
        intake: Intake,
        runner: Runner,
        delivery: Delivery,
        settings: WorkerSettings,
        stop: threading.Event,
        watcher: Watcher,
    ) -> None:
        self._session = session
        self._membership = membership
        self._intake = intake
        self._runner = runner
        self._delivery = delivery
        self._settings = settings
        self._stop = stop
        self._watcher = watcher
        self._refusals = 0
        self._answered = 0
        # The last idle flight came back empty, so nothing needs to be claimed before the next.
        self._has_looked = False
        self._passes_over = False
        self._max_requests = self._max_idle_s = math.inf
        self._idle_since_s = math.inf

    def run(
        self,
        until: Until = Until.STOPPED,
        max_requests: float = math.inf,
        max_idle_s: float = math.inf,
    ) -> int:
        """Work until stopped; return how many requests were answered.

        Args:
            until: ``EMPTY`` ends it when nothing waits.
            max_requests: ends it between two batches, once so many were answered.
            max_idle_s: ends it once no request has come for so many seconds.
        """
        self._max_requests, self._max_idle_s = max_requests, max_idle_s
        self._idle_since_s = time.monotonic()
        membership = self._membership
        parcel: Parcel | None = None
        try:
            membership.join()
            membership.sweep_at_start()
            while not self._is_over():
                try:
                    claim = self._turn(parcel)
                    parcel = None
                    if claim is None and until is Until.EMPTY:
                        break
                    if claim is None and not self._is_over():
                        claim = self._wait()
                    # What was claimed when the end came is handed back by leaving.
                    if claim is not None and not self._is_over():
                        parcel = self._work(claim)
                        self._idle_since_s = time.monotonic()
                except Displaced:
                    parcel = None
                    membership.move()
            if parcel is not None:
                self._deliver(parcel)
            membership.leave()
        except GaveUp:
            log.warning("stopped without an answer from Redis; the lease frees what is held")
        return self._answered

    def _is_over(self) -> bool:
        return (
            self._stop.is_set()
            or self._answered >= self._max_requests
            or time.monotonic() - self._idle_since_s >= self._max_idle_s
        )

    def _turn(self, parcel: Parcel | None) -> Claim | None:
        """Deliver the last batch, if any, and claim the next in the same flight."""
        seat = self._membership.seat
        if self._has_looked:
            return None
        if parcel is None:
            (answer,) = self._session.send(self._intake.claim(seat, self._mode()))
            return self._opened(answer)
        completing = self._delivery.complete(seat, parcel)
        seat.number = parcel.number + 1
        *_, answer = self._session.send(*completing, self._intake.claim(seat, self._mode()))
        self._delivered(parcel)
        return self._opened(answer)

    def _deliver(self, parcel: Parcel) -> None:
        try:
            self._session.send(*self._delivery.complete(self._membership.seat, parcel))
        except Displaced:
            return
        self._membership.seat.number = parcel.number + 1
        self._delivered(parcel)

    def _delivered(self, parcel: Parcel) -> None:
        # Also when it was fenced: then another owns these requests, or our first copy arrived.
        self._answered += len(parcel.letters)
        self._watcher.completed()
        self._membership.seat.floor = parcel.number + 1

    def _mode(self) -> Mode:
        """Every second claim asks for a suspect first, the others only when nothing else waits."""
        return "last" if self._membership.seat.number % 2 else "first"

    def _wait(self) -> Claim | None:
        """Block until something arrives, or for a third of the lease."""
        membership = self._membership
        self._has_looked = False
        self._watcher.enter(Phase.WAITING)
        answers = self._session.wait(
            self._intake.idle_flight(membership.seat, membership.info("idle")), self._is_over
        )
        self._watcher.enter(Phase.TURNING)
        if answers is None:
            return None
        opened, moved, answer = answers
        for refused in (opened, answer):
            if isinstance(refused, InferqError):
                self._session.disturbed(refused)
                return None
        claim = self._opened(answer)
        if isinstance(moved, InferqError):
            if claim is None:
                self._pause(moved)
        else:
            self._refusals = 0
            self._has_looked = claim is None
        return claim

    def _pause(self, refusal: InferqError) -> None:
        """Wait a little where blocking is refused."""
        if self._refusals == 0:
            log.warning("cannot block for requests, looking for them instead: %s", refusal)
        longest = len(_REFUSED_PAUSES_S) - 1
        # Only full memory passes from one moment to the next.
        place = min(self._refusals, longest) if isinstance(refusal, QueueFull) else longest
        self._refusals += 1
        # Not the stop event: it would be locked by the very thread that runs signal handlers.
        time.sleep(_REFUSED_PAUSES_S[place])

    def _opened(self, answer: Any) -> Claim | None:
        """Read a claim; ``None`` if it holds nothing."""
        seat = self._membership.seat
        found = self._intake.read(seat, answer)
        if isinstance(found, Refused):
            if found.closed is None:
                raise Displaced
            seat.number = found.closed + 1
            return self._turn(None)
        if found.wrong_type and not self._passes_over:
            log.error("a lane of %s is a key of another type; passed over", seat.keys.model)
        self._passes_over = found.wrong_type
        if found.lease_ended:
            self._membership.sweep()
        self._membership.look_around()
        return found if found.held else None

    def _work(self, claim: Claim) -> Parcel | None:
        """Run a claim and pack what it came to; ``None`` if it slipped away before it ran."""
        if claim.is_suspect:
            started = self._started()
            if started is None:
                return None
            claim = started
        worker = self._membership.seat.worker
        started_ms = self._session.now_ms()
        parcel = self._delivery.open_parcel(claim, worker, started_ms)
        for message, refusal in claim.rejected:
            self._log_refusal(message, refusal)
        if claim.attempts >= self._settings.max_attempts:
            log.error("gave up a request after %d deaths of its workers", claim.attempts)
            self._delivery.give_up(parcel, claim, worker, started_ms)
            return parcel
        requests = self._still_wanted(claim, parcel, started_ms)
        self._watcher.enter(Phase.RUNNING)
        outcomes, calls = self._runner.run(requests)
        self._watcher.enter(Phase.TURNING)
        self._log_failures(requests, outcomes)
        why = Why(self._reason(claim), claim.attempts + 1, worker, started_ms)
        self._delivery.add_outcomes(parcel, requests, outcomes, why)
        timing = Timing(started_ms, self._session.now_ms())
        self._delivery.count(parcel, requests, outcomes, calls, timing)
        return parcel

    def _started(self) -> Claim | None:
        """Put on record that a suspect is touched now, so that a death is charged to it.

        Returns the suspect as it was read once more, or ``None``: a server that failed over may
        have forgotten it, and the claim may even hold something else, which the next turn finds.
        """
        seat = self._membership.seat
        (answer,) = self._session.send(self._intake.claim(seat, "start"))
        found = self._intake.read(seat, answer)
        if isinstance(found, Refused):
            if found.closed is None:
                raise Displaced
            return None
        return found if found.is_suspect else None

    def _log_refusal(self, message: bytes, refusal: Refusal) -> None:
        address = refusal.address
        log.warning(
            "refused a message of %d bytes: %s",
            len(message),
            sentence(refusal.error),
            extra=self._fields(None if address is None else address.id),
        )

    def _log_failures(self, requests: Sequence[Request], outcomes: Sequence[Outcome]) -> None:
        """Log what the model did wrong: once a batch, or a broken model would fill the disk."""
        failed = [
            (request.id, outcome.result)
            for request, outcome in zip(requests, outcomes, strict=True)
            if isinstance(outcome.result, InferqError)
        ]
        if failed:
            request_id, error = failed[0]
            log.error(
                "%s (%d requests of this batch)",
                sentence(error),
                len(failed),
                exc_info=error.__cause__,
                extra=self._fields(request_id),
            )

    def _fields(self, request_id: str | None) -> dict[str, str]:
        seat = self._membership.seat
        fields = {"model": seat.keys.model, "worker": seat.worker}
        return fields if request_id is None else {**fields, "request_id": request_id}

    def _reason(self, claim: Claim) -> str:
        if claim.is_suspect:
            return "suspect"
        return "full" if self._intake.is_full(claim) else "idle"

    def _still_wanted(self, claim: Claim, parcel: Parcel, now_ms: int) -> list[Request]:
        """Leave out what was answered meanwhile (cancelled, say) and what came too late."""
        answered: Sequence[Any] = [0] * len(claim.requests)
        if claim.requests and (claim.cancelled_lately or claim.is_suspect):
            keys = self._membership.seat.keys
            answered = self._session.ask(
                *(command("STRLEN", keys.reply(request.id)) for request in claim.requests)
            )
        wanted = []
        for request, length in zip(claim.requests, answered, strict=True):
            late_ms = lateness_ms(request, now_ms)
            # An error: the key is of another type. The completion counts it as unwritable.
            if length and not isinstance(length, InferqError):
                self._delivery.remind(parcel, request.address)
            elif late_ms > 0:
                error = Expired(f"timeout ran out {late_ms} ms before the model could start")
                why = {"attempt": claim.attempts + 1, "worker": self._membership.seat.worker}
                self._delivery.refuse(parcel, request.address, error, why)
            else:
                wanted.append(request)
        return wanted


def lateness_ms(request: Request, now_ms: int) -> int:
    """Return by how many ms a request's budget is overdrawn; without a stamp it starts now."""
    given = request.parameters
    if not given.timeout or given.submitted_ms is None:
        return 0
    return max(0, now_ms - given.submitted_ms - given.timeout // 1000)
