"""How a worker ends: told to, with nothing left to do, or with a batch in hand."""

import signal

import redis

from inferq.contract.keys import Keys
from inferq_worker import Worker
from inferq_worker.settings import WorkerSettings
from support.bare import Bare, doubled
from support.waiting import until
from support.worker_programs import WorkerPrograms
from support.workers import Gate


def test_while_idle(worker_programs: WorkerPrograms) -> None:
    """A worker that waits for requests leaves at once: its block lasts far longer than this."""
    # A block of 20 s, twice the wait below.
    worker = worker_programs.serve(lease_s=60)
    worker.send(signal.SIGTERM)
    assert worker.wait(10.0) == 0
    assert worker_programs.bare.workers() == []
    assert "WARNING" not in worker.output("stderr")


def test_while_a_batch_runs(worker_programs: WorkerPrograms) -> None:
    """The batch that runs is finished and completed; what waits stays where it waits."""
    bare = worker_programs.bare
    worker = worker_programs.serve("Gated", max_batch_size=2)
    bare.push(doubled("r1", 1))
    assert worker_programs.wait_for_call() == [1]
    bare.push(*(doubled(f"r{number}", number) for number in (2, 3, 4)))
    worker.send(signal.SIGTERM)
    worker_programs.open_gate()
    assert worker.wait() == 0
    assert worker.output("stdout") == "1"
    assert bare.values("r1") == [2]
    assert bare.client.llen(bare.keys.normal) == 3
    assert bare.workers() == []
    assert bare.metrics()["batches"] == 1


def test_twice(worker_programs: WorkerPrograms) -> None:
    """A second signal while the batch runs changes nothing: it is completed once."""
    bare = worker_programs.bare
    worker = worker_programs.serve("Gated")
    bare.push(doubled("r1", 1))
    worker_programs.wait_for_call()
    worker.send(signal.SIGTERM)
    worker.send(signal.SIGTERM)
    worker_programs.open_gate()
    assert worker.wait() == 0
    assert bare.values("r1") == [2]


def test_under_load(worker_programs: WorkerPrograms) -> None:
    """A worker stopped in the middle of a long queue leaves every request answered or waiting."""
    bare = worker_programs.bare
    bare.push(*(doubled(f"r{number}", number) for number in range(2_000)))
    first = worker_programs.serve(max_batch_size=1)
    until(lambda: bare.is_answered("r20"))
    first.send(signal.SIGTERM)
    assert first.wait() == 0
    answered = bare.metrics()["requests_succeeded"]
    assert bare.client.llen(bare.keys.normal) + bare.client.llen(bare.keys.returned) == (
        2_000 - answered
    )
    assert bare.client.exists(bare.keys.claims, bare.keys.suspects) == 0
    second = worker_programs.start("Doubler", "burst")
    assert second.wait(60.0) == 0
    assert [bare.values(f"r{number}") for number in range(2_000)] == [
        [2 * number] for number in range(2_000)
    ]
    assert bare.metrics()["requests_succeeded"] == 2_000
    assert "discarded" not in bare.metrics()


def test_burst(worker_programs: WorkerPrograms) -> None:
    """With ``burst`` a worker empties the queue, all of its lists, and ends."""
    bare = worker_programs.bare
    bare.push(*(doubled(f"n{number}", number) for number in range(20)))
    bare.push(doubled("h", 1), lane="high")
    bare.push(doubled("l", 2), lane="low")
    bare.client.rpush(bare.keys.returned, doubled("r", 3))
    bare.client.rpush(bare.keys.suspects, b"1|" + doubled("s", 4))
    worker = worker_programs.start("Doubler", "burst")
    assert worker.wait() == 0
    assert worker.output("stdout") == "24"
    assert all(bare.is_answered(name) for name in ("h", "l", "r", "s", "n19"))
    assert bare.is_drained()
    assert bare.workers() == []


def test_burst_of_an_empty_queue(worker_programs: WorkerPrograms) -> None:
    """With nothing to do a burst ends at once, and the model is published all the same."""
    worker = worker_programs.start("Doubler", "burst")
    assert worker.wait() == 0
    assert worker.output("stdout") == "0"
    assert worker_programs.bare.client.exists(worker_programs.bare.keys.description)


def test_max_requests(redis_url: str, prefix: str, client: redis.Redis) -> None:
    """A worker that is to answer so many ends between two batches; the rest waits in order."""
    gate = Gate(4)
    gate.open()
    bare = Bare(client, Keys(prefix, "gate"))
    bare.push(*(doubled(f"r{number}", number) for number in range(10)))
    worker = Worker(gate, WorkerSettings(redis_url=redis_url, prefix=prefix))
    assert worker.run(max_requests=5) == 8
    assert gate.sizes == [4, 4]
    # Handed back to the lane before all others, whose bell was rung.
    assert client.lrange(bare.keys.returned, 0, -1) == [doubled("r8", 8), doubled("r9", 9)]
    assert client.lrange(bare.keys.normal, 0, -1) == [b""]
    assert client.exists(bare.keys.suspects, bare.keys.claims, bare.keys.workers) == 0


def test_stopped_before_it_runs(redis_url: str, prefix: str, client: redis.Redis) -> None:
    """A worker that was stopped before it ran joins and leaves without claiming."""
    gate = Gate(4)
    bare = Bare(client, Keys(prefix, "gate"))
    bare.push(doubled("r1", 1))
    worker = Worker(gate, WorkerSettings(redis_url=redis_url, prefix=prefix))
    worker.stop()
    assert worker.run() == 0
    assert gate.sizes == []
    assert client.lrange(bare.keys.normal, 0, -1) == [doubled("r1", 1)]


def test_idle_for_too_long(redis_url: str, prefix: str, client: redis.Redis) -> None:
    """A worker that may be idle for so long ends by itself, after it has answered what came."""
    gate = Gate(4)
    gate.open()
    bare = Bare(client, Keys(prefix, "gate"))
    bare.push(doubled("r1", 1))
    worker = Worker(gate, WorkerSettings(redis_url=redis_url, prefix=prefix))
    assert worker.run(max_idle_s=0.3) == 1
    assert bare.values("r1") == [2]
    assert bare.workers() == []
