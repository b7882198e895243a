"""Servers of the suite: one that a whole run shares, and private ones that a test may break."""

import os
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import Self

from inferq import embedded
from inferq.server_binary import ServerBinary, find_binary
from support.waiting import until


def chosen_binary() -> ServerBinary:
    """Return the program that ``INFERQ_TEST_SERVER`` asks for, else the one inferq would start."""
    return find_binary(os.environ.get("INFERQ_TEST_SERVER") or None)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class PrivateServer:
    """A server of one test, in a folder of its own: to configure, fill, stop, kill and restart.

    ``arguments`` are added to the server's command line. With ``port`` it also listens on
    127.0.0.1 (0: any free port) and ``url`` is that address; with ``aof`` it keeps its data in
    that folder across restarts.
    """

    def __init__(
        self,
        binary: ServerBinary,
        *arguments: str,
        port: int | None = None,
        aof: Path | None = None,
    ) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="inferq-private-"))
        self.socket = self._folder / "server.sock"
        # Chosen once, so that a restarted server has the address it had.
        self.port = free_port() if port == 0 else port
        self.url = f"redis://127.0.0.1:{self.port}" if self.port else f"unix://{self.socket}"
        self._command = [str(binary.path), "--port", str(self.port or 0), "--bind", "127.0.0.1"]
        self._command += ["--unixsocket", str(self.socket), "--save", ""]
        self._command += ["--dir", str(aof or self._folder), "--appendonly", "yes" if aof else "no"]
        self._command += arguments
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server is stopped"
        return self._process.pid

    @property
    def log(self) -> str:
        return (self._folder / "server.log").read_text(errors="replace")

    def start(self) -> None:
        """Start the server, which is stopped, and return when it answers."""
        assert self._process is None, "the server runs already"
        with (self._folder / "server.log").open("ab") as log:
            process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self._process = process
        until(lambda: process.poll() is not None or embedded.answers(self.socket))
        assert process.poll() is None, self.log

    def stop(self) -> None:
        """Ask the server to end, and wait for it; nothing happens if it is stopped."""
        if self._process is not None:
            self._process.terminate()
            self._wait()

    def kill(self) -> None:
        """Kill the server, as a crash would, and wait; nothing happens if it is stopped."""
        if self._process is not None:
            self._process.kill()
            self._wait()

    def restart(self) -> None:
        """Stop the server if it runs, and start it again at the same address."""
        self.stop()
        self.start()

    def _wait(self) -> None:
        assert self._process is not None
        self._process.wait(10.0)
        self._process = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)
