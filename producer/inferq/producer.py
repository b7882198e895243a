"""The producer of programs that block; :mod:`inferq.aio` has the same for asyncio."""

import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Self, Unpack

from inferq import calls
from inferq.calls import Composer, Outgoing, RequestOptions, check_seconds
from inferq.clock import SAMPLES, ClockSample, ServerClock
from inferq.contract.description import ModelDescription
from inferq.contract.errors import InferqError, InvalidRequest, NotReady, QueueFull
from inferq.contract.keys import Keys, check_id, check_model, models_key
from inferq.contract.replies import Reply, ReplyReader
from inferq.endpoint import open_endpoint
from inferq.ids import new_box
from inferq.inbox import Inbox
from inferq.outstanding import Slot
from inferq.redis_link import Link, command
from inferq.settings import ProducerSettings

_FIRST_POLL_S = 0.005


class Handle:
    """One submitted request.

    Attributes:
        id: its request id, good for :meth:`Producer.result` in any process.
        model: the model it went to.
    """

    def __init__(self, producer: "Producer", model: str, slot: Slot, inbox: Inbox) -> None:
        self.id = slot.id
        self.model = model
        self._producer = producer
        self._slot = slot
        self._inbox = inbox

    def __repr__(self) -> str:
        state = "done" if self._slot.result is not None else "pending"
        return f"<Handle {self.id} of {self.model}: {state}>"

    def done(self) -> bool:
        """Tell whether the reply (or an error in its place) is there; one look, no waiting.

        Raises:
            Unavailable: Redis is away.
        """
        self._inbox.look(self._slot)
        return self._slot.result is not None

    def result(self, timeout: float | None = None) -> Reply:
        """Wait for the reply and return it; the same one each time.

        Args:
            timeout: seconds this call waits; for ever by default. Nothing is withdrawn.

        Raises:
            NoReply: ``timeout`` is over.
            InferqError: the request was answered with an error, or is not known any more.
        """
        limit_s = float("inf") if timeout is None else check_seconds("timeout", timeout)
        self._inbox.wait(self._slot, time.monotonic() + limit_s)
        result = self._slot.result
        if isinstance(result, Reply):
            return result
        raise result or AssertionError("a slot without a result was reported as settled")

    def cancel(self) -> bool:
        """Withdraw the request; false if it is answered already.

        One that runs keeps running, and its result is discarded.
        """
        return self._producer.cancel(self.model, self.id)


