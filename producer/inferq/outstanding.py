"""Requests whose replies are awaited, and when to look for which. Pure; used by both producers.

The inbox tells which replies are ready, but its ids are only hints: one can be lost with a
connection, and a request that joined an earlier one is announced to somebody else. So every
request is looked for at its reply key as well, once in a while.
"""

import heapq
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from inferq.calls import State, unknown_request
from inferq.contract.errors import InferqError
from inferq.contract.replies import Reply, ReplyReader


@dataclass(eq=False, slots=True)
class Slot:
    """One awaited reply.

    Attributes:
        id: the request's id.
        single: the reply loses its batch dimension.
        result: the reply or the error, once it is known.
    """

    id: str
    single: bool
    result: Reply | InferqError | None = None


class Outstanding:
    """The awaited replies of one producer from one model."""

    def __init__(self, model: str, poll_s: float) -> None:
        self._model = model
        self._poll_s = poll_s
        self._reader = ReplyReader()
        self._slots: dict[str, list[Slot]] = {}
        # When to look for which id; entries of settled ones are skipped when they come up.
        self._looks: list[tuple[float, str]] = []

    def __len__(self) -> int:
        return len(self._slots)

    def add(self, request_id: str, state: int, *, single: bool, now_s: float) -> Slot:
        """Await a request that was just submitted; ``state`` is what the submission said.

        One that is answered already is looked for at once, one that joined another at the pace
        of polling, and one of our own mostly never, since the inbox tells.
        """
        slot = Slot(request_id, single)
        self._slots.setdefault(request_id, []).append(slot)
        look_at_s = now_s if state == State.ANSWERED else now_s + self._poll_s
        heapq.heappush(self._looks, (look_at_s, request_id))
        return slot

    def only_id(self) -> str | None:
        """Return the id awaited if it is the only one."""
        return next(iter(self._slots)) if len(self._slots) == 1 else None

    def known(self, hints: Iterable[bytes]) -> list[str]:
        """Return which of the inbox's ids are awaited, each once."""
        return [
            name for name in dict.fromkeys(hint.decode() for hint in hints) if name in self._slots
        ]

    def due(self, now_s: float, limit: int = 1_000) -> list[str]:
        """Return the ids to look for now, and put off their next look."""
        due: list[str] = []
        while len(due) < limit and self.next_look_s() <= now_s:
            due.append(heapq.heappop(self._looks)[1])
        for request_id in due:
            heapq.heappush(self._looks, (now_s + self._poll_s, request_id))
        return due

    def next_look_s(self) -> float:
        """Return when the next look is due, on the monotonic clock."""
        while self._looks and self._looks[0][1] not in self._slots:
            heapq.heappop(self._looks)
        return self._looks[0][0] if self._looks else math.inf

    def settle(self, values: Mapping[str, bytes | None]) -> list[Slot]:
        """Take what the reply keys held; return the slots that have their result now.

        Empty is pending still. A key that is gone settles its request as unknown.
        """
        settled = []
        for request_id, value in values.items():
            if value == b"" or request_id not in self._slots:
                continue
            for slot in self._slots.pop(request_id):
                slot.result = self._result(request_id, value, single=slot.single)
                settled.append(slot)
        return settled

    def forget(self, slot: Slot) -> None:
        """Stop awaiting a slot."""
        slots = self._slots.get(slot.id, [])
        if slot in slots:
            slots.remove(slot)
            if not slots:
                del self._slots[slot.id]

    def _result(self, request_id: str, value: bytes | None, *, single: bool) -> Reply | InferqError:
        if value is None:
            return unknown_request(self._model, request_id)
        try:
            result = self._reader.read(value)
        except InferqError as error:
            return error
        return result.as_single() if single and isinstance(result, Reply) else result
