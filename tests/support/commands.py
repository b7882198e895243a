"""The command line as a test sees it: arguments in, exit code and two streams out."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from support.processes import Program, Programs


class Done(NamedTuple):
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def objects(self) -> list[Any]:
        """What it printed, a JSON value a line."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def event(self) -> str:
        """Its only line on stderr, which is an error's."""
        (line,) = self.err.splitlines()
        assert line.startswith("inferq: "), line
        return line.removeprefix("inferq: ")


class Commands:
    """Runs ``inferq`` on one server under one prefix.

    Attributes:
        env: the environment of all commands; ``None`` removes a variable.
    """

    def __init__(self, programs: Programs, url: str, prefix: str) -> None:
        self.env: dict[str, str | None] = {
            "INFERQ_REDIS_URL": url,
            "INFERQ_PREFIX": prefix,
            "REDIS_URL": None,
            "NO_COLOR": None,
            "FORCE_COLOR": None,
            # What a test makes fail is meant to fail soon.
            "INFERQ_PATIENCE_S": "0.2",
            # Help is laid out for this width, whatever terminal runs the suite.
            "COLUMNS": "100",
        }
        self._programs = programs

    def start(
        self,
        *arguments: str | Path,
        stdin: Path | None = None,
        env: Mapping[str, str | None] | None = None,
        cwd: Path | None = None,
    ) -> Program:
        """Start a command; its standard input is empty, or a file."""
        options: Any = {"env": {**self.env, **(env or {})}, **({"cwd": cwd} if cwd else {})}
        if stdin is None:
            return self._programs.inferq(*arguments, **options)
        script = 'from=$1; shift; exec "$@" <"$from"'
        command = (sys.executable, "-m", "inferq", *arguments)
        return self._programs.start("/bin/sh", "-c", script, "sh", stdin, *command, **options)

    def __call__(self, *arguments: str | Path, **options: Any) -> Done:
        """Run a command to its end."""
        program = self.start(*arguments, **options)
        code = program.wait(60.0)
        return Done(code, program.output("stdout"), program.output("stderr"))


@pytest.fixture
def inferq(programs: Programs, redis_url: str, prefix: str) -> Commands:
    """Run the command line on the run's server under the test's prefix."""
    return Commands(programs, redis_url, prefix)
