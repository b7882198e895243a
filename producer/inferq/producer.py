"""The producer of programs that block; :mod:`inferq.aio` has the same for asyncio."""

import math
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from types import TracebackType
from typing import Literal, Self, TypeVar, Unpack, overload

from inferq.calls import Calls, polls
from inferq.contract.errors import InferqError, NotReady, QueueFull, Unavailable
from inferq.contract.keys import Keys
from inferq.contract.replies import Reply
from inferq.endpoint import open_endpoint
from inferq.ids import new_box
from inferq.inbox import Inbox
from inferq.options import RequestOptions, Terms, check_seconds
from inferq.outstanding import Outstanding, Slot
from inferq.redis_link import Link, Steps
from inferq.settings import ProducerSettings
from inferq.window import Window

T = TypeVar("T")


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
        state = "pending" if self._slot.result is None else "done"
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
            NoReply: ``timeout`` is over, or the producer was closed.
            Unavailable: Redis is away.
            InferqError: the request was answered with an error, or is not known any more.
        """
        wait_s = math.inf if timeout is None else check_seconds("timeout", timeout)
        self._inbox.wait(self._slot, time.monotonic() + wait_s)
        return self._slot.value()

    def cancel(self) -> bool:
        """Withdraw the request; false if it is answered already.

        One that runs keeps running, and its result is discarded.

        Raises:
            NotFound: the request is not known any more.
            Unavailable: Redis is away.
        """
        was_in_time = self._producer.cancel(self.model, self.id)
        # No hint will come before a worker drops it.
        self._inbox.look(self._slot)
        return was_in_time


class Producer:
    """Submits requests to models and gets their replies. Threads may share one.

    Args:
        redis_url: ``redis://``, ``rediss://``, ``unix://`` or ``embedded``; by default
            ``INFERQ_REDIS_URL``, then ``REDIS_URL``, then ``redis://localhost:6379/0``.
        settings: everything else; by default from the environment.

    Raises:
        InvalidSetting: the address or a setting is wrong.
        ServerUnfit: the server of ``embedded`` does not start. Another is contacted by the first
            call.
    """

    def __init__(
        self, redis_url: str | None = None, *, settings: ProducerSettings | None = None
    ) -> None:
        self._settings = settings or ProducerSettings()
        # Closed in the opposite order: the server last, if it is ours.
        self._resources = ExitStack()
        self._link = Link(
            self._resources.enter_context(open_endpoint(redis_url or self._settings.redis_url))
        )
        self._resources.callback(self._link.close)
        self._closed = False
        self._begin()

    def _begin(self) -> None:
        """Begin with an inbox of one's own, shared with no other process."""
        self._process = os.getpid()
        self._box = new_box()
        self._calls = Calls(self._settings, self._box)
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
        """Close the connections, and leave the embedded server if there is one.

        Calls that wait end with :class:`NoReply`, later ones with :class:`Unavailable`. Requests
        under way go on; their results can be polled by id.
        """
        self._closed = True
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
            NoReply: ``timeout`` ran out before a reply came, or the producer was closed.
            Unavailable: Redis is away.
            InferqError: the request was answered with this error.
        """
        terms = Terms.of(options)
        deadline_s = time.monotonic() + terms.timeout_s
        keys = self._calls.keys(model)
        (slot,) = self._submit(keys, [inputs], terms)
        self._inbox(keys).wait(slot, deadline_s)
        return slot.value()

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
        keys = self._calls.keys(model)
        inbox = self._inbox(keys)
        try:
            slots = self._submit(keys, list(many), Terms.of(options))
        except QueueFull as error:
            error.accepted = tuple(Handle(self, model, slot, inbox) for slot in error.accepted)
            raise
        return [Handle(self, model, slot, inbox) for slot in slots]

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
            Unavailable: Redis is away.
            InferqError: the request was answered with this error.
        """
        keys = self._calls.keys(model)
        wait_s = 0.0 if timeout is None else check_seconds("timeout", timeout)
        deadline_s = time.monotonic() + wait_s
        for pause_s in polls(self._settings.poll_s):
            reply = self._do(self._calls.result(keys, request_id))
            if reply is not None:
                return reply
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                break
            time.sleep(min(pause_s, left_s))
        raise NotReady(f"request '{request_id}' of model '{model}' is still pending")

    def cancel(self, model: str, request_id: str) -> bool:
        """Withdraw a request; true if that came in time, false if it is answered already.

        Raises:
            NotFound: no such request is known.
            Unavailable: Redis is away.
        """
        return self._do(self._calls.cancel(self._calls.keys(model), request_id))

    @overload
    def map(
        self,
        model: str,
        many: Iterable[object],
        *,
        window: int | None = None,
        return_errors: Literal[False] = False,
        **options: Unpack[RequestOptions],
    ) -> Iterator[Reply]: ...

    @overload
    def map(
        self,
        model: str,
        many: Iterable[object],
        *,
        window: int | None = None,
        return_errors: bool,
        **options: Unpack[RequestOptions],
    ) -> Iterator[Reply | InferqError]: ...

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

        At most ``window`` are under way at once, so memory stays bounded, and a full queue slows
        this call down instead of failing it.

        Args:
            model: the model's name.
            many: the inputs of each request; taken as the window moves.
            window: requests under way; 1,024 by default.
            return_errors: yield the error of a request that is wrong or failed in its place; by
                default it is raised when its turn comes, which ends the iteration.
            **options: see :class:`RequestOptions`, for every request alike.

        Raises:
            NotFound: no worker has ever published the model.
            Unavailable: Redis is away.
            InferqError: a request is wrong, or was answered with this error.
        """
        size = self._settings.map_window if window is None else window
        moving = Window.check(size, options)
        terms = Terms.of(options)
        keys = self._calls.keys(model)
        inbox = self._inbox(keys)
        source = iter(many)
        while True:
            moving.held += islice(source, moving.wanted())
            self._submit_portion(keys, moving, terms)
            if moving.under_way:
                head = moving.under_way.popleft()
                if isinstance(head, Slot):
                    inbox.wait(head, math.inf)
                result = head.result if isinstance(head, Slot) else head
                if isinstance(result, InferqError) and not return_errors:
                    raise result
                assert result is not None
                yield result
            elif not moving.held:
                return

    # Below: what the calls above share -------------------------------------------------------

    def _submit_portion(self, keys: Keys, moving: Window, terms: Terms) -> None:
        portion = moving.portion()
        if not portion:
            return
        expect = self._inbox(keys).expect
        try:
            accepted = self._do(self._calls.submit_each(keys, portion, terms, expect))
        except QueueFull as error:
            moving.submitted(len(portion), error.accepted)
            if moving.is_stuck:
                time.sleep(error.retry_after_ms / 1000)
        else:
            moving.submitted(len(portion), accepted)

    def _submit(self, keys: Keys, many: Sequence[object], terms: Terms) -> list[Slot]:
        expect = self._inbox(keys).expect
        # Submitted after its budget, a request would only be answered that it came too late.
        patience_s = min(self._settings.patience_s, terms.timeout_s)
        return self._do(self._calls.submit(keys, many, terms, expect), patience_s)

    def _do(self, steps: Steps[T], patience_s: float | None = None) -> T:
        """Carry steps out."""
        if self._closed:
            raise Unavailable("this producer is closed")
        patience_s = self._settings.patience_s if patience_s is None else patience_s
        try:
            flight = next(steps)
            while True:
                try:
                    answers = self._link.run(*flight, patience_s=patience_s)
                except InferqError as error:
                    flight = steps.throw(error)
                else:
                    flight = steps.send(answers)
        except StopIteration as end:
            value: T = end.value
            return value

    def _inbox(self, keys: Keys) -> Inbox:
        if os.getpid() != self._process:
            # A forked child would wait for a reading thread that only its parent has, and take
            # its parent's hints.
            self._begin()
        inbox = self._inboxes.get(keys.model)
        if inbox is None:
            settings = self._settings
            outstanding = Outstanding(keys, self._box, settings.poll_s)
            own = Link(self._link.endpoint)
            made = Inbox(outstanding, own, self._link, settings.patience_s)
            # Threads that race for it must end up with one inbox.
            inbox = self._inboxes.setdefault(keys.model, made)
            if inbox is made:
                self._resources.callback(inbox.close)
        return inbox
