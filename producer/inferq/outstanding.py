"""Requests whose replies are awaited, and how to read for them. Pure; used by both producers.

The inbox tells which replies are ready, but its ids are only hints: one can be lost with a
connection, and a request that joined an earlier one is announced to somebody else. So all requests
are looked for at their reply keys as well, once in a while.
"""

import weakref
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from inferq.contract.errors import InferqError, NotFound
from inferq.contract.keys import Keys
from inferq.contract.replies import Reply, ReplyReader
from inferq.redis_link import Command, Steps, command

_IDS_PER_READ: Final = 1_000
# A block must not outlive the connection's patience.
_LONGEST_BLOCK_S: Final = 4.0
# Some servers take less than a millisecond for "without end".
_SHORTEST_BLOCK_S: Final = 0.001


class State:
    """What ``submit.lua`` says of a message."""

    PUSHED: Final = 1
    PENDING: Final = 2
    ANSWERED: Final = 3


@dataclass(eq=False, slots=True, weakref_slot=True)
class Slot:
    """One awaited reply. It is awaited for as long as somebody holds the slot.

    Attributes:
        id: the request's id.
        single: the reply loses its batch dimension.
        state: a :class:`State` once the submission is acknowledged.
        result: the reply or the error, once it is known.
        wakers: called when it is.
    """

    id: str
    single: bool
    state: int | None = None
    result: Reply | InferqError | None = None
    wakers: list[Callable[[], object]] = field(default_factory=list)

    def value(self) -> Reply:
        """Return the reply.

        Raises:
            InferqError: the request was answered with an error, or is not known any more.
        """
        if isinstance(self.result, Reply):
            return self.result
        assert self.result is not None, "asked before the result was there"
        # Raised again and again, it would collect the frames of every time.
        raise self.result.with_traceback(None)


class _SlotRef(weakref.ref[Slot]):
    """A weak reference that remembers whose slot it was."""

    __slots__ = ("id",)

    def __init__(self, slot: Slot, callback: Callable[["_SlotRef"], object]) -> None:
        super().__init__(slot, callback)  # type: ignore[call-arg]
        self.id = slot.id


class Outstanding:
    """The awaited replies of one producer from one model.

    Args:
        keys: the model's keys.
        box: the inbox that replies are announced in.
        poll_s: how often all are looked for beside the inbox.
    """

    def __init__(self, keys: Keys, box: str, poll_s: float) -> None:
        self._keys = keys
        self._inbox = keys.inbox(box)
        self._poll_s = poll_s
        self._reader = ReplyReader()
        # Weakly, since a caller may submit and never ask.
        self._slots: dict[str, list[_SlotRef]] = {}
        # Appended to wherever a slot's last holder lets go, in any thread, whatever lock it holds.
        self._dropped: deque[_SlotRef] = deque()
        self._sweep_at_s = 0.0

    def __len__(self) -> int:
        self._forget_dropped()
        return len(self._slots)

    def add(self, request_id: str, *, single: bool, now_s: float) -> Slot:
        """Await a request that is about to be submitted, for as long as the slot is held."""
        self._forget_dropped()
        if not self._slots:
            self._sweep_at_s = now_s + self._poll_s
        slot = Slot(request_id, single)
        self._slots.setdefault(request_id, []).append(_SlotRef(slot, self._dropped.append))
        return slot

    def turn(self, now_s: float, until_s: float) -> Steps[None]:
        """Take one turn of reading: look for all that is awaited if that is due, else for hints.

        To wait for hints it blocks, until the first is there, but not beyond ``until_s`` on the
        monotonic clock, give or take the server's tick of 100 ms.
        """
        self._forget_dropped()
        if now_s >= self._sweep_at_s:
            self._sweep_at_s = now_s + self._poll_s
            awaited = list(self._slots)
            for start in range(0, len(awaited), _IDS_PER_READ):
                yield from self._fetch(awaited[start : start + _IDS_PER_READ])
            return
        ends_s = min(self._sweep_at_s, until_s, now_s + _LONGEST_BLOCK_S)
        block_s = max(_SHORTEST_BLOCK_S, ends_s - now_s)
        blocking = command("BLMPOP", block_s, 1, self._inbox, "LEFT", "COUNT", _IDS_PER_READ)
        if len(self._slots) == 1:
            # The reply rides along with the hint that announces it.
            only = next(iter(self._slots))
            hints, value = yield [blocking, self.look(only)]
            self.settle({only: value})
        else:
            (hints,) = yield [blocking]
        if hints:
            names = dict.fromkeys(hint.decode(errors="replace") for hint in hints[1])
            yield from self._fetch([name for name in names if name in self._slots])

    def look(self, request_id: str) -> Command:
        """Build the command whose answer :meth:`settle` takes."""
        return command("GET", self._keys.reply(request_id))

    def settle(self, values: Mapping[str, bytes | None]) -> None:
        """Take what reply keys held: set the results that are there, and wake who waits for them.

        Empty is pending still. A key that is gone settles its request as unknown, unless its
        submission is still under way.
        """
        for request_id, value in values.items():
            if value == b"":
                continue
            unsettled = []
            for ref in self._slots.pop(request_id, ()):
                slot = ref()
                if slot is None:
                    continue
                if value is None and slot.state is None:
                    unsettled.append(ref)
                    continue
                slot.result = self._result(slot, value)
                for wake in slot.wakers:
                    wake()
            if unsettled:
                self._slots[request_id] = unsettled

    def _fetch(self, ids: list[str]) -> Steps[None]:
        if ids:
            (values,) = yield [command("MGET", *map(self._keys.reply, ids))]
            self.settle(dict(zip(ids, values, strict=True)))

    def _forget_dropped(self) -> None:
        while self._dropped:
            ref = self._dropped.popleft()
            refs = self._slots.get(ref.id, [])
            if ref in refs:
                refs.remove(ref)
                if not refs:
                    del self._slots[ref.id]

    def _result(self, slot: Slot, value: bytes | None) -> Reply | InferqError:
        if value is None:
            return unknown_request(self._keys.model, slot.id)
        try:
            result = self._reader.read(value)
        except InferqError as error:
            return error
        if not slot.single or not isinstance(result, Reply):
            return result
        # The request it joined may have had several rows, none of which is its own.
        is_row = slot.state == State.PUSHED or all(len(array) == 1 for array in result.values())
        return result.as_single() if is_row else result


def unknown_request(model: str, request_id: str) -> NotFound:
    """Return the error of a request nobody knows (any more)."""
    return NotFound(
        f"no request '{request_id}' of model '{model}' is known: never submitted, pushed without "
        "a pending mark and still waiting, or its reply has expired"
    )