class Producer:
    """Submits requests to models and gets their replies. Threads may share one.

    Args:
        redis_url: ``redis://``, ``rediss://``, ``unix://`` or ``embedded``; by default
            ``INFERQ_REDIS_URL``, then ``REDIS_URL``, then ``redis://localhost:6379/0``.
        settings: everything else; by default from the environment.

    Raises:
        InvalidSetting: the address or a setting is wrong. Redis is first contacted by a call.
    """

    def __init__(
        self, redis_url: str | None = None, *, settings: ProducerSettings | None = None
    ) -> None:
        self._settings = settings or ProducerSettings()
        self._resources = ExitStack()
        endpoint = self._resources.enter_context(
            open_endpoint(redis_url or self._settings.redis_url)
        )
        self._link = Link(endpoint)
        self._resources.callback(self._link.close)
        self._box = new_box()
        self._composer = Composer(self._settings, self._box)
        self._clock = ServerClock()
        self._descriptions = calls.DescriptionCache(self._settings.metadata_ttl_s)
        self._inboxes: dict[str, Inbox] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections. Requests under way go on; their results can be polled by id."""
        self._inboxes.clear()
        self._resources.close()

    def infer(self, model: str, inputs: object, **options: Unpack[RequestOptions]) -> Reply:
        """Submit one request, wait for its reply and return it.

        Args:
            model: the model's name.
            inputs: a mapping of tensor name to array, list or scalar, or the bare value for a
                model with one input. A value of the spec's rank is one row, and so is the reply;
                one rank more is a batch, and so is the reply.
            **options: see :class:`RequestOptions`. With a ``timeout`` the call stops waiting
                when it runs out.

        Raises:
            NotFound: no worker has ever published the model.
            InvalidRequest, TooLarge: the request is wrong; nothing was submitted.
            QueueFull: nothing was submitted; try again later.
            NoReply: ``timeout`` ran out before a reply came.
            Unavailable: Redis is away.
            InferqError: the request was answered with this error.
        """
        handle = self.submit(model, inputs, **options)
        try:
            return handle.result(options.get("timeout"))
        finally:
            handle._inbox.forget(handle._slot)  # noqa: SLF001 - nobody else holds this handle

    def submit(self, model: str, inputs: object, **options: Unpack[RequestOptions]) -> Handle:
        """Submit one request and return at once; see :meth:`infer` for arguments and errors.

        Under an id that is known already it joins the earlier request, whatever its inputs.
        """
        return self.submit_many(model, [inputs], **options)[0]

    def submit_many(
        self, model: str, many: Iterable[object], **options: Unpack[RequestOptions]
    ) -> list[Handle]:
        """Submit several requests in one round trip; see :meth:`infer` for arguments and errors.

        Up to 1,000 requests (64 MiB) are submitted all or none. Of more, those in front of a full
        queue are submitted; :attr:`QueueFull.accepted` has their handles.
        """
        outgoing, lane = self._compose(model, list(many), options)
        keys = self._keys(model)
        inbox = self._inbox(model)
        handles: list[Handle] = []
        for part in calls.cut(outgoing):
            try:
                (answer,) = self._link.run(
                    self._composer.submit(keys, lane, part), patience_s=self._settings.patience_s
                )
                states = self._composer.submitted(model, answer)
            except QueueFull as error:
                error.accepted = tuple(handles)
                raise
            for each, state in zip(part, states, strict=True):
                slot = inbox.expect(each.id, state, single=each.single)
                handles.append(Handle(self, model, slot, inbox))
        return handles

    def result(self, model: str, request_id: str, *, timeout: float | None = None) -> Reply:
        """Return the reply of a request by its id, from any process, as often as wanted.

        It keeps its batch dimension, since who asks need not be who submitted.

        Args:
            model: the model's name.
            request_id: the request's id.
            timeout: seconds to wait for it; by default one look.

        Raises:
            NotReady: it is pending (after ``timeout``, if one was given).
            NotFound: no such request is known, or its reply has expired.
            InferqError: the request was answered with this error.
        """
        key = self._keys(model).reply(check_id(request_id))
        wait_s = 0.0 if timeout is None else check_seconds("timeout", timeout)
        deadline_s = time.monotonic() + wait_s
        pause_s = _FIRST_POLL_S
        while True:
            (value,) = self._link.run(command("GET", key), patience_s=self._settings.patience_s)
            if value is None:
                raise calls.unknown_request(model, request_id)
            if value:
                result = ReplyReader().read(value)
                if isinstance(result, Reply):
                    return result
                raise result
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                raise NotReady(f"request '{request_id}' of model '{model}' is still pending")
            time.sleep(min(pause_s, left_s))
            pause_s = min(pause_s * 2, self._settings.poll_s)

    def cancel(self, model: str, request_id: str) -> bool:
        """Withdraw a request; true if that came in time, false if it is answered already.

        Raises:
            NotFound: no such request is known.
            Unavailable: Redis is away.
        """
        (answer,) = self._link.run(
            calls.cancel(self._keys(model), check_id(request_id)),
            patience_s=self._settings.patience_s,
        )
        return calls.cancelled(answer, model, request_id)

    def map(
        self,
        model: str,
        many: Iterable[object],
        *,
        window: int | None = None,
        return_errors: bool = False,
        **options: Unpack[RequestOptions],
    ) -> Iterator[Reply | InferqError]:
        """Submit any number of requests and yield their replies in order.

        At most ``window`` are under way at once, so memory stays bounded and a full queue slows
        this call down instead of failing it.

        Args:
            model: the model's name.
            many: the inputs of each request; consumed as the window moves.
            window: requests under way; 1,024 by default.
            return_errors: yield the error of a request that failed in its place; by default it
                is raised, which ends the iteration.
            **options: see :class:`RequestOptions`, for every request alike.

        Raises:
            NotFound, InvalidRequest, TooLarge, Unavailable: as :meth:`infer`.
        """
        size = self._settings.map_window if window is None else window
        if size < 1:
            raise InvalidRequest(f"window must be at least 1, got {size}")
        if "request_id" in options:
            raise InvalidRequest("map makes its own ids: request_id is not allowed")
        source = iter(many)
        handles: deque[Handle] = deque()
        held: list[object] = []
        while True:
            # Refilled by half windows: large enough to submit many at once.
            if len(handles) <= size // 2:
                held += calls.take(source, size - len(handles) - len(held))
                held = self._submit_what_fits(model, held, handles, options)
            if not handles:
                if not held:
                    return
                continue
            try:
                yield handles[0].result()
            except InferqError as error:
                if not return_errors:
                    raise
                yield error
            handles.popleft()

    def _submit_what_fits(
        self,
        model: str,
        many: Sequence[object],
        handles: deque[Handle],
        options: RequestOptions,
    ) -> list[object]:
        """Submit; add what was accepted to ``handles`` and return the rest."""
        if not many:
            return []
        try:
            accepted: Sequence[Handle] = self.submit_many(model, many, **options)
        except QueueFull as error:
            accepted = error.accepted
            if not handles and not accepted:
                time.sleep(error.retry_after_ms / 1000)
        handles.extend(accepted)
        return list(many[len(accepted) :])

    # Below: what the calls above share -------------------------------------------------------

    def _compose(
        self, model: str, many: list[object], options: RequestOptions
    ) -> tuple[list[Outgoing], str]:
        """Encode requests; on a mismatch look once whether the model has changed meanwhile."""
        now_ms = self._now_ms()
        description, fresh = self._description(model)
        try:
            return self._composer.compose(description, many, options, now_ms)
        except InvalidRequest:
            if fresh:
                raise
        self._descriptions.drop(model)
        description, _ = self._description(model)
        return self._composer.compose(description, many, options, now_ms)

    def _description(self, model: str) -> tuple[ModelDescription, bool]:
        """Return what the model promises, and whether that was read just now."""
        keys = self._keys(model)
        cached = self._descriptions.get(model, time.monotonic())
        if cached is not None:
            return cached, False
        patience_s = self._settings.patience_s
        (text,) = self._link.run(command("GET", keys.description), patience_s=patience_s)
        if text is None:
            (names,) = self._link.run(command("SMEMBERS", models_key(keys.prefix)))
            raise calls.unknown_model(model, [name.decode() for name in names])
        return self._descriptions.put(model, text, time.monotonic()), True

    def _now_ms(self) -> int:
        now_s = time.monotonic()
        if self._clock.is_stale(now_s):
            samples = []
            for _ in range(SAMPLES):
                sent_s = time.monotonic()
                (answer,) = self._link.run(command("TIME"), patience_s=self._settings.patience_s)
                samples.append(ClockSample.of(sent_s, time.monotonic(), answer))
            self._clock.adjust(samples)
        return self._clock.now_ms(now_s)

    def _keys(self, model: str) -> Keys:
        return Keys(self._settings.prefix, check_model(model))

    def _inbox(self, model: str) -> Inbox:
        inbox = self._inboxes.get(model)
        if inbox is None:
            settings = self._settings
            link = Link(self._link.endpoint)
            self._resources.callback(link.close)
            inbox = Inbox(self._keys(model), self._box, link, settings.poll_s, settings.patience_s)
            # Threads that race for it must end up with one inbox.
            inbox = self._inboxes.setdefault(model, inbox)
        return inbox
