"""Real programs under test: started, listened to, signalled, and gone when the test is over."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Literal, Self, TypedDict, Unpack

Stream = Literal["stdout", "stderr"]


class Options(TypedDict, total=False):
    """How a program is started.

    ``env`` is laid over this process's environment; ``None`` as value removes a variable.
    """

    env: Mapping[str, str | None]
    cwd: Path


class Program:
    """A subprocess in a process group of its own, whose output is collected as it comes."""

    def __init__(self, *command: str | Path, **options: Unpack[Options]) -> None:
        environment = {**os.environ, "PYTHONUNBUFFERED": "1", **options.get("env", {})}
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env={name: value for name, value in environment.items() if value is not None},
            cwd=options.get("cwd"),
            start_new_session=True,
        )
        assert self._process.stdout
        assert self._process.stderr
        # Appended to by the reader of its stream, read by the test; both hold _news.
        self._lines: dict[Stream, list[str]] = {"stdout": [], "stderr": []}
        self._open: set[Stream] = {"stdout", "stderr"}
        self._news = threading.Condition()
        self._readers = [
            threading.Thread(target=self._read, args=("stdout", self._process.stdout), daemon=True),
            threading.Thread(target=self._read, args=("stderr", self._process.stderr), daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, stream: Stream, source: IO[str]) -> None:
        with source:
            for line in source:
                with self._news:
                    self._lines[stream].append(line.rstrip("\n"))
                    self._news.notify_all()
        with self._news:
            self._open.discard(stream)
            self._news.notify_all()

    @property
    def pid(self) -> int:
        return self._process.pid

    def output(self, stream: Stream) -> str:
        """Return what the program has written so far; all of it after :meth:`wait`."""
        with self._news:
            return "\n".join(self._lines[stream])

    def wait_for(
        self, pattern: str, *, stream: Stream = "stderr", timeout_s: float = 10.0
    ) -> re.Match[str]:
        """Return the match in the first line, past or to come, in which ``pattern`` is found.

        Raises:
            AssertionError: the stream ended or the time is over; the message holds all output.
        """
        with self._news:
            self._news.wait_for(
                lambda: self._find(pattern, stream) or stream not in self._open, timeout_s
            )
            found = self._find(pattern, stream)
        if found is None:
            raise AssertionError(f"no line of {stream} matches {pattern!r}\n{self._story()}")
        return found

    def _find(self, pattern: str, stream: Stream) -> re.Match[str] | None:
        matches = (re.search(pattern, line) for line in self._lines[stream])
        return next((match for match in matches if match), None)

    def _story(self) -> str:
        parts = [f"code: {self._process.poll()}"]
        parts += [f"--- {name}\n" + "\n".join(lines) for name, lines in self._lines.items()]
        return "\n".join(parts)

    def send(self, signal_number: signal.Signals) -> None:
        """Send a signal to the program itself, not to its children."""
        self._process.send_signal(signal_number)

    def wait(self, timeout_s: float = 10.0) -> int:
        """Return the exit code (minus the signal's number if one ended it), all output read.

        Raises:
            AssertionError: the program still runs; the message holds all output.
        """
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {timeout_s} s\n{self._story()}") from None
        for reader in self._readers:
            reader.join(timeout_s)
        return code

    def kill(self) -> None:
        """Kill what is left of the program's group; nothing happens if all of it is gone."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.wait()


class Programs:
    """Starts programs, and kills their groups at the end of the ``with`` block."""

    def __init__(self) -> None:
        self._started: list[Program] = []

    def start(self, *command: str | Path, **options: Unpack[Options]) -> Program:
        program = Program(*command, **options)
        self._started.append(program)
        return program

    def python(self, *arguments: str | Path, **options: Unpack[Options]) -> Program:
        """Start this interpreter, as in ``python("-m", "inferq_worker")``."""
        return self.start(sys.executable, *arguments, **options)

    def inferq(self, *arguments: str | Path, **options: Unpack[Options]) -> Program:
        """Start the installed command, as in ``inferq("worker", "digits:Digits")``."""
        return self.start(Path(sys.executable).with_name("inferq"), *arguments, **options)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for program in self._started:
            program.kill()
