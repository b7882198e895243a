"""``inferq demo``: real workers, real input, every reply checked."""

import json
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import redis

from inferq.contract.keys import Keys, models_key
from inferq_worker.demo.heldout import held_out
from support.commands import Commands
from support.processes import Programs
from support.servers import PrivateServer
from support.waiting import until

SHORT = ("--seconds", "0.3")


@pytest.fixture
def runtime() -> Iterator[Path]:
    """Yield a folder for the private server, apart from the user's own."""
    with TemporaryDirectory(prefix="inferq-demo-") as folder:
        yield Path(folder)


@pytest.fixture
def inferq(programs: Programs, runtime: Path, prefix: str) -> Commands:
    commands = Commands(programs, "redis://127.0.0.1:1", prefix)
    # That address is not the demo's: it brings a server of its own.
    commands.env["XDG_RUNTIME_DIR"] = str(runtime)
    return commands


def test_for_programs(inferq: Commands, runtime: Path) -> None:
    """One object says that every image was answered, rightly, and faster in batches."""
    done = inferq("demo", "--json", *SHORT)
    assert (done.code, done.err) == (0, "")
    (report,) = done.objects
    assert list(report) == [
        "requests", "answered", "wrong", "accuracy", "throughput_rps", "latency_ms", "batch_size",
        "unbatched_throughput_rps",
    ]  # fmt: skip
    pixels, _ = held_out()
    assert report["requests"] > 0
    assert report["requests"] % len(pixels) == 0
    assert report["answered"] == report["requests"]
    assert report["wrong"] == 0
    assert report["accuracy"] >= 0.97
    assert 0 < report["latency_ms"]["p50"] <= report["latency_ms"]["p99"]
    assert 1 < report["batch_size"]["mean"] <= report["batch_size"]["max"] <= 64
    assert report["unbatched_throughput_rps"] > 0
    # The server it started is gone with it.
    assert not (runtime / "inferq" / "server.sock").exists()


def test_for_people(inferq: Commands) -> None:
    """The two loads stand side by side, with a chart of batch sizes, and no bar in a pipe."""
    done = inferq("demo", *SHORT)
    assert (done.code, done.err) == (0, "")
    assert re.search(r"batches up to 64 +one at a time", done.out)
    assert re.search(r"lost / wrong +0 / 0 +0 / 0", done.out)
    assert re.search(r"accuracy +9[78]\.\d% +9[78]\.\d%", done.out)
    assert re.search(r"batch mean / largest +[\d.]+ / \d+ +1\.0 / 1", done.out)
    assert re.search(r"33-64 +█+ \d+", done.out)
    assert re.search(r"batching: [\d.]+ times the throughput", done.out)
    assert "256 requests under way" in done.out


def test_progress_on_a_terminal(inferq: Commands, programs: Programs) -> None:
    """On a terminal the progress of both loads is drawn."""
    spawn = "import os, pty, sys\nsys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))"
    env = {**inferq.env, "TERM": "xterm"}
    arguments = (sys.executable, "-m", "inferq", "demo", *SHORT)
    done = programs.python("-c", spawn, *arguments, env=env)
    assert done.wait(60.0) == 0, done.output("stdout")
    assert "\x1b[" in done.output("stdout")
    assert "one at a time" in done.output("stdout").partition("requests under way")[0]


def test_another_server(inferq: Commands, private_server: Callable[..., PrivateServer]) -> None:
    """On a server named by --url nothing is touched, and nothing stays but replies that expire."""
    server = private_server(port=0)
    with redis.Redis.from_url(server.url) as client:
        real = Keys("inferq", "digits")
        client.rpush(real.normal, "somebody's request")
        client.sadd(models_key("inferq"), "digits")
        done = inferq("--url", server.url, "demo", "--json", *SHORT)
        assert done.code == 0, done.err
        assert client.lrange(real.normal, 0, -1) == [b"somebody's request"]
        forever = {key for key in client.scan_iter(count=10_000) if client.ttl(key) == -1}
        assert forever == {real.normal.encode(), models_key("inferq").encode()}


def test_no_server(inferq: Commands) -> None:
    """A server that is away ends it with 69 and one line."""
    done = inferq("demo", "--url", "redis://:hunter2@127.0.0.1:1", *SHORT)
    assert (done.code, done.out) == (69, "")
    assert done.event.startswith("no answer from Redis at redis://:***@127.0.0.1:1")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted(
    inferq: Commands,
    private_server: Callable[..., PrivateServer],
    number: signal.Signals,
    code: int,
) -> None:
    """Ctrl-C or SIGTERM takes the workers along and leaves no key that stays."""
    server = private_server(port=0)
    with redis.Redis.from_url(server.url) as client:
        demo = inferq.start("demo", "--url", server.url, "--seconds", "60")
        workers = until(lambda: _pids(client), 30.0)
        demo.send(number)
        assert demo.wait(30.0) == code
        assert not [pid for pid in workers if _is_alive(pid)]
        assert not [key for key in client.scan_iter(count=10_000) if client.ttl(key) == -1]


def test_lost_requests(inferq: Commands, private_server: Callable[..., PrivateServer]) -> None:
    """Requests that get no label are counted in the report, and the exit code is 1."""
    server = private_server(port=0)
    with redis.Redis.from_url(server.url) as client:
        demo = inferq.start("demo", "--json", "--url", server.url, "--seconds", "3")
        until(lambda: _answered(client), 30.0)
        client.flushall()
        assert demo.wait(60.0) == 1
    (line,) = demo.output("stderr").splitlines()[-1:]
    lost = re.match(r"inferq: (\d+) requests lost, 0 replies wrong \(.*\)$", line)
    assert lost, line
    report = json.loads(demo.output("stdout"))
    assert report["requests"] - report["answered"] == int(lost[1]) > 0


def _answered(client: redis.Redis) -> bool:
    """Tell whether a demo's load is under way."""
    counted = [client.hlen(key) for key in client.scan_iter(match="{demo-*}:metrics", count=10_000)]
    return any(counted)


def _pids(client: redis.Redis) -> list[int]:
    """Return the processes of both workers of a demo, once both serve."""
    hashes = [client.hget(key, "pid") for key in client.scan_iter(match="{demo-*}:worker:*")]
    pids = [int(pid) for pid in hashes if pid is not None]
    return pids if len(pids) == 2 else []


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
