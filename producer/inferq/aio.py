"""The producer of asyncio programs; :mod:`inferq.producer` has the same for those that block.

What a method asks of Redis and what it makes of the answers is shared with the blocking one; here
is how it waits.
"""

import asyncio
import math
import time
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Iterable,
    Iterator,
    Sequence,
)
from contextlib import ExitStack
from itertools import islice
from types import TracebackType
from typing import Literal, Self, TypeVar, Unpack, overload

from inferq.aio_inbox import AsyncInbox
from inferq.calls import Calls, polls
from inferq.contract.errors import InferqError, NotReady, QueueFull, Unavailable
from inferq.contract.keys import Keys
from inferq.contract.replies import Reply
from inferq.endpoint import EMBEDDED, Endpoint, open_endpoint
from inferq.ids import new_box
from inferq.options import RequestOptions, Terms, check_seconds
from inferq.outstanding import Outstanding, Slot
from inferq.redis_link import AsyncLink, Steps
from inferq.settings import ProducerSettings
from inferq.window import Window

T = TypeVar("T")


class AsyncHandle:
    """One submitted request.

    Attributes:
        id: its request id, good for :meth:`AsyncProducer.result` in any process.
        model: the model it went to.
    """

    def __init__(
        self, producer: "AsyncProducer", model: str, slot: Slot, inbox: AsyncInbox
    ) -> None:
        self.id = slot.id
        self.model = model
        self._producer = producer
        self._slot = slot
        self._inbox = inbox

    def __repr__(self) -> str:
        state = "pending" if self._slot.result is None else "done"
        return f"<AsyncHandle {self.id} of {self.model}: {state}>"

    async def done(self) -> bool:
        """Tell whether the reply (or an error in its place) is there; one look, no waiting.

        Raises:
            Unavailable: Redis is away.
        """
        await self._inbox.look(self._slot)
        return self._slot.result is not None

    async def result(self, timeout: float | None = None) -> Reply:  # noqa: ASYNC109 - as Handle
        """Wait for the reply and return it; the same one each time.

        Args:
            timeout: seconds this call waits; for ever by default. Nothing is withdrawn.

        Raises:
            NoReply: ``timeout`` is over, or the producer was closed.
            Unavailable: Redis is away.
            InferqError: the request was answered with an error, or is not known any more.
        """
        wait_s = math.inf if timeout is None else check_seconds("timeout", timeout)
        await self._inbox.wait(self._slot, time.monotonic() + wait_s)
        return self._slot.value()

    async def cancel(self) -> bool:
        """Withdraw the request; false if it is answered already.

        One that runs keeps running, and its result is discarded.

        Raises:
            NotFound: the request is not known any more.
            Unavailable: Redis is away.
        """
        was_in_time = await self._producer.cancel(self.model, self.id)
        # No hint will come before a worker drops it.
        await self._inbox.look(self._slot)
        return was_in_time


