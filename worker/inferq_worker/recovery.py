"""Finds workers whose lease has ended and sets their requests free.

Two steps: a look, which only reads, and one call of ``recover.lua`` per owner, which names the
owner's lists and checks everything again. Between the two nothing is assumed.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from inferq.contract import scripts
from inferq.contract.keys import Keys
from inferq.redis_link import Command, Link, call, command
from inferq_worker.settings import WorkerSettings

_CLAIMED = re.compile(r":claimed:[A-Za-z0-9._-]+:[0-9]+\Z")
_REQUESTS_PER_CALL = 1_000
_SCAN_COUNT = 1_000
# A request that no claimer counts out (its count was lost, say) is buried by recovery itself.
_LAST_RESORT = 100

How = Literal["lapsed", "dead", "leave"]


class Orphan(NamedTuple):
    """An owner that is not a live worker, and the claims found under its name."""

    worker: str
    lists: tuple[str, ...]


class Look(NamedTuple):
    """What one look saw: Redis time in ms, leases, records, closed numbers, lists found by name."""

    now_ms: int
    leases: Mapping[str, float]
    claims: Mapping[str, str]
    closed: Mapping[str, int]
    scanned: Sequence[str]


def orphans(look: Look, keys: Keys) -> list[Orphan]:
    """Decide whom to recover.

    An owner without a lease that lasts loses everything. A live one loses only what it cannot
    know of: lists that are closed already, filled by a late copy of a command; and a list that
    has no record gets one.
    """
    lists: dict[str, list[str]] = {worker: [] for worker in (*look.leases, *look.closed)}
    for name in {*look.claims, *look.scanned}:
        # A key made by hand may look alike.
        if _CLAIMED.search(name):
            lists.setdefault(owner_of(name, keys), []).append(name)
    found = []
    for worker, names in sorted(lists.items()):
        if look.leases.get(worker, 0) > look.now_ms:
            closed = look.closed.get(worker, 0)
            astray = [name for name in names if name not in look.claims or _number(name) <= closed]
            if astray:
                found.append(Orphan(worker, tuple(sorted(astray))))
        else:
            found.append(Orphan(worker, tuple(sorted(names))))
    return found


def _number(claimed: str) -> int:
    return int(claimed.rpartition(":")[2])


def owner_of(claimed: str, keys: Keys) -> str:
    """Return the worker id in the name of a claimed list."""
    start = keys.claimed("", 0).removesuffix(":0")
    return claimed.removeprefix(start).rpartition(":")[0]


def recover(keys: Keys, orphan: Orphan, how: How, settings: WorkerSettings) -> Command:
    """Build the call that frees an owner's requests: ``lapsed``, ``dead`` or ``leave``."""
    return call(
        scripts.load("recover"),
        (
            keys.workers, keys.claims, keys.closed, keys.suspects, keys.returned, keys.normal,
            keys.dead, keys.metrics, keys.worker(orphan.worker), *orphan.lists,
        ),
        (
            orphan.worker, how, settings.lease_ms, _REQUESTS_PER_CALL, _LAST_RESORT,
            settings.dead_limit,
        ),
    )  # fmt: skip


class Recovery:
    """Looks after the other workers of a model.

    Attributes:
        members: how many workers the last look saw, whether alive or not.
    """

    def __init__(self, keys: Keys, settings: WorkerSettings) -> None:
        self.members = 1
        self._keys = keys
        self._settings = settings
        self._cursor = 0

    def sweep(self, link: Link) -> int:
        """Look once and recover whoever needs it; return how many requests were set free.

        Raises:
            Unavailable: Redis is away; whatever was not done is done by the next sweep.
        """
        moved = 0
        for orphan in orphans(self._look(link), self._keys):
            moved += free(link.run, recover(self._keys, orphan, "lapsed", self._settings))
        return moved

    def _look(self, link: Link) -> Look:
        keys = self._keys
        now, leases, claims, closed, scan = link.run(
            command("TIME"),
            command("ZRANGE", keys.workers, 0, -1, "WITHSCORES"),
            command("HGETALL", keys.claims),
            command("HGETALL", keys.closed),
            # One step a look, with the cursor kept: lists without a record are very rare.
            command(
                "SCAN", self._cursor, "MATCH", _glob(keys), "COUNT", _SCAN_COUNT, "TYPE", "list"
            ),
        )
        self._cursor = int(scan[0])
        members = [text.decode() for text in leases[::2]]
        self.members = len(members)
        return Look(
            now_ms=int(now[0]) * 1000 + int(now[1]) // 1000,
            leases=dict(zip(members, map(float, leases[1::2]), strict=True)),
            claims={name.decode(): owner.decode() for name, owner in _pairs(claims)},
            closed={worker.decode(): int(number) for worker, number in _pairs(closed)},
            scanned=[name.decode() for name in scan[1]],
        )


def free(send: Callable[[Command], list[Any]], recovering: Command) -> int:
    """Send a recovery until nothing is left; return how many requests it moved."""
    moved = 0
    while True:
        answer: list[int]
        (answer,) = send(recovering)
        moved += answer[0]
        if not answer[1]:
            return moved


def lists_of(link: Link, keys: Keys, worker: str) -> list[str]:
    """Return the claims on record under a worker's name."""
    (names,) = link.run(command("HKEYS", keys.claims))
    return [name for name in map(bytes.decode, names) if owner_of(name, keys) == worker]


def _glob(keys: Keys) -> str:
    # Names allow no character that is special in a pattern, but the hash tag's braces are there.
    return keys.claimed("*", 0).removesuffix("0") + "*"


def _pairs(flat: Sequence[Any]) -> list[tuple[Any, Any]]:
    return list(zip(flat[::2], flat[1::2], strict=True))
