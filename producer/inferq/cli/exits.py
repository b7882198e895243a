"""How a command ends: one exit code and one line on stderr for every kind of error.

The codes are those of ``sysexits.h`` where it has one.
"""

import logging
import re
import sys
import traceback
from enum import IntEnum
from typing import Final

import typer

from inferq.contract.errors import (
    BusyError,
    InferqError,
    NotFound,
    SetupError,
    Unavailable,
    sentence,
)

# Public names for them do not exist: typer uses click, or its own copy of click, by version.
_UsageError, _ClickException = typer.BadParameter.__mro__[1:3]
_URL: Final = re.compile(r"[A-Za-z+]+://[^\s'\")]+")
_LOGIN: Final = re.compile(r":[^:@/\s]+@")


class Interrupted(Exception):
    """Ctrl-C came while a command ran; the text may say what goes on without it."""


class Exit(IntEnum):
    """Exit codes of the command line."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    UNAVAILABLE = 69
    TEMPORARY = 75
    SETUP = 78
    INTERRUPTED = 130


# The first class that fits decides.
_CODES: Final[tuple[tuple[type[BaseException], Exit], ...]] = (
    (NotFound, Exit.NOT_FOUND),
    (Unavailable, Exit.UNAVAILABLE),
    (BusyError, Exit.TEMPORARY),
    (SetupError, Exit.SETUP),
    (InferqError, Exit.FAILED),
    (_UsageError, Exit.USAGE),
    (Interrupted, Exit.INTERRUPTED),
    (KeyboardInterrupt, Exit.INTERRUPTED),
    (BaseException, Exit.FAILED),
)


def end(error: BaseException) -> Exit:
    """Say in one line on stderr what went wrong; return the exit code.

    The traceback comes before it where the log level is ``debug``.
    """
    if logging.getLogger().isEnabledFor(logging.DEBUG):
        traceback.print_exception(error)
    say(_words(error))
    return next(code for kind, code in _CODES if isinstance(error, kind))


def say(line: str) -> None:
    """Write one line to stderr, under the name of the program."""
    print(f"inferq: {line}", file=sys.stderr)


def _words(error: BaseException) -> str:
    if isinstance(error, InferqError):
        return sentence(error)
    if isinstance(error, Interrupted | KeyboardInterrupt):
        return str(error) or "interrupted"
    if isinstance(error, _ClickException):
        return _without_passwords(_usage(error))
    return _without_passwords(f"unexpected {type(error).__name__}: {error}; -vv shows where")


def _without_passwords(text: str) -> str:
    """Mask what looks like an address: these words are not ours, and may quote anything."""
    if "://" in text:
        from inferq.endpoint import masked

        text = _URL.sub(lambda found: masked(found[0]), text)
    return _LOGIN.sub(":***@", sentence(Exception(text)))


def _usage(error: BaseException) -> str:
    """Put a mistake in the command line into one sentence that names the way out."""
    found = str(error.format_message()) if hasattr(error, "format_message") else str(error)
    words = " ".join(found.split()).rstrip(".") or "missing command"
    context = getattr(error, "ctx", None)
    command = "inferq" if context is None else context.command_path
    words = words.replace("Value error, ", "")
    return f"{words[:1].lower()}{words[1:]}; see '{command} --help'"
