"""The Lua scripts: every change of a queue's state, one verb and one file each in ``lua/``.

A file begins with its own documentation: a sentence that says what the script does, its keys and
arguments in the order of the call, its answers, and why it may run twice. :func:`load` reads that
header into a :class:`Script`, so that nothing about a script is written down a second time.

::

    #!lua flags=allow-oom
    -- One sentence.
    --
    -- KEYS[1] {Q}:workers, sorted set - what is in it
    -- ARGV[1] lease, ms - what it means
    -- ARGV[2...] worker id - this one and all that follow
    --
    -- Returns {1, length} - when, and what the parts are
    --
    -- Twice: why a second, or late, run does no harm.

``Q`` is the queue key, ``PREFIX:MODEL``. A line that is indented further goes on with the one
above it.
"""

import functools
import hashlib
import re
from dataclasses import dataclass
from importlib import resources
from typing import Final

ALL: Final = (
    "publish",
    "submit",
    "register",
    "claim",
    "complete",
    "release",
    "renew",
    "recover",
    "cancel",
    "retry",
    "drop",
)
"""Names of all scripts, in the order of a request's life."""

_ENTRY = re.compile(r"^(KEYS\[[^\]]+\]|ARGV\[[^\]]+\]|Returns) (.+?) - (.+)$")


@dataclass(frozen=True, slots=True)
class Operand:
    """A key, an argument, or a run of them.

    Attributes:
        place: as the script's body writes it, ``KEYS[1]``; a run from there on is ``ARGV[3...]``.
        name: of a key its pattern and type, of an argument its name and unit.
        meaning: what it is for.
    """

    place: str
    name: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Answer:
    """One form of a script's answer, and when it is given."""

    form: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Script:
    """A script as it is sent to the server, and the signature its header gives.

    Attributes:
        name: its verb.
        source: the text the server runs.
        sha1: the server's name for it.
        keys, args: what a call passes, in order.
        returns: the answers it can give.
    """

    name: str
    source: str
    sha1: str
    keys: tuple[Operand, ...]
    args: tuple[Operand, ...]
    returns: tuple[Answer, ...]


@functools.cache
def load(name: str) -> Script:
    """Return the script ``name``, one of :data:`ALL`; its file is read once.

    Raises:
        ValueError: there is no such script.
    """
    if name not in ALL:
        raise ValueError(f"no script is called {name!r}: there are {', '.join(ALL)}")
    file = resources.files("inferq.contract") / "lua" / f"{name}.lua"
    return parse(name, file.read_text(encoding="utf-8"))


def parse(name: str, source: str) -> Script:
    """Read a script's header."""
    operands: dict[str, list[Operand]] = {"KEYS": [], "ARGV": []}
    returns: list[Answer] = []
    for line in _header(source):
        entry = _ENTRY.match(line)
        if entry is None:
            continue
        place, what, meaning = entry.groups()
        if place == "Returns":
            returns.append(Answer(what, meaning))
        else:
            operands[place[:4]].append(Operand(place, what, meaning))
    # The server names a script by this hash; nothing is kept secret or proved with it.
    sha1 = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
    keys, args = tuple(operands["KEYS"]), tuple(operands["ARGV"])
    return Script(name, source, sha1, keys, args, tuple(returns))


def _header(source: str) -> list[str]:
    """Return the comment that a script begins with, continued lines joined."""
    lines: list[str] = []
    for line in source.splitlines()[1:]:
        if not line.startswith("--"):
            break
        text = line.removeprefix("--").removeprefix(" ")
        if text.startswith(" ") and lines:
            lines[-1] += " " + text.strip()
        else:
            lines.append(text)
    return lines
