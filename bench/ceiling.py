"""Scenario *ceiling*: what this machine's Redis gives at best, beside which all others are read.

A request through Redis takes four commands at least: it is pushed, popped, its reply is set, and
got. ``redis-benchmark`` measures each alone, over the same kind of Unix socket, with 50 clients
and 64 commands in flight each, on values of the size of the scenarios' messages; the ceiling is
the rate of the four one after another. No client written in Python comes near it; it is a yardstick
that moves with the machine. Outside the timed part: starting the server.
"""

import csv
import shutil
import subprocess
from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

from bench.drain import messages
from bench.stage import Failed, private_server

from inferq.ids import new_request_id

COMMANDS = ("RPUSH", "LPOP", "SET", "GET")
_TOOL = "redis-benchmark"


class ToolMissing(Exception):
    """``redis-benchmark`` is not installed."""


def check_tool() -> None:
    """Check that the measurement can be made.

    Raises:
        ToolMissing: it cannot; the message says what to install.
    """
    if shutil.which(_TOOL) is None:
        raise ToolMissing(f"{_TOOL} is not on the PATH: install Debian's package redis-tools")


def ceiling(rates: Mapping[str, float]) -> float:
    """Return the requests per second of the four commands one after another, each at its rate."""
    return 1 / sum(1 / rates[command] for command in COMMANDS)


def payload_bytes() -> int:
    """Return the size of the scenarios' messages."""
    (message,) = messages([new_request_id()], submitted_ms=1_700_000_000_000)
    return len(message)


def measure(commands: int) -> dict[str, float]:
    """Send so many of each of :data:`COMMANDS`; return commands per second by name.

    Raises:
        Failed: the program ended with an error.
    """
    with private_server() as url:
        done = subprocess.run(
            [
                _TOOL, "-s", unquote(urlsplit(url).path), "-P", "64", "-c", "50",
                "-n", str(commands), "-d", str(payload_bytes()), "-t", ",".join(COMMANDS).lower(),
                "--csv",
            ],
            capture_output=True,
            text=True,
            check=False,
        )  # fmt: skip
    if done.returncode != 0:
        raise Failed(f"{_TOOL} ended with exit code {done.returncode}: {done.stderr.strip()}")
    return parse(done.stdout)


def parse(text: str) -> dict[str, float]:
    """Read the CSV that ``redis-benchmark`` prints: commands per second by name.

    Raises:
        Failed: a command is missing.
    """
    found = {row["test"]: float(row["rps"]) for row in csv.DictReader(text.splitlines())}
    missing = [command for command in COMMANDS if command not in found]
    if missing:
        raise Failed(f"{_TOOL} printed nothing of {', '.join(missing)}")
    return {command: found[command] for command in COMMANDS}
