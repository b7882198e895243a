"""Script calls as values: what to send, apart from when and where it is sent.

Each builder has the defaults of an ordinary call, so that a test names only what it is about. The
dictionaries of defaults are in the order of the script's ARGV.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from inferq.contract.keys import Keys

Word = str | int | bytes

LEASE_MS = 15_000
LIFE_MS = 600_000

_CLAIM: Mapping[str, Word] = {
    "worker": "w",
    "number": 1,
    "floor": 1,
    "lease_ms": LEASE_MS,
    "want": 10,
    "budget": 1_000_000,
    "kept_normal": 0,
    "kept_low": 0,
    "mode": "last",
}
_RELEASE: Mapping[str, Word] = {"worker": "w", "number": 1, "keep": 0, "how": "unstarted"}
_RECOVER: Mapping[str, Word] = {
    "worker": "w",
    "how": "lapsed",
    "longest_ms": LEASE_MS,
    "limit": 1_000,
    "last_resort": 100,
    "dead_cap": 1_000,
}
_COMPLETE: Mapping[str, Word] = {
    "worker": "w",
    "number": 1,
    "held": 1,
    "n": 0,
    "m": 0,
    "inbox_ms": LIFE_MS,
    "inbox_cap": 1_000,
    "dead_cap": 1_000,
}


class Call(NamedTuple):
    """A script by name, and what it is called with."""

    script: str
    keys: Sequence[str]
    args: Sequence[Word]


class Reply(NamedTuple):
    """One reply of a completion."""

    id: str
    text: str = "reply"
    outcome: str = "requests_succeeded"
    life_ms: Word = LIFE_MS


class Calls:
    """Builds the calls of one model."""

    def __init__(self, keys: Keys) -> None:
        self.keys = keys

    def submit(
        self,
        messages: Iterable[tuple[str, str]],
        *,
        lane: str = "normal",
        limit: int = 1_000,
        mark_ms: int = LIFE_MS,
    ) -> Call:
        """Submit (id, message) pairs."""
        keys = self.keys
        pairs = list(messages)
        marks = [keys.reply(request_id) for request_id, _ in pairs]
        return Call(
            "submit",
            [keys.lane(lane), keys.normal, *marks],
            [limit, mark_ms, *(message for _, message in pairs)],
        )

    def register(
        self,
        verb: str,
        worker: str = "w",
        number: int = 1,
        *,
        info: Sequence[str] = (),
        info_ms: int = LIFE_MS,
        lease_ms: int = LEASE_MS,
    ) -> Call:
        """Register as ``join`` or ``open``."""
        keys = self.keys
        return Call(
            "register",
            [keys.workers, keys.claims, keys.claimed(worker, number), keys.worker(worker)],
            [worker, lease_ms, verb, info_ms, *info],
        )

    def claim(self, **changes: Word) -> Call:
        """Claim; ``floor`` follows ``number`` unless it is given."""
        keys = self.keys
        if "number" in changes:
            changes.setdefault("floor", changes["number"])
        args = dict(_CLAIM) | changes
        return Call(
            "claim",
            [
                keys.claimed(str(args["worker"]), int(args["number"])), keys.claims, keys.workers,
                keys.closed, keys.returned, keys.lane("high"), keys.normal, keys.lane("low"),
                keys.suspects, keys.cancelled,
            ],
            list(args.values()),
        )  # fmt: skip

    def complete(
        self,
        *replies: Reply,
        hints: Mapping[str, Sequence[str]] | None = None,
        dead: Sequence[str] = (),
        counters: Mapping[str, int] | None = None,
        **changes: Word,
    ) -> Call:
        """Complete with replies, ids for each box, dead entries and increments."""
        keys = self.keys
        hints = hints or {}
        args = dict(_COMPLETE) | {"n": len(replies), "m": len(hints)} | changes
        worker = str(args["worker"])
        tail: list[Word] = []
        for reply in replies:
            tail += (reply.life_ms, reply.outcome, reply.text)
        for ids in hints.values():
            tail += (len(ids), *ids)
        tail += (len(dead), *dead)
        for field, increment in (counters or {}).items():
            tail += (field, increment)
        return Call(
            "complete",
            [
                keys.claimed(worker or "nobody", int(args["number"])), keys.claims, keys.workers,
                keys.closed, keys.metrics, keys.dead, keys.returned, keys.suspects, keys.normal,
                *(keys.reply(reply.id) for reply in replies),
                *(keys.inbox(box) for box in hints),
            ],
            [*args.values(), *tail],
        )  # fmt: skip

    def release(self, **changes: Word) -> Call:
        """Release all of a claim, or all behind ``keep``."""
        keys = self.keys
        args = dict(_RELEASE) | changes
        return Call(
            "release",
            [
                keys.claimed(str(args["worker"]), int(args["number"])), keys.claims, keys.workers,
                keys.closed, keys.returned, keys.suspects, keys.normal,
            ],
            list(args.values()),
        )  # fmt: skip

    def renew(self, *workers: str, lease_ms: int = LEASE_MS, info_ms: int = LIFE_MS) -> Call:
        """Renew the leases of some workers."""
        keys = self.keys
        return Call(
            "renew",
            [keys.workers, *(keys.worker(worker) for worker in workers)],
            [lease_ms, info_ms, *workers],
        )

    def recover(self, *lists: str, **changes: Word) -> Call:
        """Recover a worker; ``lists`` are full keys, claim 1 of the worker if there are none."""
        keys = self.keys
        args = dict(_RECOVER) | changes
        worker = str(args["worker"])
        return Call(
            "recover",
            [
                keys.workers, keys.claims, keys.closed, keys.suspects, keys.returned, keys.normal,
                keys.dead, keys.metrics, keys.worker(worker),
                *(lists or [keys.claimed(worker, 1)]),
            ],
            list(args.values()),
        )  # fmt: skip

    def cancel(self, request_id: str, *, reply: str = "cancelled!", hint_ms: int = LIFE_MS) -> Call:
        """Cancel a request."""
        keys = self.keys
        return Call(
            "cancel", [keys.reply(request_id), keys.cancelled, keys.metrics], [reply, hint_ms]
        )

    def retry(self, request_id: str, entry: str, message: str, *, mark_ms: int = LIFE_MS) -> Call:
        """Let a dead entry run again."""
        keys = self.keys
        return Call(
            "retry",
            [keys.dead, keys.reply(request_id), keys.suspects, keys.normal],
            [entry, message, mark_ms],
        )

    def drop(self, entry: str) -> Call:
        """Drop a dead entry."""
        return Call("drop", [self.keys.dead], [entry])
