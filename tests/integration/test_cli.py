"""The command line as a whole: help, mistakes, set-up, addresses, settings, exit codes."""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis

from support.commands import Commands
from support.processes import Programs
from support.servers import PrivateServer
from support.workers import Doubler, Workers

COMMANDS = (
    "worker", "infer", "submit", "result", "cancel", "info", "models", "demo", "version",
    "config show",
)  # fmt: skip


class TestHelp:
    @pytest.mark.parametrize("command", ["", *COMMANDS])
    def test_of_every_command(self, inferq: Commands, command: str) -> None:
        """Each command explains itself on stdout, the options for every command included."""
        done = inferq(*command.split(), "--help")
        assert (done.code, done.err) == (0, "")
        assert f"Usage: inferq {command}".rstrip() in done.out
        for option in ("--url", "--prefix", "--json", "--config", "--log-format", "--no-color"):
            assert option in done.out
        if not command:
            assert all(name.split()[0] in done.out for name in COMMANDS)

    def test_without_a_command(self, inferq: Commands) -> None:
        """Alone it shows its help, and says that a command is missing."""
        done = inferq()
        assert done.code == 2
        assert "worker" in done.out
        assert done.event.startswith("missing command")

    def test_needs_no_server(self, programs: Programs) -> None:
        """Help and version load neither numpy nor redis, nor the producers."""
        done = programs.python(
            "-c",
            "import sys\n"
            "from inferq.cli.app import run\n"
            "assert run(['--help']) == run(['version']) == 0\n"
            "late = {'numpy', 'redis', 'inferq.producer', 'inferq.settings', 'inferq_worker'}\n"
            "sys.exit(', '.join(late & set(sys.modules)) or 0)",
        )
        assert done.wait() == 0, done.output("stderr")


class TestUsage:
    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (["nonsense"], "no such command 'nonsense'"),
            (["infer"], "missing argument 'MODEL'"),
            (["result", "m", "r", "more"], "unexpected extra argument"),
            (["infer", "m", "--nonsense"], "no such option: --nonsense"),
            (["infer", "m", "/nowhere/x.npy"], "cannot read '/nowhere/x.npy'"),
            (["infer", "m", "--input", "x"], "expected NAME=VALUE, got 'x'"),
            (["infer", "m", "--input", "x=a", "--input", "x=b"], "'x' is given twice"),
            (["infer", "m", "-", "--timeout", "soon"], "'soon' is not a duration"),
            (["infer", "m", "-", "--timeout", "0"], "longer than 0"),
            (["infer", "m", "-", "--priority", "urgent"], "urgent"),
            (["result", "m", "r", "--timeout", "-1"], "not a duration"),
            (["info", "-Q", "-W"], "--only-workers"),
            (["info", "-i", "0s"], "longer than 0"),
            (["worker", "m:M", "--max-requests", "0"], "--max-requests"),
            (["worker", "m:M", "--max-idle", "soon"], "'soon' is not a duration"),
            (["demo", "--seconds", "0"], "--seconds"),
            (["--config", "/nowhere/env", "version"], "/nowhere/env"),
            (["--log-level", "loud", "version"], "loud"),
        ],
    )
    def test_is_2(self, inferq: Commands, tmp_path: Path, arguments: list[str], words: str) -> None:
        """A mistake in the command line is one line that names it and the help, and code 2."""
        source = tmp_path / "input.json"
        source.write_text('{"x": 1}')
        done = inferq(*arguments, stdin=source)
        assert (done.code, done.out) == (2, "")
        assert words in done.event
        assert re.search(r"see 'inferq.* --help'$", done.event)

    def test_no_input_on_a_terminal(self, inferq: Commands, programs: Programs) -> None:
        """Without INPUT a command on a terminal does not wait for typing."""
        spawn = "import os, pty, sys\nsys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))"
        done = programs.python(
            "-c", spawn, sys.executable, "-m", "inferq", "infer", "m", env=inferq.env
        )
        assert done.wait() == 2
        assert "missing: give a file" in done.output("stdout")


