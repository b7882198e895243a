"""The asyncio twin of :mod:`inferq.inbox`: one task reads for all coroutines that wait.

The task lives while somebody waits. A coroutine that is cancelled only leaves the line: it never
holds the connection, so it cannot leave an answer behind that the next would take for its own.
"""

import asyncio
import contextlib
import math
import time
from dataclasses import dataclass, field

from inferq.composer import Outgoing
from inferq.contract.errors import Unavailable
from inferq.inbox import closed, late
from inferq.outstanding import Outstanding, Slot, State
from inferq.patience import Patience
from inferq.redis_link import AsyncLink


class AsyncInbox:
    """Waits for replies; for any number of tasks of one event loop.

    Args:
        outstanding: what is awaited; this object's own from now on.
        own: a link that only reads the inbox; its socket timeout is longer than 4 s.
        shared: a link for short looks beside it.
        patience_s: how long a waiting task puts up with a server that is away.
    """

    def __init__(
        self, outstanding: Outstanding, own: AsyncLink, shared: AsyncLink, patience_s: float
    ) -> None:
        self._outstanding = outstanding
        self._own = own
        self._shared = shared
        self._patience_s = patience_s
        self._patience = Patience(patience_s)
        self._waiting: dict[_Waiter, None] = {}
        self._reader: asyncio.Task[None] | None = None
        self._closed = False

    def expect(self, outgoing: Outgoing) -> Slot:
        """Await the reply of a request that is about to be submitted."""
        return self._outstanding.add(outgoing.id, single=outgoing.single, now_s=time.monotonic())

    async def look(self, slot: Slot) -> None:
        """See whether the slot's reply is there, without waiting.

        Raises:
            Unavailable: Redis is away.
        """
        if slot.result is None:
            look = self._outstanding.look(slot.id)
            (value,) = await self._shared.run(look, patience_s=self._patience_s)
            self._outstanding.settle({slot.id: value})

    async def wait(self, slot: Slot, deadline_s: float) -> None:
        """Return once the slot has its result.

        Raises:
            NoReply: the deadline, on the monotonic clock, has passed, or the inbox was closed.
            Unavailable: Redis was away for longer than the patience.
        """
        if slot.state == State.ANSWERED:
            # Its hint went to whoever asked first.
            await self.look(slot)
        if slot.result is not None:
            return
        if self._closed:
            raise closed(slot)
        waiter = _Waiter(slot, time.monotonic())
        slot.wakers.append(waiter.wake)
        self._waiting[waiter] = None
        try:
            if self._reader is None or self._reader.done():
                self._reader = asyncio.create_task(self._read_while_awaited(), name="inferq-inbox")
            left_s = None if deadline_s == math.inf else max(0.0, deadline_s - waiter.since_s)
            await asyncio.wait([waiter.woken], timeout=left_s)
        finally:
            del self._waiting[waiter]
            slot.wakers.remove(waiter.wake)
        if slot.result is None:
            raise waiter.failure or late(slot)

    async def close(self) -> None:
        """End all waits, and close the connection."""
        self._closed = True
        self._end_waits()
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.wait([self._reader])
        await self._own.close()

    async def _read_while_awaited(self) -> None:
        try:
            while any(not waiter.woken.done() for waiter in self._waiting):
                try:
                    await self._read()
                except Unavailable as error:
                    now_s = time.monotonic()
                    pause_s = self._patience.failed(now_s)
                    self._give_up(error, now_s)
                    await asyncio.sleep(pause_s)
                else:
                    self._patience.worked()
        except asyncio.CancelledError:
            # The loop ends; those who wait are told, unless it has told them.
            self._end_waits()
            raise
        except Exception as error:  # noqa: BLE001 - nobody but those who wait will ever hear of it
            for waiter in self._waiting:
                waiter.wake(error)

    def _end_waits(self) -> None:
        for waiter in self._waiting:
            waiter.wake(closed(waiter.slot))

    def _give_up(self, error: Unavailable, now_s: float) -> None:
        """Let ``error`` end the waits that have lasted as long as they may."""
        for waiter in self._waiting:
            if self._patience.is_over(waiter.since_s, now_s):
                waiter.wake(error)

    async def _read(self) -> None:
        """Take one turn of reading."""
        steps = self._outstanding.turn(time.monotonic(), math.inf)
        flight = next(steps, None)
        with contextlib.suppress(StopIteration):
            while flight is not None:
                flight = steps.send(await self._own.run(*flight))


@dataclass(eq=False)
class _Waiter:
    """A coroutine that waits for a slot since then."""

    slot: Slot
    since_s: float
    woken: asyncio.Future[None] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    failure: Exception | None = None

    def wake(self, failure: Exception | None = None) -> None:
        """End the wait."""
        if not self.woken.done():
            self.failure = failure
            self.woken.set_result(None)
