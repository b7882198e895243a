"""One connection that waits for all outstanding replies of a producer from one model.

There is no background thread. Of the threads that wait, one reads the inbox for all of them; when
its own reply has come it hands the reading to another. A lone caller reads for itself, without a
thread switch between the reply and its use.
"""

import threading
import time
from collections import deque
from typing import Any

from inferq.contract.errors import InferqError, NoReply, Unavailable
from inferq.contract.keys import Keys
from inferq.outstanding import Outstanding, Slot
from inferq.redis_link import Link, command, pauses

_HINTS_PER_READ = 1_000
# A block must not outlive the connection's patience.
_LONGEST_BLOCK_S = 4.0


class Inbox:
    """Waits for replies; for any number of threads.

    Args:
        keys: the model's keys.
        box: name of the inbox.
        link: whose socket timeout is longer than 4 s.
        poll_s: how often a reply is looked for beside the inbox.
        patience_s: how long a waiting thread puts up with a server that is away.
    """

    def __init__(self, keys: Keys, box: str, link: Link, poll_s: float, patience_s: float) -> None:
        self._keys = keys
        self._key = keys.inbox(box)
        self._link = link
        self._patience_s = patience_s
        self._outstanding = Outstanding(keys.model, poll_s)
        # Guards everything below and the outstanding slots; never held during a round trip.
        self._lock = threading.Lock()
        self._someone_reads = False
        self._waiting: deque[tuple[Slot, threading.Event]] = deque()

    def expect(self, request_id: str, state: int, *, single: bool) -> Slot:
        """Await the reply of a request that was just submitted."""
        with self._lock:
            return self._outstanding.add(request_id, state, single=single, now_s=time.monotonic())

    def forget(self, slot: Slot) -> None:
        """Stop awaiting a reply that nobody will ask for."""
        with self._lock:
            self._outstanding.forget(slot)

    def wait(self, slot: Slot, deadline_s: float) -> None:
        """Return once the slot has its result.

        Raises:
            NoReply: the deadline, on the monotonic clock, has passed.
            Unavailable: Redis was away for longer than the patience.
        """
        while slot.result is None:
            turn = threading.Event()
            with self._lock:
                if slot.result is not None:
                    return
                if self._someone_reads:
                    self._waiting.append((slot, turn))
                else:
                    self._someone_reads = True
                    turn.set()
            left_s = deadline_s - time.monotonic()
            if not turn.wait(None if left_s == float("inf") else max(0.0, left_s)):
                self._step_back(slot, turn)
                if slot.result is None:
                    raise NoReply(f"no reply to request '{slot.id}' in time")
            if slot.result is None:
                self._read_for_all(slot, deadline_s)

    def look(self, slot: Slot) -> None:
        """See whether the slot's reply is there, without waiting.

        Raises:
            Unavailable: Redis is away.
        """
        if slot.result is None:
            self._settle([slot.id], self._link.run(command("GET", self._keys.reply(slot.id))))

    def _step_back(self, slot: Slot, turn: threading.Event) -> None:
        """Leave the queue of waiting threads; the reading may have been handed over already."""
        with self._lock:
            if (slot, turn) in self._waiting:
                self._waiting.remove((slot, turn))
                return
        if slot.result is None:
            self._hand_over()

    def _read_for_all(self, slot: Slot, deadline_s: float) -> None:
        """Read until this thread's own reply is there, then let another thread read."""
        tries = pauses()
        broken_since_s = float("inf")
        try:
            while slot.result is None:
                now_s = time.monotonic()
                if now_s >= deadline_s:
                    raise NoReply(f"no reply to request '{slot.id}' in time")
                try:
                    self._read(deadline_s)
                except Unavailable:
                    broken_since_s = min(broken_since_s, now_s)
                    if time.monotonic() - broken_since_s >= self._patience_s:
                        raise
                    time.sleep(min(next(tries), max(0.0, deadline_s - time.monotonic())))
                else:
                    broken_since_s = float("inf")
                    tries = pauses()
        finally:
            self._hand_over()

    def _hand_over(self) -> None:
        with self._lock:
            self._someone_reads = False
            while self._waiting:
                slot, turn = self._waiting.popleft()
                turn.set()
                if slot.result is None:
                    self._someone_reads = True
                    return

    def _read(self, deadline_s: float) -> None:
        """Block for hints once, and fetch the replies they name; look for others that are due."""
        now_s = time.monotonic()
        with self._lock:
            due = self._outstanding.due(now_s)
            only = self._outstanding.only_id()
            until_s = min(self._outstanding.next_look_s(), deadline_s, now_s + _LONGEST_BLOCK_S)
        if due:
            self._fetch(due)
            return
        block_s = max(0.001, until_s - now_s)
        # Redis rounds a short block up to its tick of 100 ms; the deadline is ours to keep.
        wait_s = max(0.0, deadline_s - now_s)
        blocking = command("BLMPOP", block_s, 1, self._key, "LEFT", "COUNT", _HINTS_PER_READ)
        try:
            if only is not None:
                # The reply rides along with the hint that announces it.
                hints, value = self._link.once(
                    [blocking, command("GET", self._keys.reply(only))], wait_s=wait_s
                )
                _raise_errors(hints, value)
                self._settle([only], [value])
            else:
                (hints,) = self._link.once([blocking], wait_s=wait_s)
                _raise_errors(hints)
        except NoReply:
            return
        if hints:
            with self._lock:
                ready = self._outstanding.known(hints[1])
            self._fetch(ready)

    def _fetch(self, ids: list[str]) -> None:
        if ids:
            (values,) = self._link.run(command("MGET", *map(self._keys.reply, ids)))
            self._settle(ids, values)

    def _settle(self, ids: list[str], values: list[bytes | None]) -> None:
        with self._lock:
            settled = {
                id(slot) for slot in self._outstanding.settle(dict(zip(ids, values, strict=True)))
            }
            for slot, turn in list(self._waiting):
                if id(slot) in settled:
                    self._waiting.remove((slot, turn))
                    turn.set()


def _raise_errors(*answers: Any) -> None:
    for answer in answers:
        if isinstance(answer, InferqError):
            raise answer