class TestSetup:
    def test_wrong_type_of_key(
        self,
        inferq: Commands,
        workers: Workers,
        tmp_path: Path,
        client: redis.Redis,
        prefix: str,
    ) -> None:
        """A queue key that belongs to another program is named, and the code is 78."""
        workers.publish(Doubler())
        client.set(f"{prefix}:doubler", "somebody else's")
        source = tmp_path / "input.json"
        source.write_text('{"x": 1}')
        for arguments in (("info",), ("submit", "doubler", "-")):
            done = inferq(*arguments, stdin=source)
            assert (done.code, done.out) == (78, ""), done
            assert "another type" in done.event
        assert f"key '{prefix}:doubler'" in inferq("info").event

    @pytest.mark.parametrize(
        ("variable", "value", "words"),
        [
            ("INFERQ_PREFIX", "a b", "prefix"),
            ("INFERQ_REDIS_URL", "nonsense", "address 'nonsense'"),
            ("INFERQ_QUEUE_LIMIT", "many", "queue_limit"),
            ("INFERQ_PATIENCE_S", "soon", "'soon' is not a duration"),
        ],
    )
    def test_wrong_setting(self, inferq: Commands, variable: str, value: str, words: str) -> None:
        """A setting that cannot be is named, and the code is 78."""
        done = inferq("result", "m", "r", env={variable: value})
        assert (done.code, done.out) == (78, "")
        assert words in done.event


class TestRedisAway:
    @pytest.mark.parametrize(
        "arguments",
        [["submit", "m", "-"], ["result", "m", "r"], ["cancel", "m", "r"], ["info"], ["models"]],
    )
    def test_is_69(self, inferq: Commands, tmp_path: Path, arguments: list[str]) -> None:
        """Without a server every command ends with 69, and shows no password."""
        source = tmp_path / "input.json"
        source.write_text('{"x": 1}')
        url = "redis://me:hunter2@127.0.0.1:1/0"
        done = inferq("--url", url, *arguments, stdin=source)
        assert (done.code, done.out) == (69, "")
        assert "redis://me:***@127.0.0.1:1/0" in done.event
        assert "hunter2" not in done.err


class TestPassword:
    @pytest.mark.parametrize(
        ("url", "code"),
        [
            ("http://me:hunter2@host", 78),
            ("redis://me:hunter2@host:port", 78),
            ("redis://:hunter2@127.0.0.1:1", 69),
            ("redis://127.0.0.1:1?password=hunter2", 69),
            ("me:hunter2@host", 78),
        ],
    )
    def test_is_masked(self, inferq: Commands, url: str, code: int) -> None:
        """However the address is wrong, no message shows its password."""
        for done in (inferq("-vv", "models", "--url", url), inferq("-vv", "models", url)):
            assert "hunter2" not in done.err.splitlines()[-1]
        assert inferq("models", "--url", url).code == code

    def test_of_the_server(
        self,
        inferq: Commands,
        private_server: Callable[..., PrivateServer],
    ) -> None:
        """A password that the server wants is used, a wrong one is refused with 78, masked."""
        server = private_server(port=0)
        with redis.Redis.from_url(server.url) as client:
            client.config_set("requirepass", "hunter2")
        place = server.url.removeprefix("redis://")
        assert inferq("models", "-u", f"redis://:hunter2@{place}").code == 3
        for login in ("", ":wrong-one@"):
            done = inferq("models", "-u", f"redis://{login}{place}")
            assert done.code == 78, done
            assert "wrong-one" not in done.event

    def test_config_show(self, inferq: Commands) -> None:
        """The settings in force are shown without it, in both forms."""
        url = "redis://me:hunter2@host/1"
        for arguments in (("config", "show"), ("config", "show", "--json")):
            done = inferq(*arguments, "--url", url)
            assert "redis://me:***@host/1" in done.out
            assert "hunter2" not in done.out


