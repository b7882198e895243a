"""What a worker had in hand when it died or froze is answered all the same, once."""

import signal
from typing import Any

from inferq.contract.replies import Reply
from support.bare import Bare, doubled
from support.processes import Program
from support.waiting import until
from support.worker_programs import WorkerPrograms

LEASE_S = 0.5


def is_lapsed(bare: Bare, worker: str) -> bool:
    """Tell whether a worker's lease has ended."""
    score: Any = bare.client.zscore(bare.keys.workers, worker)
    return score is None or score <= bare.now_ms()


def kill(worker: Program) -> None:
    worker.send(signal.SIGKILL)
    assert worker.wait() == -signal.SIGKILL


def test_killed_in_a_batch(worker_programs: WorkerPrograms) -> None:
    """Another worker runs what a killed one had in hand, each request alone and charged a death."""
    bare = worker_programs.bare
    first = worker_programs.serve("Gated", lease_s=LEASE_S)
    bare.push(*(doubled(f"r{number}", number) for number in range(3)))
    entered = worker_programs.wait_for_call()
    while len(entered) < 3:
        worker_programs.open_gate()
        entered += worker_programs.wait_for_call()
    kill(first)
    worker_programs.serve(lease_s=LEASE_S)
    assert [bare.values(f"r{number}") for number in range(3)] == [[0], [2], [4]]
    until(bare.is_drained)
    held = [number for number in range(3) if bare.parameters(f"r{number}")["attempt"] == 2]
    assert held
    assert all(
        bare.parameters(f"r{number}")["batch_reason"] == "suspect"
        and bare.parameters(f"r{number}")["batch_size"] == 1
        for number in held
    )
    metrics = bare.metrics()
    assert metrics["requests_succeeded"] == 3
    assert metrics["recovered"] == len(held)
    assert "discarded" not in metrics


def test_found_at_the_start(worker_programs: WorkerPrograms) -> None:
    """A worker alone finds at its start what its dead predecessor left, before it looks idle."""
    bare = worker_programs.bare
    first = worker_programs.serve("Gated", lease_s=LEASE_S)
    bare.push(doubled("r1", 1))
    worker_programs.wait_for_call()
    (dead,) = bare.workers()
    kill(first)
    until(lambda: is_lapsed(bare, dead))
    until(lambda: int(bare.client.info("server")["uptime_in_seconds"]) >= 1)
    second = worker_programs.start("Doubler", "burst", lease_s=LEASE_S)
    assert second.wait() == 0
    assert bare.values("r1") == [2]
    assert bare.is_drained()
    assert bare.workers() == []


def test_suspects_run_alone_and_in_turn(worker_programs: WorkerPrograms) -> None:
    """Suspects run one at a time, and at most every second claim while the lanes hold work."""
    bare = worker_programs.bare
    bare.client.rpush(bare.keys.suspects, *(b"1|" + doubled(f"s{n}", n) for n in (1, 2, 3)))
    bare.push(*(doubled(f"r{n}", n) for n in range(10, 16)))
    worker = worker_programs.start("Gated", max_batch_size=2)
    calls = []
    for _ in range(6):
        calls.append(worker_programs.wait_for_call())
        worker_programs.open_gate()
    assert sorted(calls) == [[1], [2], [3], [10, 11], [12, 13], [14, 15]]
    order = ["suspect" if len(call) == 1 else "batch" for call in calls]
    assert order == ["batch", "suspect"] * 3
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0
    assert [bare.parameters(f"s{n}")["attempt"] for n in (1, 2, 3)] == [2, 2, 2]


