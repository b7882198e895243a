"""The pure half of both producers: arguments in, script calls out; answers in, values out.

What takes round trips is written as *steps*: a generator that yields a flight of commands, is sent
the answers, and in the end returns a value. A producer carries the steps out in its own way of
waiting; see ``Producer._do`` and ``AsyncProducer._do``.
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeAlias

from inferq.clock import SAMPLES, ClockSample, ServerClock
from inferq.composer import Composer, Outgoing, cut
from inferq.contract import scripts
from inferq.contract.description import ModelDescription
from inferq.contract.errors import Cancelled, InvalidRequest, NotFound, QueueFull, RequestError
from inferq.contract.keys import Keys, check_id, check_model, models_key
from inferq.contract.replies import Reply, ReplyReader, ReplyWriter
from inferq.options import Terms
from inferq.outstanding import Slot, unknown_request
from inferq.redis_link import Command, Steps, call, command
from inferq.settings import ProducerSettings

Expect: TypeAlias = Callable[[Outgoing], Slot]

# Longer than any worker needs to see that something was cancelled.
_CANCEL_HINT_MS: Final = 60_000
_FIRST_POLL_S: Final = 0.005


class Calls:
    """What one producer can ask of Redis. Threads may share it, and so may tasks.

    Args:
        settings: limits and lives.
        box: the inbox that replies are announced in.
    """

    def __init__(self, settings: ProducerSettings, box: str) -> None:
        self._settings = settings
        self._composer = Composer(box)
        self._clock = ServerClock()
        self._descriptions = DescriptionCache(settings.metadata_ttl_s)

    def keys(self, model: str) -> Keys:
        """Return the keys of a model.

        Raises:
            InvalidRequest: no model may be called that.
        """
        return Keys(self._settings.prefix, check_model(model))

    def submit(
        self, keys: Keys, many: Sequence[object], terms: Terms, expect: Expect
    ) -> Steps[list[Slot]]:
        """Submit requests, up to 1,000 (64 MiB) at a time: each time all of them or none.

        ``expect`` is called for each before it is sent, and what it gives is returned.

        Raises:
            InvalidRequest, TooLarge: one of the inputs is wrong; nothing was submitted.
            NotFound: no worker has ever published the model.
            QueueFull: ``accepted`` has the slots of what was submitted before.
        """
        if terms.request_id is not None and len(many) > 1:
            raise InvalidRequest(
                f"request_id '{terms.request_id}' was given for {len(many)} requests: it names one"
            )
        outgoing = []
        for each in (yield from self._compose(keys, many, terms)):
            if isinstance(each, RequestError):
                raise each
            outgoing.append(each)
        return (yield from self._push(keys, terms.lane, outgoing, expect))

    def submit_each(
        self, keys: Keys, many: Sequence[object], terms: Terms, expect: Expect
    ) -> Steps[list[Slot | RequestError]]:
        """Submit as :meth:`submit` does, but with the error of a wrong input in its place."""
        composed = yield from self._compose(keys, many, terms)
        outgoing = [each for each in composed if isinstance(each, Outgoing)]
        try:
            slots = yield from self._push(keys, terms.lane, outgoing, expect)
        except QueueFull as error:
            error.accepted = tuple(_in_place(composed, error.accepted))
            raise
        return _in_place(composed, slots)

    def result(self, keys: Keys, request_id: str) -> Steps[Reply | None]:
        """Look for a reply; ``None`` while the request is pending.

        Raises:
            NotFound: no such request is known.
            InferqError: the request was answered with this error.
        """
        (value,) = yield [command("GET", keys.reply(check_id(request_id)))]
        if value is None:
            raise unknown_request(keys.model, request_id)
        if not value:
            return None
        result = ReplyReader().read(value)
        if isinstance(result, Reply):
            return result
        raise result

    def cancel(self, keys: Keys, request_id: str) -> Steps[bool]:
        """Withdraw a request; tell whether that came in time.

        Raises:
            NotFound: no such request is known.
        """
        (answer,) = yield [cancelling(keys, check_id(request_id))]
        if answer == -1:
            raise unknown_request(keys.model, request_id)
        return bool(answer == 1)

    # Below: what submitting takes -------------------------------------------------------------

    def _push(
        self, keys: Keys, lane: str, outgoing: Sequence[Outgoing], expect: Expect
    ) -> Steps[list[Slot]]:
        accepted: list[Slot] = []
        for part in cut(outgoing):
            try:
                accepted += yield from self._push_part(keys, lane, part, expect)
            except QueueFull as error:
                error.accepted = tuple(accepted)
                raise
        return accepted

    def _push_part(
        self, keys: Keys, lane: str, part: Sequence[Outgoing], expect: Expect
    ) -> Steps[list[Slot]]:
        # Expected before it is sent: the reply may be there before the answer to this call.
        slots = [expect(each) for each in part]
        (answer,) = yield [self._submission(keys, lane, part)]
        if answer[0] == -1:
            raise QueueFull(
                f"the queue of {keys.model} holds {answer[1]} requests, its limit is "
                f"{self._settings.queue_limit}"
            )
        for slot, state in zip(slots, answer[1:], strict=True):
            slot.state = state
        return slots

    def _submission(self, keys: Keys, lane: str, part: Sequence[Outgoing]) -> Command:
        settings = self._settings
        return call(
            scripts.load("submit"),
            (keys.lane(lane), keys.normal, *(keys.reply(each.id) for each in part)),
            (
                settings.queue_limit,
                int(settings.pending_ttl_s * 1000),
                *(each.message for each in part),
            ),
        )

    def _compose(
        self, keys: Keys, many: Sequence[object], terms: Terms
    ) -> Steps[list[Outgoing | RequestError]]:
        """Encode requests; on a mismatch look once whether the model has changed meanwhile."""
        description, is_fresh = yield from self._description(keys)
        now_ms = yield from self._now_ms()
        composed = self._composer.compose(description, many, terms, now_ms)
        if is_fresh or not any(isinstance(each, RequestError) for each in composed):
            return composed
        self._descriptions.drop(keys.model)
        description, _ = yield from self._description(keys)
        return self._composer.compose(description, many, terms, now_ms)

    def _description(self, keys: Keys) -> Steps[tuple[ModelDescription, bool]]:
        """Return what the model promises, and whether that was read just now."""
        cached = self._descriptions.get(keys.model, time.monotonic())
        if cached is not None:
            return cached, False
        (text,) = yield [command("GET", keys.description)]
        if text is None:
            (names,) = yield [command("SMEMBERS", models_key(keys.prefix))]
            raise unknown_model(keys.model, [name.decode() for name in names])
        return self._descriptions.put(keys.model, text, time.monotonic()), True

    def _now_ms(self) -> Steps[int]:
        """Return Redis time; several round trips, once in a while."""
        samples: list[ClockSample] = []
        # Asked again after each: another thread or task may have set the clock meanwhile.
        while self._clock.is_stale(time.monotonic()):
            sent_s = time.monotonic()
            (answer,) = yield [command("TIME")]
            samples.append(ClockSample.of(sent_s, time.monotonic(), answer))
            if len(samples) == SAMPLES:
                self._clock.adjust(samples)
        return self._clock.now_ms(time.monotonic())


class DescriptionCache:
    """Model descriptions, each trusted for a while.

    Args:
        ttl_s: for how long.
    """

    def __init__(self, ttl_s: float) -> None:
        self._ttl_s = ttl_s
        self._known: dict[str, tuple[float, ModelDescription]] = {}

    def get(self, model: str, now_s: float) -> ModelDescription | None:
        """Return a description read less than ``ttl_s`` ago."""
        read_at_s, description = self._known.get(model, (-math.inf, None))
        return description if now_s - read_at_s < self._ttl_s else None

    def put(self, model: str, text: bytes, now_s: float) -> ModelDescription:
        """Keep what was just read, and return it.

        Raises:
            InvalidSetting: the text is no model description.
        """
        description = ModelDescription.from_json(text)
        self._known[model] = (now_s, description)
        return description

    def drop(self, model: str) -> None:
        """Forget a model's description."""
        self._known.pop(model, None)


