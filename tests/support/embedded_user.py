"""A program that uses the embedded server until SIGTERM, and forgets to close it.

    python embedded_user.py [FOLDER [GATE]]

FOLDER is the server's (default: the user's own); GATE is a file
whose exclusive lock keeps it from joining.
It prints ``using URL pid PID``, both of the server.
"""

import fcntl
import os
import re
import signal
import socket
import sys
from pathlib import Path
from urllib.parse import unquote

from inferq import embedded
from inferq.server_binary import find_binary


def server_pid(path: Path) -> int:
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(str(path))
        server.sendall(b"INFO server\r\n")
        found = re.search(rb"process_id:(\d+)", server.recv(65_536))
        assert found
        return int(found[1])


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main(folder: str = "", gate: str = "") -> None:
    binary = find_binary(os.environ.get("INFERQ_TEST_SERVER"))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    say("ready")
    if gate:
        with Path(gate).open() as opened:
            fcntl.flock(opened, fcntl.LOCK_SH)
    server = embedded.start(Path(folder) if folder else None, binary)
    path = Path(unquote(server.url.removeprefix("unix://")))
    say(f"using {server.url} pid {server_pid(path)}")
    while True:
        signal.pause()


if __name__ == "__main__":
    main(*sys.argv[1:])
