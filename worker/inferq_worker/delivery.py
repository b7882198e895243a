"""Encodes what a batch came to and completes its claim.

One call of ``complete.lua`` writes the replies, tells the inboxes, counts, and drops the claim.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pydantic_core import from_json, to_json

from inferq.contract import scripts
from inferq.contract.counters import SUCCEEDED, outcome_field
from inferq.contract.description import ModelDescription
from inferq.contract.errors import (
    Cancelled,
    Crashed,
    InferqError,
    InvalidRequest,
    ModelError,
    TooLarge,
    sentence,
)
from inferq.contract.layouts import LayoutMemo
from inferq.contract.replies import ReplyWriter, output_form
from inferq.contract.requests import Address, Request
from inferq.redis_link import Command, call
from inferq_worker.intake import Claim
from inferq_worker.metrics import Tally
from inferq_worker.runner import Answer, ModelCall, Outcome
from inferq_worker.seat import Seat
from inferq_worker.settings import WorkerSettings

_MAX_JUNK_BYTES = 64 * 1024
_MAX_DEAD_BYTES = 1024 * 1024
# Longer than any client repeats a submission, which a reply still there makes harmless.
_SHORTEST_LIFE_S = 60
# A script takes at most so many, and Lua keeps a copy of what it is given.
_LETTERS_PER_CALL = 1_000
_BYTES_PER_CALL = 64 * 1024**2
# A day. A stamp in seconds instead of milliseconds must not fill up a counter's 63 bits.
_LONGEST_WAIT_MS = 86_400_000


class Timing(NamedTuple):
    """When a batch started and ended, in ms of Redis time."""

    started_ms: int
    ended_ms: int


class Letter(NamedTuple):
    """One reply on its way: an empty ``reply`` only tells the inbox of one written before."""

    address: Address
    outcome: str
    reply: bytes


@dataclass
class Parcel:
    """Everything that completing one claim writes."""

    number: int
    held: int
    bytes_in: int = 0
    letters: list[Letter] = field(default_factory=list)
    dead: list[bytes] = field(default_factory=list)
    tally: Tally = field(default_factory=Tally)


class Delivery:
    """Writes the replies of one worker of a model."""

    def __init__(self, description: ModelDescription, settings: WorkerSettings) -> None:
        self._description = description
        self._settings = settings
        self._writer = ReplyWriter(description.name, description.version)
        self._layouts = LayoutMemo()
        self._all_outputs = description.select(None)
        self._order = {spec.name: index for index, spec in enumerate(description.outputs)}

    def open_parcel(self, claim: Claim, worker: str, now_ms: int) -> Parcel:
        """Begin a parcel with the answers to what cannot run: refusals and junk."""
        parcel = Parcel(claim.number, claim.held, claim.bytes_in)
        why = {"attempt": claim.attempts + 1, "worker": worker}
        for message, (address, error) in claim.rejected:
            if address is None:
                parcel.dead.append(
                    dead_entry(message, error, DeadNote(None, claim.attempts, now_ms))
                )
            else:
                self.refuse(parcel, address, error, why)
        return parcel

    def refuse(
        self, parcel: Parcel, address: Address, error: InferqError, why: Mapping[str, Any]
    ) -> None:
        """Add an error reply; ``why`` goes into its parameters."""
        reply = self._writer.error(address.id, error, why)
        parcel.letters.append(Letter(address, outcome_field(error.code or "error"), reply))

    def remind(self, parcel: Parcel, address: Address) -> None:
        """Add a hint for a request whose reply was written before (it was cancelled, or twice)."""
        parcel.letters.append(Letter(address, outcome_field(str(Cancelled.code)), b""))

    def give_up(self, parcel: Parcel, claim: Claim, worker: str, now_ms: int) -> None:
        """Answer a suspect that spent its attempts ``crashed``, without running it."""
        error = Crashed(
            f"the request was running when its worker died, {claim.attempts} times; given up"
        )
        why = {"attempt": claim.attempts, "worker": worker}
        for request, message in zip(claim.requests, claim.messages, strict=True):
            self.refuse(parcel, request.address, error, why)
            note = DeadNote(request.id, claim.attempts, now_ms)
            parcel.dead.append(dead_entry(message, error, note))

    def add_outcomes(
        self, parcel: Parcel, requests: Sequence[Request], outcomes: Sequence[Outcome], why: "Why"
    ) -> None:
        """Add the replies of the requests that ran."""
        # Alike for all requests of a model call but for the time they waited.
        shared: dict[ModelCall | None, bytes] = {}
        for request, outcome in zip(requests, outcomes, strict=True):
            if outcome.call not in shared:
                shared[outcome.call] = why.shared(outcome.call)
            parameters = why.parameters(request, shared[outcome.call])
            error = outcome.result
            if isinstance(error, Answer):
                reply = self._success(request, error, parameters)
                if not isinstance(reply, InferqError):
                    parcel.letters.append(Letter(request.address, SUCCEEDED, reply))
                    continue
                error = reply
            self.refuse(parcel, request.address, error, from_json(parameters))

    def count(
        self,
        parcel: Parcel,
        requests: Sequence[Request],
        outcomes: Sequence[Outcome],
        calls: Sequence[ModelCall],
        timing: Timing,
    ) -> None:
        """Add a batch to the counters."""
        tally = parcel.tally
        if calls:
            tally.add("batches", len(calls))
            tally.add("rows", sum(made.rows for made in calls))
            tally.observe("batch_size", [made.requests for made in calls])
        tally.observe_seconds(
            "compute", [outcome.call.compute_ns / 1e9 for outcome in outcomes if outcome.call]
        )
        stamps = [
            request.parameters.submitted_ms
            for request in requests
            if request.parameters.submitted_ms is not None
        ]
        tally.observe_seconds("queue", [_waited_s(at, timing.started_ms) for at in stamps])
        tally.observe_seconds("total", [_waited_s(at, timing.ended_ms) for at in stamps])

    def complete(self, seat: Seat, parcel: Parcel) -> list[Command]:
        """Build the calls that deliver a parcel; only the last of them closes its claim."""
        *parts, last = _cut(parcel.letters)
        return [
            *(self._part(seat, parcel, part, []) for part in parts),
            self._part(seat, parcel, last, self._closing(parcel)),
        ]

    def _closing(self, parcel: Parcel) -> list[str | bytes | int]:
        """Return what only the closing part carries: dead entries and counters."""
        tally = parcel.tally
        tally.put("bytes_in", parcel.bytes_in)
        tally.put("bytes_out", sum(len(letter.reply) for letter in parcel.letters))
        tally.put("dead", len(parcel.dead))
        return [len(parcel.dead), *parcel.dead, *tally.pairs()]

    def _part(
        self,
        seat: Seat,
        parcel: Parcel,
        letters: Sequence[Letter],
        closing: Sequence[str | bytes | int],
    ) -> Command:
        keys = seat.keys
        boxes: dict[str, list[str]] = {}
        replies: list[str | bytes | int] = []
        for address, outcome, reply in letters:
            replies += (self._life_ms(address), outcome, reply)
            if address.reply_to is not None:
                boxes.setdefault(address.reply_to, []).append(address.id)
        hints: list[str | int] = []
        for ids in boxes.values():
            hints += (len(ids), *ids)
        settings = self._settings
        return call(
            scripts.load("complete"),
            (
                keys.claimed(seat.worker, parcel.number), keys.claims, keys.workers, keys.closed,
                keys.metrics, keys.dead, keys.returned, keys.suspects, keys.normal,
                *(keys.reply(letter.address.id) for letter in letters),
                *(keys.inbox(box) for box in boxes),
            ),
            (
                seat.worker, parcel.number, parcel.held if closing else 0, len(letters),
                len(boxes), int(settings.inbox_ttl_s * 1000), settings.inbox_limit,
                settings.dead_limit, *replies, *hints, *closing,
            ),
        )  # fmt: skip

    def _success(
        self, request: Request, answer: Answer, parameters: bytes
    ) -> bytes | InvalidRequest | ModelError | TooLarge:
        layout, body = answer
        wanted = self._all_outputs
        if request.outputs:
            wanted = request.outputs
            layout, body = self._selected(answer, [self._order[want.name] for want in wanted])
        form = output_form(wanted, binary=request.binary)
        try:
            reply = self._writer.success(request.id, layout, body, form, parameters)
        except InvalidRequest as error:
            return ModelError(str(error))
        limit = self._settings.max_message_bytes
        if len(reply) > limit:
            return TooLarge(f"the reply of {len(reply)} bytes is over the limit of {limit}")
        return reply

    def _selected(self, answer: Answer, order: Sequence[int]) -> Answer:
        heads = [answer.layout.heads[index] for index in order]
        return Answer(self._layouts.layout(heads), [answer.body[index] for index in order])

    def _life_ms(self, address: Address) -> int:
        """How long a reply is kept: as its sender asked, between a minute and the setting."""
        if address.reply_ttl_s is None:
            return int(self._settings.reply_ttl_s * 1000)
        life_s = min(max(address.reply_ttl_s, _SHORTEST_LIFE_S), self._settings.reply_ttl_max_s)
        return int(life_s * 1000)


def _cut(letters: Sequence[Letter]) -> list[list[Letter]]:
    """Cut letters into parts that one call can carry; at least one part, perhaps empty."""
    parts: list[list[Letter]] = [[]]
    size = 0
    for letter in letters:
        size += len(letter.reply)
        if len(parts[-1]) == _LETTERS_PER_CALL or (parts[-1] and size > _BYTES_PER_CALL):
            parts.append([])
            size = len(letter.reply)
        parts[-1].append(letter)
    return parts


def _waited_s(since_ms: int, until_ms: int) -> float:
    """Return a wait in s. A stamp from the future is a clock's error, not a negative wait."""
    return min(max(0, until_ms - since_ms), _LONGEST_WAIT_MS) / 1e3


