"""One connection that waits for all outstanding replies of a producer from one model.

There is no background thread. Of the threads that wait, one reads the inbox for all of them; when
its own reply has come it hands the reading to another. A lone caller reads for itself, without a
thread switch between the reply and its use. :mod:`inferq.aio_inbox` has the same for asyncio.
"""

import math
import threading
import time
from dataclasses import dataclass, field

from inferq.composer import Outgoing
from inferq.contract.errors import NoReply, Unavailable
from inferq.outstanding import Outstanding, Slot, State
from inferq.patience import Patience
from inferq.redis_link import Link


class Inbox:
    """Waits for replies; for any number of threads.

    Args:
        outstanding: what is awaited; this object's own from now on.
        own: a link that only reads the inbox; its socket timeout is longer than 4 s.
        shared: a link for short looks beside it.
        patience_s: how long a waiting thread puts up with a server that is away.
    """

    def __init__(
        self, outstanding: Outstanding, own: Link, shared: Link, patience_s: float
    ) -> None:
        self._outstanding = outstanding
        self._own = own
        self._shared = shared
        self._patience_s = patience_s
        # Only the thread that reads touches it.
        self._patience = Patience(patience_s)
        # Guards everything below and the outstanding slots; never held during a round trip.
        self._lock = threading.Lock()
        self._waiting: dict[_Turn, None] = {}
        self._reading: _Turn | None = None
        self._closed = False

    def expect(self, outgoing: Outgoing) -> Slot:
        """Await the reply of a request that is about to be submitted."""
        with self._lock:
            return self._outstanding.add(
                outgoing.id, single=outgoing.single, now_s=time.monotonic()
            )

    def look(self, slot: Slot) -> None:
        """See whether the slot's reply is there, without waiting.

        Raises:
            Unavailable: Redis is away.
        """
        if slot.result is None:
            look = self._outstanding.look(slot.id)
            (value,) = self._shared.run(look, patience_s=self._patience_s)
            with self._lock:
                self._outstanding.settle({slot.id: value})

    def wait(self, slot: Slot, deadline_s: float) -> None:
        """Return once the slot has its result.

        Raises:
            NoReply: the deadline, on the monotonic clock, has passed, or the inbox was closed.
            Unavailable: Redis was away for longer than the patience.
        """
        if slot.state == State.ANSWERED:
            # Its hint went to whoever asked first.
            self.look(slot)
        since_s = time.monotonic()
        while slot.result is None:
            turn = _Turn(slot, since_s)
            try:
                self._line_up(turn)
                left_s = max(0.0, deadline_s - time.monotonic())
                turn.woken.wait(None if left_s == math.inf else left_s)
                if self._reading is turn:
                    self._read_until_settled(turn, deadline_s)
                elif slot.result is None:
                    self._check(turn, deadline_s)
            finally:
                self._leave(turn)

    def close(self) -> None:
        """End all waits, and close the connection once no thread reads from it."""
        with self._lock:
            self._closed = True
            for turn in self._waiting:
                turn.woken.set()
        self._own.close()

    def _line_up(self, turn: "_Turn") -> None:
        with self._lock:
            self._waiting[turn] = None
            turn.slot.wakers.append(turn.woken.set)
            if self._reading is None:
                self._reading = turn
            if self._reading is turn or turn.slot.result is not None or self._closed:
                turn.woken.set()

    def _leave(self, turn: "_Turn") -> None:
        """Step out of the line, and pass the reading on if it is this thread's."""
        with self._lock:
            if self._waiting.pop(turn, turn) is None:
                turn.slot.wakers.remove(turn.woken.set)
            if self._reading is turn:
                others = (other for other in self._waiting if other.slot.result is None)
                self._reading = next(others, None)
                if self._reading is not None:
                    self._reading.woken.set()

    def _read_until_settled(self, turn: "_Turn", deadline_s: float) -> None:
        while turn.slot.result is None:
            self._check(turn, deadline_s)
            try:
                self._read(deadline_s)
            except Unavailable as error:
                now_s = time.monotonic()
                pause_s = self._patience.failed(now_s)
                self._give_up(error, now_s)
                if turn.failure is None:
                    time.sleep(max(0.0, min(pause_s, deadline_s - now_s)))
            else:
                self._patience.worked()

    def _give_up(self, error: Unavailable, now_s: float) -> None:
        """Let ``error`` end the waits that have lasted as long as they may, this one included."""
        with self._lock:
            for turn in self._waiting:
                if self._patience.is_over(turn.since_s, now_s):
                    turn.failure = error
                    turn.woken.set()

    def _read(self, deadline_s: float) -> None:
        """Take one turn of reading, the lock held for everything but the round trips."""
        with self._lock:
            steps = self._outstanding.turn(time.monotonic(), deadline_s)
            flight = next(steps, None)
        while flight is not None:
            wait_s = max(0.0, deadline_s - time.monotonic())
            try:
                answers = self._own.run(*flight, wait_s=wait_s)
            except NoReply:
                return
            with self._lock:
                try:
                    flight = steps.send(answers)
                except StopIteration:
                    return

    def _check(self, turn: "_Turn", deadline_s: float) -> None:
        if self._closed:
            raise closed(turn.slot)
        if turn.failure is not None:
            raise turn.failure
        if time.monotonic() >= deadline_s:
            raise late(turn.slot)


@dataclass(eq=False)
class _Turn:
    """A thread that waits for a slot since then: woken when it has something to do."""

    slot: Slot
    since_s: float
    woken: threading.Event = field(default_factory=threading.Event)
    failure: Unavailable | None = None


def late(slot: Slot) -> NoReply:
    """Return the error of a wait whose time is over."""
    return NoReply(f"no reply to request '{slot.id}' in time; it may still be answered")


def closed(slot: Slot) -> NoReply:
    """Return the error of a wait that ended with its producer."""
    return NoReply(
        f"the producer was closed before the reply to request '{slot.id}' came; it may still be "
        "answered"
    )
