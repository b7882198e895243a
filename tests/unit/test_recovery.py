"""Deciding whose requests to set free."""

from collections.abc import Mapping, Sequence

import pytest

from inferq.contract.keys import Keys
from inferq_worker.recovery import Look, Orphan, orphans, owner_of

KEYS = Keys("inferq", "m")
NOW_MS = 1_000_000
ALIVE, LAPSED = NOW_MS + 1.0, NOW_MS - 1.0


def claimed(worker: str, number: int) -> str:
    return KEYS.claimed(worker, number)


def found(
    leases: Mapping[str, float] | None = None,
    claims: Sequence[str] = (),
    closed: Mapping[str, int] | None = None,
    scanned: Sequence[str] = (),
) -> dict[str, list[str]]:
    """Return whom to recover: worker -> lists, from leases, records, closed numbers and a scan."""
    records = {name: owner_of(name, KEYS) for name in claims}
    look = Look(NOW_MS, leases or {}, records, closed or {}, scanned)
    listed = orphans(look, KEYS)
    assert all(isinstance(orphan, Orphan) for orphan in listed)
    return {orphan.worker: list(orphan.lists) for orphan in listed}


def test_nobody() -> None:
    """A model without workers, and one whose workers all live, need nothing."""
    assert found() == {}
    assert found({"w": ALIVE}, [claimed("w", 1)], {"w": 0}) == {}


def test_lapsed() -> None:
    """A worker whose lease has ended loses all its claims, and is forgotten if it has none."""
    assert found(
        {"w": LAPSED, "v": ALIVE}, [claimed("w", 1), claimed("w", 2), claimed("v", 1)]
    ) == {"w": [claimed("w", 1), claimed("w", 2)]}
    assert found({"w": LAPSED}) == {"w": []}


def test_lease_that_ends_now() -> None:
    """A lease that ends in this very millisecond has ended, as the script sees it."""
    assert found({"w": float(NOW_MS)}) == {"w": []}


def test_owner_without_a_lease() -> None:
    """A claim of nobody's is set free, found by its record or by its name alone."""
    assert found({}, [claimed("w", 3)]) == {"w": [claimed("w", 3)]}
    assert found({}, scanned=[claimed("w", 3)]) == {"w": [claimed("w", 3)]}


def test_remains_of_a_worker_that_is_gone() -> None:
    """A closed number without a worker is swept, or the hash would grow for ever."""
    assert found({}, closed={"w": 7}) == {"w": []}


def test_live_worker_loses_only_what_it_cannot_know_of() -> None:
    """Of a live worker's lists only those count that are closed already or have no record."""
    names = [claimed("w", number) for number in (1, 2, 3)]
    assert found({"w": ALIVE}, names, {"w": 1}) == {"w": [names[0]]}
    assert found({"w": ALIVE}, names[1:], {"w": 1}, scanned=names) == {"w": [names[0]]}
    assert found({"w": ALIVE}, [], {}, scanned=[names[2]]) == {"w": [names[2]]}


def test_each_list_once() -> None:
    """A list that is found by its record and by its name is passed once."""
    assert found({}, [claimed("w", 1)], scanned=[claimed("w", 1), claimed("w", 1)]) == {
        "w": [claimed("w", 1)]
    }


@pytest.mark.parametrize(
    "name", ["claimed:w", "claimed:w:x", "claimed:w:1:2", "claimed::", "claims"]
)
def test_keys_made_by_hand(name: str) -> None:
    """A key that only looks like a claim is left alone and disturbs nothing."""
    made = KEYS.claims.removesuffix("claims") + name
    assert found({"w": ALIVE}, [made, claimed("v", 1)], {"w": 5}, scanned=[made]) == {
        "v": [claimed("v", 1)]
    }


@pytest.mark.parametrize("worker", ["w", "host.name-12-ab34", "a_b", "1"])
def test_owner_of(worker: str) -> None:
    """The owner of a claim is in its name, whatever characters a worker id may hold."""
    assert owner_of(claimed(worker, 12), KEYS) == worker
