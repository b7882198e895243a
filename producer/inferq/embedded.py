"""A private server for the address ``embedded``: started once, shared, stopped by its last user.

The server lives in a folder of the user's, on a Unix socket without a port, in memory only. Three
locks keep it in order. All are ``flock``, which the kernel drops with the process that holds it, so
a process that is killed has left.

=====================  =========  =============================================================
lock on                kind       held by
=====================  =========  =============================================================
the folder             shared     every user, for as long as it uses the server
``turn.lock`` in it    exclusive  whoever joins or leaves: one at a time, however many come
``server.lock`` in it  exclusive  the server itself, through a descriptor it was started with
=====================  =========  =============================================================

Whoever leaves and can make its lock on the folder exclusive was the last, and stops the server.
Whoever joins asks the socket first: a server whose users were all killed answers, and is adopted.
One that does not answer but holds ``server.lock`` is still starting, and no second one is started.
"""

import contextlib
import fcntl
import logging
import os
import socket
import subprocess
import tempfile
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Self
from urllib.parse import quote

from inferq.contract.errors import InvalidSetting, ServerUnfit, Unavailable
from inferq.server_binary import ServerBinary, find_binary

SOCKET_PATH_LIMIT: Final = 100
"""Bytes that the socket's path must stay under; systems stop between 104 and 108."""

_PATIENCE_S: Final = 10.0
# Outlasts whoever has the turn and waits _PATIENCE_S for a server.
_TURN_S: Final = 30.0
_TICK_S: Final = 0.01

_log = logging.getLogger(__name__)


class EmbeddedServer:
    """One user's hold on the private server; made by :func:`start`, dropped by :meth:`close`.

    ``url`` is the server's address for any Redis client. A context manager closes it; so does the
    end of the interpreter, and the end of this object. A forked child has no hold of its own: what
    it does with this object leaves the parent's as it is.
    """

    def __init__(self, folder: Path, users: int) -> None:
        self.url = "unix://" + quote(str(_socket_in(folder)))
        self._leave = weakref.finalize(self, _leave, folder, users, os.getpid())

    def close(self) -> None:
        """Leave the server, and stop it if nobody else uses it; a second call does nothing.

        Returns when the server has ended. Raises nothing: a server that could not be stopped is
        logged, and adopted by the next user.
        """
        self._leave()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def start(folder: Path | None = None, binary: ServerBinary | None = None) -> EmbeddedServer:
    """Join the private server of ``folder``, starting it if there is none.

    ``folder`` defaults to :func:`runtime_folder`; it is made with mode 0700 if it is missing.
    ``binary`` defaults to what :func:`~inferq.server_binary.find_binary` finds; it matters only to
    who starts the server.

    Raises:
        InvalidSetting: the folder is not the user's alone, or its path is too long for a socket.
        ServerUnfit: no server program was found, or the one found does not start.
        Unavailable: a server is there and does not answer, or another process keeps the turn.
    """
    folder = (folder or runtime_folder()).absolute()
    _check_length(_socket_in(folder))
    users = _hold(folder)
    try:
        with _turn(folder, users):
            _join_or_launch(folder, users, binary)
    except BaseException:
        _let_go(users)
        raise
    return EmbeddedServer(folder, users)


def runtime_folder() -> Path:
    """Return the folder of this user's private server.

    ``$XDG_RUNTIME_DIR/inferq``, or ``inferq-UID`` in the folder for temporary files.
    """
    runtime = Path(os.environ.get("XDG_RUNTIME_DIR", ""))
    # After su or sudo the variable may still name the folder of the user one came from.
    if runtime.is_absolute() and runtime.is_dir() and runtime.stat().st_uid == os.geteuid():
        return runtime / "inferq"
    return Path(tempfile.gettempdir()) / f"inferq-{os.geteuid()}"


def answers(path: Path) -> bool:
    """Tell whether a server on the Unix socket ``path`` answers, and answers within a second."""
    try:
        with _connected(path, timeout_s=1.0) as server:
            server.sendall(b"PING\r\n")
            return server.recv(64) == b"+PONG\r\n"
    except OSError:
        return False


def _socket_in(folder: Path) -> Path:
    return folder / "server.sock"


def _log_in(folder: Path) -> Path:
    return folder / "server.log"


def _check_length(path: Path) -> None:
    length = len(os.fsencode(path))
    if length >= SOCKET_PATH_LIMIT:
        raise InvalidSetting(
            f"the socket of the private server, {path}, has a path of {length} bytes and must stay "
            f"under {SOCKET_PATH_LIMIT}: set XDG_RUNTIME_DIR (or TMPDIR) to a shorter folder"
        )


def _hold(folder: Path) -> int:
    """Return a descriptor of ``folder`` that carries a user's shared lock.

    The lock is on the folder and not on a file in it because cleaners of temporary folders pass
    over a locked folder, and everything in it.
    """
    while True:
        users = _open_private(folder)
        try:
            _lock(users, fcntl.LOCK_SH, folder)
            if _is_at(folder, users):
                return users
        except BaseException:
            os.close(users)
            raise
        # Removed, or replaced, between open and lock: what we hold is nobody's meeting place.
        os.close(users)


