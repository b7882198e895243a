"""The compose file and the image: a valid file whose commands exist."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.processes import Programs

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text()


def test_schema() -> None:
    """The file is what the compose specification allows."""
    check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    done = subprocess.run(
        [*check, ROOT / "docker-compose.yml"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_workers_scale_and_stop_in_time() -> None:
    """A worker has no fixed name, is given longer to stop than it takes, and waits for Redis."""
    worker = SERVICES["worker"]
    assert "container_name" not in worker
    assert worker["init"] is True
    assert int(worker["stop_grace_period"].removesuffix("s")) > 30
    assert worker["depends_on"]["redis"]["condition"] == "service_healthy"


def test_queue_is_kept() -> None:
    """Redis writes an append-only file to a volume, never evicts, and listens to this machine."""
    redis = SERVICES["redis"]
    command = " ".join(redis["command"])
    assert "--appendonly yes" in command
    assert "--maxmemory-policy noeviction" in command
    assert all(port.startswith("127.0.0.1:") for port in redis["ports"])
    assert redis["volumes"][0].split(":")[0] in COMPOSE["volumes"]
    assert redis["healthcheck"]["test"][0] == "CMD"


def test_image_runs_without_rights_or_shell() -> None:
    """The image has a numeric user, and its entry point is in exec form."""
    assert re.search(r"^USER \d+:\d+$", DOCKERFILE, re.MULTILINE)
    assert re.search(r'^ENTRYPOINT \["inferq"\]$', DOCKERFILE, re.MULTILINE)


def commands() -> list[list[str]]:
    """Return what each service of ours runs, and its health check."""
    found = []
    for service in SERVICES.values():
        if "build" not in service:
            continue
        found.append([*service.get("entrypoint", ["inferq"]), *service["command"]])
        if "healthcheck" in service:
            found.append(service["healthcheck"]["test"][1:])
    return found


@pytest.mark.parametrize("command", commands(), ids=" ".join)
def test_commands_exist(command: list[str], programs: Programs) -> None:
    """Every command of the file knows its arguments: with --help behind them it explains itself."""
    here = {"inferq": Path(sys.executable).with_name("inferq"), "python": Path(sys.executable)}
    words = [str(here.get(word, word)) for word in command]
    words = [word.replace("/examples", str(ROOT / "examples")) for word in words]
    program = programs.start(*words, "--help")
    assert program.wait() == 0, program.output("stderr")
    assert "usage" in program.output("stdout").lower()
