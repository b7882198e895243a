"""What a scenario runs on: a private server, and one worker process that waits for requests."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import redis

from inferq import embedded
from inferq.contract.keys import Keys

PREFIX = "bench"
KEYS = Keys(PREFIX, "matrix")

_TOP = Path(__file__).resolve().parents[1]
_PATIENCE_S = 30.0
_LOOK_EACH_S = 0.01
# Far below any rate worth measuring: what takes longer has failed.
_LOWEST_RPS = 500


class Failed(Exception):
    """A measurement that came to nothing: a process died, or a reply is missing or wrong."""


@contextmanager
def time_limit(requests: int) -> Iterator[None]:
    """End what takes longer than so many requests possibly can, wherever it waits.

    For the main thread.

    Raises:
        Failed: the time is over.
    """
    limit_s = 10 + requests // _LOWEST_RPS

    def end(*_: object) -> None:
        raise Failed(f"{requests} requests are not answered after {limit_s} s")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(limit_s)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def private_server() -> Iterator[str]:
    """Start an empty server on a Unix socket, in memory only, and yield its address."""
    with (
        tempfile.TemporaryDirectory(prefix="inferq-bench-") as folder,
        embedded.start(Path(folder)) as server,
    ):
        yield server.url


@contextmanager
def connected(url: str) -> Iterator[redis.Redis]:
    """Connect a plain client, which waits as long as a command blocks."""
    with redis.Redis.from_url(url, socket_timeout=None) as client:
        yield client


@contextmanager
def worker(url: str) -> Iterator[None]:
    """Start the worker process; it has loaded its model and blocks for requests when this yields.

    Raises:
        Failed: it did not get there, or did not end in order.
    """
    # One thread for numpy: its product is not what is measured, and the other core is taken.
    environment = {"OMP_NUM_THREADS": "1", **os.environ}
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.serve", url], cwd=_TOP, env=environment
    )
    try:
        _await_blocked(url, process)
        yield
        process.terminate()
        code = process.wait(_PATIENCE_S)
        if code != 0:
            raise Failed(f"the worker ended with exit code {code}")
    finally:
        process.kill()
        process.wait()


def _await_blocked(url: str, process: subprocess.Popen[bytes]) -> None:
    give_up_s = time.monotonic() + _PATIENCE_S
    with connected(url) as client:
        while client.info("clients")["blocked_clients"] == 0:
            if process.poll() is not None:
                raise Failed(f"the worker ended with exit code {process.returncode}")
            if time.monotonic() >= give_up_s:
                raise Failed(f"the worker is not ready after {_PATIENCE_S:g} s")
            time.sleep(_LOOK_EACH_S)