def cancelling(keys: Keys, request_id: str) -> Command:
    """Build the call that withdraws a request.

    The reply it writes is a function of the id alone, so that a repeated call knows its own.
    """
    error = Cancelled("the request was withdrawn before its result was written")
    reply = ReplyWriter(keys.model, None).error(request_id, error)
    return call(
        scripts.load("cancel"),
        (keys.reply(request_id), keys.cancelled, keys.metrics),
        (reply, _CANCEL_HINT_MS),
    )


def unknown_model(model: str, known: Sequence[str]) -> NotFound:
    """Return the error of a model that no worker has published."""
    listed = ", ".join(sorted(known)) or "none"
    return NotFound(f"no worker has ever published a model '{model}' here; known models: {listed}")


def polls(longest_s: float) -> Iterator[float]:
    """Yield the seconds to wait between looks at a reply: doubling, since most come soon."""
    pause_s = _FIRST_POLL_S
    while True:
        yield min(pause_s, longest_s)
        pause_s *= 2


def _in_place(
    composed: Sequence[Outgoing | RequestError], slots: Iterable[Slot]
) -> list[Slot | RequestError]:
    """Put the slots of accepted requests where the requests were; end at the first without one."""
    placed: list[Slot | RequestError] = []
    accepted = iter(slots)
    for each in composed:
        place = each if isinstance(each, RequestError) else next(accepted, None)
        if place is None:
            break
        placed.append(place)
    return placed
