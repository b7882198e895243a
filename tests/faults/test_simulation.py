"""Random runs of many workers, clients and faults against a real server: nothing lost, nothing twice.

``INFERQ_SIMULATIONS=200`` makes as many runs of each kind; a run that fails says its seed, and
the same seed makes the same run.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import redis

from faults.actors import Worker, client, look_after_others, parent
from faults.simulation import LEASE_MS, MAX_ATTEMPTS, Faults, Simulation
from support.servers import PrivateServer

RUNS = int(os.environ.get("INFERQ_SIMULATIONS", "3"))
TICKS = 4_000

NETWORK = Faults(dropped=0.04, unanswered=0.04, late=0.05, doubled=0.03)
EVERYTHING = replace(NETWORK, killed=0.002, frozen=0.002, flushed=0.003, full=0.003)
KINDS = {
    "no faults": Faults(),
    "lost and late": NETWORK,
    "a storm of copies": Faults(dropped=0.04, unanswered=0.1, late=0.12, doubled=0.2, killed=0.002),
    "killed and frozen": Faults(killed=0.006, frozen=0.006),
    "everything": EVERYTHING,
    "everything and failover": replace(EVERYTHING, failover=0.001),
}


@pytest.fixture
def server(private_server: Callable[..., PrivateServer]) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(private_server().url) as connected:
        yield connected


def populate(sim: Simulation) -> None:
    """Start two parents with two workers each, and clients that come one after the other."""
    for family in ("a", "b"):
        names = [f"{family}1", f"{family}2"]
        for name in names:
            sim.add(name, Worker(sim, name).body())
        sim.add(f"parent-{family}", parent(sim, names))


def send_requests(sim: Simulation, turn: int) -> None:
    count = sim.random.randint(1, 6)
    ids = [f"r{turn}.{place}" for place in range(count)]
    if sim.random.random() < 0.1:
        ids[-1] = f"poison{turn}"
    lane = sim.random.choice(["high", "normal", "normal", "low"])
    sim.add(f"client{turn}", client(sim, ids, lane))
    if sim.random.random() < 0.1:
        # Somebody else asks for the same, and joins.
        sim.add(f"client{turn}-again", client(sim, ids, "high"))


def run_until(sim: Simulation, done: Callable[[], bool]) -> None:
    for _ in range(60_000):
        if done():
            return
        sim.tick()
    raise AssertionError(f"stuck: {sorted(sim.actors)} wait for ever")


def simulate(sim: Simulation) -> None:
    populate(sim)
    for turn in range(TICKS):
        if turn % 40 == 0:
            send_requests(sim, turn)
        sim.tick()
    sim.settle()
    run_until(sim, lambda: not any(name.startswith("client") for name in sim.actors))
    run_until(sim, lambda: not any(flight.actor is None for flight in sim.flights))
    run_until(sim, lambda: sim.turn % 100 == 0 and is_drained(sim))
    sim.stopping = True
    run_until(sim, lambda: not sim.actors)
    # What late commands left behind is swept by the looks of any later worker, a lease later.
    sim.now_ms += LEASE_MS + 1
    sim.add("sweeper", look_after_others(sim))
    run_until(sim, lambda: not sim.actors)


def is_drained(sim: Simulation) -> bool:
    """Tell whether nothing waits: neither for a client that a failover forgot, nor for a sweep."""
    client, keys = sim.server.client, sim.keys
    names = client.scan_iter(match=f"*{keys.normal}*", count=10_000, _type="list")
    full = [name for name in names if set(client.lrange(name, 0, -1)) - {b""}]
    return not set(full) - {keys.dead.encode()} and all(replies(sim).values())


def replies(sim: Simulation) -> dict[str, str]:
    """Return the reply of every request that is known."""
    start = sim.keys.reply("")
    names: Any = list(sim.server.client.scan_iter(match=f"{start}*", count=10_000))
    texts: Any = sim.server.client.mget(names)
    return {
        name.decode().removeprefix(start): text.decode()
        for name, text in zip(names, texts, strict=True)
    }


def check_replies(sim: Simulation, found: dict[str, str]) -> None:
    """Check every reply against what happened."""
    truth = sim.truth
    # A failover may forget what a client has read by then.
    assert sim.failovers or truth.accepted <= set(found)
    for request, reply in found.items():
        kind, _, owner = reply.partition(":")
        assert owner == request, f"{request} has the reply {reply!r}"
        deaths = truth.deaths(request)
        if kind == "crashed":
            assert deaths >= MAX_ATTEMPTS, f"{request} is called crashed after {deaths} deaths"
        if not sim.failovers:
            assert kind != "succeeded" or truth.ran[request]
            assert request not in truth.withdrawn or kind == "cancelled"
            assert request not in truth.kept - truth.withdrawn or kind != "cancelled"
            assert truth.killed[request] <= MAX_ATTEMPTS
    # A late copy of a submission that was refused may be accepted, and so may another client's.
    late = {key for call in truth.copied if call.script == "submit" for key in call.keys}
    for request in truth.refused:
        if truth.asked[request] == 1 and sim.keys.reply(request) not in late:
            assert not truth.ran[request], f"{request} was refused, and ran"


def check_counters(sim: Simulation, found: dict[str, str]) -> None:
    """Check the counters against the replies that are there: both are written in one step."""
    kinds = Counter(reply.partition(":")[0] for reply in found.values())
    stored: Any = sim.server.client.hgetall(sim.keys.metrics)
    metrics = {name.decode(): int(value) for name, value in stored.items()}
    for kind in ("succeeded", "crashed", "cancelled"):
        assert metrics.get(f"requests_{kind}", 0) == kinds[kind], kind
    assert metrics.get("batches", 0) == sim.truth.batches
    assert "unwritable" not in metrics


def check_nothing_left(sim: Simulation) -> None:
    client, keys = sim.server.client, sim.keys
    left = {name.decode() for name in client.scan_iter(match=f"*{keys.normal}*", count=10_000)}
    forever = {name for name in left if client.ttl(name) == -1}
    assert sorted(forever - {keys.metrics, keys.dead, keys.normal}) == []
    # A bell may be left over; a request may not.
    assert set(client.lrange(keys.normal, 0, -1)) <= {b""}


@pytest.mark.parametrize("seed", range(RUNS))
@pytest.mark.parametrize("kind", KINDS)
def test_random_run(server: redis.Redis, prefix: str, kind: str, seed: int) -> None:
    """Accepted means answered once and rightly, counters are exact, and nothing is left at the end."""
    sim = Simulation(server, prefix, seed, KINDS[kind])
    simulate(sim)
    check_nothing_left(sim)
    found = replies(sim)
    check_replies(sim, found)
    check_counters(sim, found)


def test_same_seed_same_run(server: redis.Redis, prefix: str) -> None:
    """A seed makes one run, whatever the prefix: a run that failed can be watched again."""
    runs = []
    for name in ("one", "two"):
        sim = Simulation(server, prefix + name, 7, EVERYTHING)
        simulate(sim)
        runs.append((sim.turn, sim.now_ms, sim.truth.ran, replies(sim)))
    assert runs[0] == runs[1]
