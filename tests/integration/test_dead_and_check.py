"""``inferq dead`` and ``inferq check`` on a real server."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis

from support.bare import Bare, doubled
from support.processes import Program, Programs
from support.servers import PrivateServer
from support.waiting import until
from support.workers import Doubler, Workers

Run = Callable[..., Program]


@pytest.fixture
def run(programs: Programs, redis_url: str, prefix: str) -> Run:
    """Run one command to its end, on the run's server under the test's prefix."""

    def run_one(*words: str, url: str = redis_url) -> Program:
        program = programs.inferq(*words, "--url", url, "--prefix", prefix, "--json")
        program.wait(30)
        return program

    return run_one


def rows(program: Program) -> list[dict[str, Any]]:
    return [json.loads(line) for line in program.output("stdout").splitlines()]


@pytest.fixture
def buried(client: redis.Redis, workers: Workers) -> Bare:
    """A dead list of one piece of junk and one request that was given up on; a worker serves."""
    bare = Bare(client, workers.keys(Doubler()))
    bare.push(b"junk")
    client.rpush(bare.keys.suspects, b"9|" + doubled("r1", 4))
    workers.serve(Doubler())
    until(lambda: len(bare.dead()) == 2)
    return bare


def test_list_and_show(buried: Bare, run: Run) -> None:
    """Entries are listed with reason and id where they have one, and shown with their message."""
    model = buried.keys.model
    listed = rows(run("dead", "list", model))
    assert {(entry["id"], entry["code"]) for entry in listed} == {
        (None, "invalid_request"),
        ("r1", "crashed"),
    }
    (shown,) = rows(run("dead", "show", model, "r1"))
    assert json.loads(shown["message"])["id"] == "r1"
    assert run("dead", "show", model, "nobody").wait() == 3


def test_retry(buried: Bare, run: Run) -> None:
    """A retried request runs again and its reply replaces the one that said crashed."""
    assert buried.error("r1")[0] == "crashed"
    program = run("dead", "retry", buried.keys.model, "r1")
    assert (program.wait(), rows(program)) == (0, [{"retried": 1}])
    until(lambda: buried.is_drained() and buried.is_answered("r1"))
    assert buried.values("r1") == [8]
    assert len(buried.dead()) == 1


def test_retry_all_passes_over_what_cannot(buried: Bare, run: Run) -> None:
    """Of all entries those that can run are retried; the others stay, with a sentence each."""
    program = run("dead", "retry", buried.keys.model, "--all")
    assert rows(program) == [{"retried": 1}]
    assert "no valid request id" in program.output("stderr")
    assert [message for _, message in buried.dead()] == [b"junk"]


def test_drop(buried: Bare, run: Run) -> None:
    """One entry is dropped by its id; all of them only with --yes."""
    model = buried.keys.model
    assert rows(run("dead", "drop", model, "r1")) == [{"dropped": 1}]
    assert run("dead", "drop", model, "--all").wait() == 2
    assert len(buried.dead()) == 1
    assert rows(run("dead", "drop", model, "--all", "--yes")) == [{"dropped": 1}]
    assert run("dead", "list", model).wait() == 3


def test_check_finds_all_well(
    run: Run, private_server: Callable[..., PrivateServer], tmp_path: Path
) -> None:
    """On a server as it should be nothing is bad, and the code is 0."""
    program = run("check", url=private_server(aof=tmp_path).url)
    assert program.wait() == 0
    assert {finding["weight"] for finding in rows(program)} <= {"fine", "note"}


def test_check_names_what_is_bad(run: Run, private_server: Callable[..., PrivateServer]) -> None:
    """An eviction policy that drops queues is bad, comes with its remedy, and the code is 1."""
    server = private_server("--maxmemory-policy", "allkeys-lru", "--maxmemory", "100mb")
    program = run("check", url=server.url)
    assert program.wait() == 1
    (bad,) = (finding for finding in rows(program) if finding["weight"] == "bad")
    assert "allkeys-lru" in bad["fact"]
    assert "noeviction" in bad["remedy"]


def test_check_of_a_server_that_is_away(run: Run) -> None:
    """A server that cannot be reached is code 69, and its password is not shown."""
    program = run("check", url="redis://:hidden@127.0.0.1:1")
    assert program.wait() == 69
    assert "hidden" not in program.output("stderr")


def test_check_of_a_lane_of_another_type(run: Run, workers: Workers, client: redis.Redis) -> None:
    """A lane that another program made something else is bad and named."""
    keys = workers.keys(Doubler())
    workers.serve(Doubler())
    workers.stop()
    client.set(keys.lane("high"), "mine")
    program = run("check")
    client.delete(keys.lane("high"))
    assert program.wait() == 1
    assert any(keys.lane("high") in finding["fact"] for finding in rows(program))