def test_request_that_kills(worker_programs: WorkerPrograms) -> None:
    """A request that kills its worker four times is given up, and takes no other with it."""
    bare = worker_programs.bare
    values = [1, 2, -1, 3, 4]
    bare.push(*(doubled(f"r{value}", value) for value in values))
    for _ in range(4):
        assert worker_programs.start(lease_s=LEASE_S).wait(20.0) == -signal.SIGKILL
    worker_programs.serve(lease_s=LEASE_S)
    code, sentence = bare.error("r-1")
    assert code == "crashed"
    assert sentence == "the request was running when its worker died, 4 times; given up"
    assert bare.parameters("r-1")["attempt"] == 4
    assert [bare.values(f"r{value}") for value in (1, 2, 3, 4)] == [[2], [4], [6], [8]]
    until(bare.is_drained)
    ((told, raw),) = bare.dead()
    assert (told["id"], told["code"], told["attempts"]) == ("r-1", "crashed", 4)
    assert raw == doubled("r-1", -1)
    metrics = bare.metrics()
    assert (metrics["requests_succeeded"], metrics["requests_crashed"], metrics["dead"]) == (
        4,
        1,
        1,
    )


def test_fewer_deaths_allowed(worker_programs: WorkerPrograms) -> None:
    """The setting says how many deaths a request may see."""
    bare = worker_programs.bare
    bare.client.rpush(bare.keys.suspects, b"2|" + doubled("r1", 1), b"1|" + doubled("r2", 2))
    worker_programs.serve(max_attempts=2)
    assert bare.error("r1")[0] == "crashed"
    assert bare.values("r2") == [4]


def test_frozen_in_a_batch(worker_programs: WorkerPrograms) -> None:
    """A worker that froze past its lease is fenced: what it computed is not written."""
    bare = worker_programs.bare
    frozen = worker_programs.serve("Gated", lease_s=LEASE_S)
    bare.push(doubled("r1", 1))
    worker_programs.wait_for_call()
    (first,) = bare.workers()
    frozen.send(signal.SIGSTOP)
    other = worker_programs.serve(lease_s=LEASE_S)
    assert bare.values("r1") == [2]
    before = bare.parameters("r1")
    assert before["worker"] != first
    assert before["attempt"] == 2
    frozen.send(signal.SIGCONT)
    worker_programs.open_gate()
    frozen.wait_for(f"worker {first} lost its seat and takes another")
    assert bare.parameters("r1") == before
    metrics = bare.metrics()
    assert metrics["requests_succeeded"] == 1
    assert "discarded" not in metrics
    other.send(signal.SIGTERM)
    assert other.wait() == 0
    bare.push(doubled("r2", 2))
    worker_programs.open_gate()
    assert bare.values("r2") == [4]
    assert first not in bare.workers()


def test_frozen_while_idle(worker_programs: WorkerPrograms) -> None:
    """A request that the server hands to a frozen worker is answered by another one."""
    bare = worker_programs.bare
    frozen = worker_programs.serve(lease_s=3)
    (first,) = bare.workers()
    # Blocked on the server's side, so that the next request goes to this one.
    until(lambda: bare.client.info("clients")["blocked_clients"])
    frozen.send(signal.SIGSTOP)
    bare.push(doubled("r1", 1))
    until(lambda: not bare.client.exists(bare.keys.normal))
    worker_programs.serve(lease_s=LEASE_S)
    found = bare.reply("r1")
    assert isinstance(found, Reply)
    assert found.parameters["worker"] != first
    frozen.send(signal.SIGCONT)
    frozen.wait_for(f"worker {first} lost its seat and takes another")
    assert bare.metrics()["requests_succeeded"] == 1


def test_killed_again_and_again(worker_programs: WorkerPrograms) -> None:
    """Workers that are killed under load, one after the other, cost nothing but time."""
    bare = worker_programs.bare
    count = 600
    bare.push(*(doubled(f"r{number}", number) for number in range(count)))
    survivor = worker_programs.serve("Gated", lease_s=LEASE_S)
    for _ in range(3):
        # In a batch, between two, or in the middle of a flight: whatever comes.
        doomed = worker_programs.serve(lease_s=LEASE_S, max_batch_size=1)
        kill(doomed)
    kill(survivor)
    worker_programs.serve(lease_s=LEASE_S)
    for number in range(count):
        assert bare.values(f"r{number}") == [2 * number]
    until(bare.is_drained)
    metrics = bare.metrics()
    assert metrics["requests_succeeded"] == count
    assert "requests_crashed" not in metrics
    assert "discarded" not in metrics
