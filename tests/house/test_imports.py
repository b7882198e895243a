"""The import law, and what importing must not do."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import inferq

ROOT = Path(__file__).parents[2]

# Watches the interpreter it runs in, executes its first argument, and prints what was noticed.
_WATCH = """
import _thread, json, os, sys

noticed = []

def watched(name, start):
    def started(*arguments, **keywords):
        noticed.append("thread")
        return start(*arguments, **keywords)
    setattr(_thread, name, started)

# Not every Python audits threads; each starts them through one of these.
assert "threading" not in sys.modules
for name in ("start_new_thread", "start_joinable_thread"):
    if hasattr(_thread, name):
        watched(name, getattr(_thread, name))

class Environment(os._Environ):
    def __getitem__(self, name):
        if name.startswith("INFERQ_") or name == "REDIS_URL":
            noticed.append("environment: " + name)
        return super().__getitem__(name)

    def __iter__(self):
        noticed.append("environment: all of it")
        return super().__iter__()

def hook(event, arguments):
    if event.startswith("socket.") or event in {
        "os.fork", "os.posix_spawn", "subprocess.Popen",
    }:
        noticed.append(event)

os.environ.__class__ = Environment
sys.addaudithook(hook)
exec(sys.argv[1])
print(json.dumps(noticed))
"""


def noticed(code: str) -> list[str]:
    """Return what a fresh interpreter does while it executes ``code``."""
    done = subprocess.run(
        [sys.executable, "-c", _WATCH, code], capture_output=True, text=True, check=True
    )
    found: list[str] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("package", ["inferq", "inferq_worker"])
def test_importing_does_nothing(package: str) -> None:
    """Importing a package, lazy names included, starts, opens and reads nothing of ours."""
    assert noticed(f"import {package}; from {package} import *") == []


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import threading; threading.Thread(target=print).start()", "thread"),
        ("import socket; socket.socket().close()", "socket.__new__"),
        ("import subprocess; subprocess.run(['true'])", "subprocess.Popen"),
        ("import os; os.environ.get('INFERQ_PREFIX')", "environment: INFERQ_PREFIX"),
        ("import os; 'REDIS_URL' in os.environ", "environment: REDIS_URL"),
        ("import os; dict(os.environ)", "environment: all of it"),
    ],
)
def test_the_watch_notices(code: str, expected: str) -> None:
    """What the test above would miss, it could not forbid."""
    assert expected in noticed(code)


def test_import_law() -> None:
    """Who may import whom is kept; the contracts are in ``pyproject.toml``."""
    linter = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run(
        [linter, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 broken" in done.stdout


def test_every_module_is_under_the_law() -> None:
    """A new module of the asking side is named by the contract that keeps it from the worker."""
    root = Path(inferq.__file__).parent
    modules = {f"inferq.{path.stem}" for path in root.glob("*.py")} - {
        "inferq.__init__",
        "inferq.__main__",
    }
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = settings["tool"]["importlinter"]["contracts"]
    (law,) = (each for each in contracts if each["name"].startswith("What asks never imports"))
    assert set(law["source_modules"]) == modules