class AsyncProducer:
    """Submits requests to models and gets their replies. For the tasks of one event loop.

    A task that is cancelled while it waits disturbs nobody else; its request, if it was submitted,
    goes on.

    Args:
        redis_url: ``redis://``, ``rediss://``, ``unix://`` or ``embedded``; by default
            ``INFERQ_REDIS_URL``, then ``REDIS_URL``, then ``redis://localhost:6379/0``.
        settings: everything else; by default from the environment.

    Raises:
        InvalidSetting: the address or a setting is wrong. Redis is first contacted by a call,
            which also starts the server of ``embedded``.
    """

    def __init__(
        self, redis_url: str | None = None, *, settings: ProducerSettings | None = None
    ) -> None:
        self._settings = settings or ProducerSettings()
        self._url = redis_url or self._settings.redis_url
        self._link = None if self._url == EMBEDDED else AsyncLink(Endpoint.parse(self._url))
        # Used with the address "embedded" only.
        self._server = ExitStack()
        self._opening: asyncio.Task[None] | None = None
        self._box = new_box()
        self._calls = Calls(self._settings, self._box)
        self._inboxes: dict[str, AsyncInbox] = {}
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections, and leave the embedded server if there is one.

        Calls that wait end with :class:`NoReply`, later ones with :class:`Unavailable`. Requests
        under way go on; their results can be polled by id.
        """
        self._closed = True
        for inbox in self._inboxes.values():
            await inbox.close()
        if self._opening is not None:
            await asyncio.wait([self._opening])
        if self._link is not None:
            await self._link.close()
        if self._opening is not None:
            # In a thread, since the last user of a server waits for its end.
            await asyncio.to_thread(self._server.close)

    async def infer(self, model: str, inputs: object, **options: Unpack[RequestOptions]) -> Reply:
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
        inbox = await self._inbox(keys)
        (slot,) = await self._submit(keys, [inputs], terms, inbox)
        await inbox.wait(slot, deadline_s)
        return slot.value()

    async def submit(
        self, model: str, inputs: object, **options: Unpack[RequestOptions]
    ) -> AsyncHandle:
        """Submit one request and return at once; see :meth:`infer` for arguments and errors.

        Under an id that is known already it joins the earlier request, whatever its inputs.
        """
        return (await self.submit_many(model, [inputs], **options))[0]

    async def submit_many(
        self, model: str, many: Iterable[object], **options: Unpack[RequestOptions]
    ) -> list[AsyncHandle]:
        """Submit several requests in one round trip; see :meth:`infer` for arguments and errors.

        Up to 1,000 requests (64 MiB) are submitted all or none. Of more, those in front of a full
        queue are submitted; :attr:`QueueFull.accepted` has their handles.
        """
        terms = Terms.of(options)
        keys = self._calls.keys(model)
        inbox = await self._inbox(keys)
        try:
            slots = await self._submit(keys, list(many), terms, inbox)
        except QueueFull as error:
            error.accepted = tuple(AsyncHandle(self, model, slot, inbox) for slot in error.accepted)
            raise
        return [AsyncHandle(self, model, slot, inbox) for slot in slots]

    async def result(
        self,
        model: str,
        request_id: str,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - as Producer
    ) -> Reply:
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
            reply = await self._do(self._calls.result(keys, request_id))
            if reply is not None:
                return reply
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                break
            await asyncio.sleep(min(pause_s, left_s))
        raise NotReady(f"request '{request_id}' of model '{model}' is still pending")

    async def cancel(self, model: str, request_id: str) -> bool:
        """Withdraw a request; true if that came in time, false if it is answered already.

        Raises:
            NotFound: no such request is known.
            Unavailable: Redis is away.
        """
        return await self._do(self._calls.cancel(self._calls.keys(model), request_id))

    @overload
    def map(
        self,
        model: str,
        many: Iterable[object] | AsyncIterable[object],
        *,
        window: int | None = None,
        return_errors: Literal[False] = False,
        **options: Unpack[RequestOptions],
    ) -> AsyncGenerator[Reply, None]: ...

    @overload
    def map(
        self,
        model: str,
        many: Iterable[object] | AsyncIterable[object],
        *,
        window: int | None = None,
        return_errors: bool,
        **options: Unpack[RequestOptions],
    ) -> AsyncGenerator[Reply | InferqError, None]: ...

    async def map(
        self,
        model: str,
        many: Iterable[object] | AsyncIterable[object],
        *,
        window: int | None = None,
        return_errors: bool = False,
        **options: Unpack[RequestOptions],
    ) -> AsyncGenerator[Reply | InferqError, None]:
        """Submit any number of requests and yield their replies in order.

        At most ``window`` are under way at once, so memory stays bounded, and a full queue slows
        this call down instead of failing it.

        Args:
            model: the model's name.
            many: the inputs of each request, from an iterable of either kind; taken as the window
                moves.
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
        inbox = await self._inbox(keys)
        source = aiter(many) if isinstance(many, AsyncIterable) else iter(many)
        while True:
            moving.held += await _take(source, moving.wanted())
            await self._submit_portion(keys, moving, terms, inbox)
            if moving.under_way:
                head = moving.under_way.popleft()
                if isinstance(head, Slot):
                    await inbox.wait(head, math.inf)
                result = head.result if isinstance(head, Slot) else head
                if isinstance(result, InferqError) and not return_errors:
                    raise result
                assert result is not None
                yield result
            elif not moving.held:
                return

    # Below: what the calls above share -------------------------------------------------------

    async def _submit_portion(
        self, keys: Keys, moving: Window, terms: Terms, inbox: AsyncInbox
    ) -> None:
        portion = moving.portion()
        if not portion:
            return
        try:
            accepted = await self._do(self._calls.submit_each(keys, portion, terms, inbox.expect))
        except QueueFull as error:
            moving.submitted(len(portion), error.accepted)
            if moving.is_stuck:
                await asyncio.sleep(error.retry_after_ms / 1000)
        else:
            moving.submitted(len(portion), accepted)

    async def _submit(
        self, keys: Keys, many: Sequence[object], terms: Terms, inbox: AsyncInbox
    ) -> list[Slot]:
        # Submitted after its budget, a request would only be answered that it came too late.
        patience_s = min(self._settings.patience_s, terms.timeout_s)
        return await self._do(self._calls.submit(keys, many, terms, inbox.expect), patience_s)

    async def _do(self, steps: Steps[T], patience_s: float | None = None) -> T:
        """Carry steps out."""
        link = await self._connect()
        patience_s = self._settings.patience_s if patience_s is None else patience_s
        try:
            flight = next(steps)
            while True:
                try:
                    answers = await link.run(*flight, patience_s=patience_s)
                except InferqError as error:
                    flight = steps.throw(error)
                else:
                    flight = steps.send(answers)
        except StopIteration as end:
            value: T = end.value
            return value

    async def _connect(self) -> AsyncLink:
        if self._closed:
            raise Unavailable("this producer is closed")
        if self._link is not None:
            return self._link
        if self._opening is None or self._opening.done():
            self._opening = asyncio.create_task(self._open(), name="inferq-embedded")
        # Shielded: it is opened for all callers, and one of them may be cancelled.
        await asyncio.shield(self._opening)
        return await self._connect()

    async def _open(self) -> None:
        """Start the embedded server, in a thread: that takes a while."""
        opening = open_endpoint(self._url)
        self._link = AsyncLink(await asyncio.to_thread(self._server.enter_context, opening))

    async def _inbox(self, keys: Keys) -> AsyncInbox:
        link = await self._connect()
        inbox = self._inboxes.get(keys.model)
        if inbox is None:
            settings = self._settings
            outstanding = Outstanding(keys, self._box, settings.poll_s)
            own = AsyncLink(link.endpoint)
            inbox = AsyncInbox(outstanding, own, link, settings.patience_s)
            self._inboxes[keys.model] = inbox
        return inbox


async def _take(source: Iterator[object] | AsyncIterator[object], count: int) -> list[object]:
    """Take up to ``count`` items."""
    if isinstance(source, Iterator):
        return list(islice(source, count))
    taken: list[object] = []
    while len(taken) < count:
        try:
            taken.append(await anext(source))
        except StopAsyncIteration:
            break
    return taken
