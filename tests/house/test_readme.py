"""The README keeps its word: its Python and shell blocks run, in order, as a newcomer would."""

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

from support.processes import Programs
from support.servers import PrivateServer

ROOT = Path(__file__).parents[2]
REDIS_CLI = ROOT / "tests" / "support" / "redis_cli.py"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# (\w+\.py)\n")


def blocks() -> list[tuple[str, str]]:
    return BLOCK.findall((ROOT / "README.md").read_text())


def test_blocks_run_in_order(
    tmp_path: Path, private_server: Callable[..., PrivateServer], programs: Programs
) -> None:
    """Every Python block and every shell block but the two make lines runs without an error."""
    # Private, because the README's queues have the default prefix.
    url = private_server().url
    env = newcomers_environment(tmp_path, url)
    printed = ""
    for language, text in blocks():
        if language == "python" and (named := FILE.match(text)):
            (tmp_path / named[1]).write_text(text)
            continue
        if language == "sh" and text.startswith("make "):
            continue
        if language == "sh" and text.startswith("inferq worker"):
            programs.inferq(*text.split()[1:], env=env, cwd=tmp_path).wait_for("joined")
            continue
        if language == "python":
            # The address a reader would write is the private server's here.
            code = text.replace("redis://localhost:6379", url)
            program = programs.python("-c", code, env=env, cwd=tmp_path)
        else:
            program = programs.start("sh", "-e", "-c", text, env=env, cwd=tmp_path)
        assert program.wait() == 0, program.output("stderr")
        printed += program.output("stdout")
    assert "[2. 4. 6.]" in printed
    assert "Processed 50 predictions" in printed


def newcomers_environment(folder: Path, url: str) -> dict[str, str]:
    """Variables of a shell with inferq installed and a server at hand."""
    shim = folder / "bin" / "redis-cli"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\nexec {sys.executable} {REDIS_CLI} "$@"\n')
    shim.chmod(0o755)
    path = os.pathsep.join([str(shim.parent), str(Path(sys.executable).parent), os.environ["PATH"]])
    return {"PATH": path, "INFERQ_REDIS_URL": url}