def _open_private(folder: Path) -> int:
    """Open ``folder``, made if missing, and refuse one that others could write to."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        users = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise _refused(folder, f"cannot be used: {error.strerror}") from error
    seen = os.fstat(users)
    if seen.st_uid == os.geteuid() and not seen.st_mode & 0o077:
        return users
    os.close(users)
    if seen.st_uid != os.geteuid():
        raise _refused(folder, f"is owned by user {seen.st_uid}")
    raise _refused(folder, f"is open to others (mode {seen.st_mode & 0o777:04o}, expected 0700)")


def _refused(folder: Path, why: str) -> InvalidSetting:
    return InvalidSetting(
        f"the folder of the private server, {folder}, {why}: remove it, or set XDG_RUNTIME_DIR to "
        "a folder of your own"
    )


def _is_at(folder: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(folder.lstat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _lock(descriptor: int, kind: int, path: Path) -> None:
    # Not a blocking flock: a stopped process that holds the lock would hang everybody silently.
    deadline = time.monotonic() + _TURN_S
    while True:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise Unavailable(
                    f"another process has kept {path} locked for {_TURN_S:.0f} s: "
                    "is it stopped, or does it hang?"
                ) from None
            time.sleep(_TICK_S)
        else:
            return


def _let_go(descriptor: int) -> None:
    # Closing alone would leave the lock with the children that were forked meanwhile.
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


def _open_in(users: int, name: str) -> int:
    # Relative to the descriptor: the folder we hold, whatever its path leads to by now.
    return os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=users)


@contextlib.contextmanager
def _turn(folder: Path, users: int) -> Iterator[None]:
    turn = _open_in(users, "turn.lock")
    try:
        _lock(turn, fcntl.LOCK_EX, folder / "turn.lock")
        yield
    finally:
        _let_go(turn)


def _join_or_launch(folder: Path, users: int, binary: ServerBinary | None) -> None:
    """Return when a server answers in ``folder``; at most one is launched on the way."""
    launched: ServerBinary | None = None
    deadline = time.monotonic() + _PATIENCE_S
    while not answers(_socket_in(folder)):
        alive = _open_in(users, "server.lock")
        try:
            fcntl.flock(alive, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pass  # a server lives: it is still starting, or it hangs
        else:
            if launched:
                raise _broken(folder, launched, "ended before it answered")
            launched = binary or find_binary()
            _launch(folder, launched, alive)
        finally:
            # Without unlocking: a server just launched shares this lock and keeps it.
            os.close(alive)
        if time.monotonic() >= deadline:
            raise Unavailable(
                f"the private server in {folder} has not answered for {_PATIENCE_S:.0f} s: wait, "
                f"or kill the process named in {folder / 'server.pid'}; {_log_tail(folder)}"
            )
        time.sleep(_TICK_S)
    _log.info(
        "%s on %s: in memory only, its data is gone when its last user leaves",
        f"started {launched}" if launched else "joined the private server",
        _socket_in(folder),
    )


def _launch(folder: Path, binary: ServerBinary, alive: int) -> None:
    # The server detaches by itself (daemonize): it outlives us, gets no Ctrl-C of our terminal, and
    # is nobody's child, so no zombie is left when it ends before the one who started it.
    command = [str(binary.path), "--daemonize", "yes", "--dir", str(folder)]
    command += ["--port", "0", "--unixsocket", str(_socket_in(folder)), "--unixsocketperm", "700"]
    command += ["--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction"]
    # Named, since a daemon without a name for its pid file takes the one of the system's server.
    command += ["--logfile", str(_log_in(folder)), "--pidfile", str(folder / "server.pid")]
    with _log_in(folder).open("wb") as log:
        try:
            code = subprocess.run(  # noqa: S603 - find_binary chose it
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Redis 7.2 and later refuse to start under a locale that is not installed.
                env={**os.environ, "LC_ALL": "C"},
                pass_fds=(alive,),
                check=False,
                timeout=_PATIENCE_S,
            ).returncode
        except (OSError, subprocess.TimeoutExpired) as error:
            raise _broken(folder, binary, f"does not start: {error}") from error
    if code != 0:
        raise _broken(folder, binary, f"ended with code {code}")


def _broken(folder: Path, binary: ServerBinary, what: str) -> ServerUnfit:
    return ServerUnfit(f"{binary.path} ({binary}) {what}; {_log_tail(folder)}")


def _log_tail(folder: Path) -> str:
    try:
        tail = _log_in(folder).read_text(errors="replace").splitlines()[-5:]
    except OSError:
        tail = []
    return "\n".join([f"the end of {_log_in(folder)}:", *(tail or ["(nothing)"])])


def _connected(path: Path, *, timeout_s: float) -> socket.socket:
    server = socket.socket(socket.AF_UNIX)
    server.settimeout(timeout_s)
    try:
        server.connect(str(path))
    except BaseException:
        server.close()
        raise
    return server


def _leave(folder: Path, users: int, owner: int) -> None:
    if os.getpid() != owner:
        os.close(users)
        return
    try:
        if not _is_at(folder, users):
            # Its path leads nowhere, or to a server that is not ours to stop.
            raise FileNotFoundError("the folder was removed while the server was in use")
        with _turn(folder, users):
            if _was_last(users):
                _stop(_socket_in(folder))
    except (OSError, Unavailable) as error:
        _log.warning("the private server in %s may still run: %s", folder, error)
    finally:
        _let_go(users)


def _was_last(users: int) -> bool:
    # In two steps: whether a refused conversion keeps the shared lock is the system's choice.
    fcntl.flock(users, fcntl.LOCK_UN)
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _stop(path: Path) -> None:
    try:
        server = _connected(path, timeout_s=_PATIENCE_S)
    except (ConnectionError, FileNotFoundError):
        return  # it ended before us
    with server, contextlib.suppress(ConnectionError):
        server.sendall(b"SHUTDOWN NOSAVE\r\n")
        while server.recv(4096):  # until its end closes the connection
            pass