class TestConfig:
    def test_order(self, inferq: Commands, tmp_path: Path) -> None:
        """A flag goes before the environment, that before the file, that before the default."""
        file = tmp_path / "inferq.env"
        file.write_text("INFERQ_PREFIX=file\nINFERQ_POLL_S=250ms\nINFERQ_LEASE_S=9\nOTHER=1\n")

        def shown(*flags: str, **env: str | None) -> dict[str, Any]:
            found = inferq("--config", file, "config", "show", "--json", *flags, env=env)
            settings: dict[str, Any] = found.objects[0]
            return settings

        settings = shown(INFERQ_PREFIX="env")
        assert (settings["prefix"], settings["poll_s"], settings["lease_s"]) == ("env", 0.25, 9)
        assert settings["map_window"] == 1_024
        assert shown("--prefix", "flag", INFERQ_PREFIX="env")["prefix"] == "flag"
        assert shown(INFERQ_PREFIX=None)["prefix"] == "file"

    def test_address(self, inferq: Commands) -> None:
        """REDIS_URL counts where no address is set for inferq, and --url before both."""

        def shown(*flags: str, **env: str | None) -> Any:
            return inferq("config", "show", "--json", *flags, env=env).objects[0]["redis_url"]

        plain = {"INFERQ_REDIS_URL": None, "REDIS_URL": "redis://plain/0"}
        assert shown(**plain) == "redis://plain/0"
        assert shown(**{**plain, "INFERQ_REDIS_URL": "redis://ours/0"}) == "redis://ours/0"
        assert shown("--url", "redis://flag/0", **plain) == "redis://flag/0"
        assert shown(INFERQ_REDIS_URL=None, REDIS_URL=None) == "redis://localhost:6379/0"

    def test_can_be_read_back(self, inferq: Commands, tmp_path: Path) -> None:
        """What config show prints is a file that --config reads."""
        file = tmp_path / "inferq.env"
        file.write_text(inferq("config", "show", env={"INFERQ_LEASE_S": "7"}).out)
        bare: dict[str, str | None] = dict.fromkeys(inferq.env)
        again = inferq("--config", file, "config", "show", env=bare)
        assert again.out == file.read_text()
        assert "INFERQ_LEASE_S=7.0" in again.out.splitlines()


class TestVersion:
    def test_forms(self, inferq: Commands, programs: Programs) -> None:
        """The command, the flag and the module say the same version."""
        line = inferq("version").out
        assert re.fullmatch(r"inferq \d+\.\d+\.\d+", line)
        assert inferq("--version").out == line
        assert inferq("version", "--json").objects == [{"version": line.split()[1]}]
        module = programs.python("-m", "inferq", "version")
        assert module.wait() == 0
        assert module.output("stdout") == line


class TestAddress:
    def test_prefix_flag(self, inferq: Commands, workers: Workers) -> None:
        """Another prefix is another world, named before the command or after it."""
        workers.publish(Doubler())
        assert inferq("models").code == 0
        assert inferq("--prefix", "elsewhere", "models").code == 3
        assert inferq("models", "--prefix", "elsewhere").code == 3

    def test_unix_socket_and_port(
        self, inferq: Commands, private_server: Callable[..., PrivateServer]
    ) -> None:
        """A server is reached by its socket as by its port."""
        server = private_server(port=0)
        with redis.Redis.from_url(server.url) as client:
            client.rpush("inferq:early", "{}")
        for url in (server.url, f"unix://{server.socket}"):
            done = inferq("info", "early", "-u", url, "--prefix", "inferq", "--json")
            assert done.objects[0]["depth"]["normal"] == 1


class TestTraceback:
    def test_only_when_asked_for(self, inferq: Commands) -> None:
        """An error is one line; -vv and --log-level debug show where it came from."""
        arguments = ("result", "m", "r")
        assert "Traceback" not in inferq("-v", *arguments).err
        for flags in (("-vv",), ("--log-level", "debug")):
            done = inferq(*flags, *arguments)
            assert "Traceback" in done.err
            assert done.err.splitlines()[-1].startswith("inferq: ")