class DeadNote(NamedTuple):
    """What a dead entry tells beside the reason: the id if known, deaths, and when."""

    id: str | None
    attempts: int
    at_ms: int


def dead_entry(message: bytes, error: InferqError, note: DeadNote) -> bytes:
    """Build an entry of the dead list: a line of JSON, then the message as it was, cut."""
    line = {"reason": sentence(error), "code": error.code, **note._asdict(), "bytes": len(message)}
    if note.id is None:
        del line["id"]
    cut = message[: _MAX_JUNK_BYTES if note.id is None else _MAX_DEAD_BYTES]
    return to_json(line) + b"\n" + cut


@dataclass(frozen=True)
class Why:
    """Why the replies of one batch look as they do.

    ``reason`` says what closed the batch: ``full``, ``idle`` or ``suspect``; ``attempt`` counts
    from 1.
    """

    reason: str
    attempt: int
    worker: str
    started_ms: int

    def shared(self, made: ModelCall | None) -> bytes:
        """Return what the parameters of all replies of one model call have in common."""
        compute_ns, size, rows = (made.compute_ns, made.requests, made.rows) if made else (0, 0, 0)
        return (
            b'"compute_ms":%.3f,"batch_size":%d,"batch_rows":%d,"batch_reason":"%b",'
            b'"attempt":%d,"worker":"%b"}'
        ) % (
            compute_ns / 1e6,
            size,
            rows,
            self.reason.encode(),
            self.attempt,
            self.worker.encode(),
        )

    def parameters(self, request: Request, shared: bytes) -> bytes:
        """Return a reply's parameters as JSON; without a sender's stamp there is no ``queue_ms``.

        Formatted by hand, being the one JSON text that every request gets anew; every value is a
        number or a word of ours.
        """
        submitted_ms = request.parameters.submitted_ms
        if submitted_ms is None:
            return b"{" + shared
        return b'{"queue_ms":%d,%b' % (max(0, self.started_ms - submitted_ms), shared)
