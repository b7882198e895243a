"""Both producers behind one blocking face, so that one test speaks to either.

The asynchronous one runs in a loop of its own thread; at the end of the test nothing may be left
running in that loop.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator
from typing import Any, Protocol, Self, TypeVar

import pytest

from inferq import AsyncHandle, AsyncProducer, InferqError, Producer, Reply
from inferq.settings import ProducerSettings

T = TypeVar("T")


class AnyHandle(Protocol):
    """What both handles can do."""

    @property
    def id(self) -> str: ...
    def done(self) -> bool: ...
    def result(self, timeout: float | None = None) -> Reply: ...
    def cancel(self) -> bool: ...


class AnyProducer(Protocol):
    """What both producers can do."""

    def infer(self, model: str, inputs: object, **options: Any) -> Reply: ...
    def submit(self, model: str, inputs: object, **options: Any) -> AnyHandle: ...
    def submit_many(
        self, model: str, many: Iterable[object], **options: Any
    ) -> list[AnyHandle]: ...
    def result(self, model: str, request_id: str, *, timeout: float | None = None) -> Reply: ...
    def cancel(self, model: str, request_id: str) -> bool: ...
    # Replies, or errors among them; a test knows which.
    def map(
        self, model: str, many: Iterable[object], **options: Any
    ) -> Generator[Any, None, None]: ...
    def close(self) -> None: ...


class LoopThread:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        # What goes wrong where nobody awaits it: the test must fail all the same.
        self._complaints: list[str] = []
        self._loop.set_exception_handler(lambda _, context: self._complaints.append(str(context)))
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop and wait for it, from any other thread."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(60.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End the loop, in which nothing may run any more."""
        left = self.run(_other_tasks())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10.0)
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()
        assert not left, f"still running: {left}"
        assert not self._complaints, self._complaints


async def _other_tasks() -> list[str]:
    return [repr(task) for task in asyncio.all_tasks() if task is not asyncio.current_task()]


class BlockingHandle:
    """An :class:`AsyncHandle` for a test that blocks."""

    def __init__(self, loop: LoopThread, handle: AsyncHandle) -> None:
        self.id = handle.id
        self._loop = loop
        self._handle = handle

    def __repr__(self) -> str:
        return repr(self._handle)

    def done(self) -> bool:
        return self._loop.run(self._handle.done())

    def result(self, timeout: float | None = None) -> Reply:
        return self._loop.run(self._handle.result(timeout))

    def cancel(self) -> bool:
        return self._loop.run(self._handle.cancel())


class BlockingProducer:
    """An :class:`AsyncProducer` for a test that blocks."""

    def __init__(self, loop: LoopThread, url: str, settings: ProducerSettings) -> None:
        self._loop = loop
        self._producer = AsyncProducer(url, settings=settings)

    def infer(self, model: str, inputs: object, **options: Any) -> Reply:
        return self._loop.run(self._producer.infer(model, inputs, **options))

    def submit(self, model: str, inputs: object, **options: Any) -> BlockingHandle:
        handle = self._loop.run(self._producer.submit(model, inputs, **options))
        return BlockingHandle(self._loop, handle)

    def submit_many(self, model: str, many: Iterable[object], **options: Any) -> list[AnyHandle]:
        try:
            handles = self._loop.run(self._producer.submit_many(model, many, **options))
        except InferqError as error:
            if hasattr(error, "accepted"):
                error.accepted = tuple(BlockingHandle(self._loop, each) for each in error.accepted)
            raise
        return [BlockingHandle(self._loop, each) for each in handles]

    def result(self, model: str, request_id: str, *, timeout: float | None = None) -> Reply:
        return self._loop.run(self._producer.result(model, request_id, timeout=timeout))

    def cancel(self, model: str, request_id: str) -> bool:
        return self._loop.run(self._producer.cancel(model, request_id))

    def map(self, model: str, many: Iterable[object], **options: Any) -> Generator[Any, None, None]:
        replies = self._producer.map(model, many, **options)
        try:
            while True:
                try:
                    yield self._loop.run(_next(replies))
                except StopAsyncIteration:
                    return
        finally:
            self._loop.run(_end(replies))

    def close(self) -> None:
        self._loop.run(self._producer.close())


async def _next(replies: Any) -> Reply | InferqError:
    reply: Reply | InferqError = await anext(replies)
    return reply


async def _end(replies: Any) -> None:
    await replies.aclose()


Connect = Callable[..., AnyProducer]


@pytest.fixture(params=["sync", "async"])
def connect(request: pytest.FixtureRequest, redis_url: str, prefix: str) -> Iterator[Connect]:
    """Make producers, ``connect(url, setting=...)``, that are closed with the test.

    By default they speak to the run's server, under the test's prefix.
    """
    with contextlib.ExitStack() as made:
        loop = made.enter_context(LoopThread()) if request.param == "async" else None

        def make(url: str = redis_url, **settings: Any) -> AnyProducer:
            chosen = ProducerSettings(**{"prefix": prefix, **settings})
            producer: AnyProducer = (
                Producer(url, settings=chosen)  # type: ignore[assignment]
                if loop is None
                else BlockingProducer(loop, url, chosen)
            )
            made.callback(producer.close)
            return producer

        yield make


@pytest.fixture
def producer(connect: Connect) -> AnyProducer:
    """Return a producer of either kind on the run's server, under the test's prefix."""
    return connect()
