"""Claims requests and decodes them.

Builds the commands that take a batch and reads their answers; the loop in ``worker.py`` sends
them. An answer of ``claim.lua`` is the whole truth about what the worker holds; a ``BLMOVE`` in
front of it only waits.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from inferq.contract import scripts
from inferq.contract.description import ModelDescription
from inferq.contract.errors import InvalidRequest
from inferq.contract.layouts import Layout
from inferq.contract.requests import Refusal, Request, RequestReader
from inferq.redis_link import Command, call, call_by_source, command
from inferq_worker.seat import Seat
from inferq_worker.settings import WorkerSettings

Mode = Literal["first", "last", "never", "start"]

# Flags of claim.lua's answer.
_CANCELLED_LATELY = 1
_LEASE_ENDED = 2
_WRONG_TYPE = 4
_SUSPECT = 8


class Refused(NamedTuple):
    """``claim.lua`` would not open this claim.

    ``closed`` is the seat's highest closed number, or ``None`` if the seat itself is gone.
    """

    closed: int | None


class Rejected(NamedTuple):
    """A claimed message that is no request of this model, as it was on the list."""

    message: bytes
    refusal: Refusal


@dataclass
class Claim:
    """What the worker holds under one claim number.

    Attributes:
        number: the claim's number.
        held: elements the worker was given; whatever is on the list behind them is not its own.
        is_suspect: it is one request whose worker died; it must be put on record before it runs.
        attempts: deaths so far, of a suspect; otherwise 0.
        waiting: requests left in the lanes.
        cancelled_lately: some request was cancelled; look whether one of these was.
        lease_ended: some worker's lease has ended.
        wrong_type: a lane is a key of another type and was passed over.
        requests, messages: what can run, decoded and as it was on the list, place by place.
        rejected: what cannot.
        bytes_in: size of all messages.
    """

    number: int
    held: int
    is_suspect: bool
    attempts: int
    waiting: int
    cancelled_lately: bool
    lease_ended: bool
    wrong_type: bool
    requests: list[Request] = field(default_factory=list)
    messages: list[bytes] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    bytes_in: int = 0


class Intake:
    """Takes batches of one model at least once."""

    def __init__(self, description: ModelDescription, settings: WorkerSettings) -> None:
        self._description = description
        self._settings = settings
        self._reader = RequestReader(description.max_message_bytes)
        self._verdicts: dict[Layout, InvalidRequest | None] = {}

    def claim(self, seat: Seat, mode: Mode) -> Command:
        """Build the call that opens the seat's next claim and fills it with what waits."""
        keys = seat.keys
        return call(
            scripts.load("claim"),
            (
                seat.claimed, keys.claims, keys.workers, keys.closed, keys.returned,
                keys.lane("high"), keys.normal, keys.lane("low"), keys.suspects, keys.cancelled,
            ),
            (
                seat.worker, seat.number, seat.floor, self._settings.lease_ms,
                self._description.max_batch_size, self._settings.claim_bytes, 0, 0, mode,
            ),
        )  # fmt: skip

    def idle_flight(self, seat: Seat, info: Sequence[str | int]) -> list[Command]:
        """Build the flight that waits for the first request and claims it with its company.

        The claim is registered before anything can move into it, and with the script's source:
        refused for want of the script, it would let the ``BLMOVE`` behind it move a request that
        nobody owns.
        """
        keys = seat.keys
        block_s = self._settings.block_s
        return [
            register(seat, "open", self._settings.lease_ms, info),
            command("BLMOVE", keys.normal, seat.claimed, "LEFT", "RIGHT", block_s),
            self.claim(seat, "last"),
        ]

    def is_full(self, claim: Claim) -> bool:
        """Tell whether a limit closed the claim, and not the end of the queue."""
        return (
            claim.held >= self._description.max_batch_size
            or claim.bytes_in >= self._settings.claim_bytes
        )

    def read(self, seat: Seat, answer: Sequence[Any]) -> Claim | Refused:
        """Read an answer of ``claim.lua`` and decode what it holds."""
        if answer[0] != 1:
            return Refused(answer[1] if answer[0] == -1 else None)
        _, attempts, waiting, flags, *messages = answer
        claim = Claim(
            number=seat.number,
            held=len(messages),
            is_suspect=bool(flags & _SUSPECT),
            attempts=attempts,
            waiting=waiting,
            cancelled_lately=bool(flags & _CANCELLED_LATELY),
            lease_ended=bool(flags & _LEASE_ENDED),
            wrong_type=bool(flags & _WRONG_TYPE),
        )
        for message in messages:
            claim.bytes_in += len(message)
            found = self._decode(message)
            if isinstance(found, Request):
                claim.requests.append(found)
                claim.messages.append(message)
            else:
                claim.rejected.append(Rejected(message, found))
        return claim

    def _decode(self, message: bytes) -> Request | Refusal:
        request = self._reader.read(message)
        if isinstance(request, Refusal):
            return request
        wrong = self._verdict(request.layout)
        if wrong is None and request.outputs:
            try:
                self._description.select(request.outputs)
            except InvalidRequest as error:
                wrong = error
        return request if wrong is None else Refusal(request.address, wrong)

    def _verdict(self, layout: Layout) -> InvalidRequest | None:
        """Check a layout against the model, once for all requests that share it."""
        try:
            return self._verdicts[layout]
        except KeyError:
            pass
        if len(self._verdicts) >= 1_024:
            self._verdicts.clear()
        verdict = None
        try:
            self._description.check(layout)
        except InvalidRequest as error:
            verdict = error
        self._verdicts[layout] = verdict
        return verdict


def register(
    seat: Seat, verb: Literal["join", "open"], lease_ms: int, info: Sequence[str | int]
) -> Command:
    """Build the call that takes a seat, or opens its next claim; ``info`` is field, value, ..."""
    keys = seat.keys
    return call_by_source(
        scripts.load("register"),
        (keys.workers, keys.claims, seat.claimed, keys.worker(seat.worker)),
        (seat.worker, lease_ms, verb, info_life_ms(lease_ms), *info),
    )


def info_life_ms(lease_ms: int) -> int:
    """Return how long a worker's information outlives its last renewal."""
    return 2 * lease_ms
