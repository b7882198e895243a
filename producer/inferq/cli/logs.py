"""Logs of the command line: to stderr, one line for each event, in UTC.

The packages log through :mod:`logging` and configure nothing; here it is configured.
"""

import json
import logging
import os
import sys
import traceback
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final, TextIO

FIELDS: Final = (
    "request_id", "model", "queue", "batch_id", "batch_size", "worker", "duration_ms", "trace_id",
    "span_id",
)  # fmt: skip
"""What a record may carry besides its event, as ``extra`` of the call that logs it."""

_STDERR: Final = 2
_COLOURS: Final = {"error": "31", "critical": "31", "warning": "33", "debug": "2"}


class Format(StrEnum):
    """Forms of a log line."""

    AUTO = "auto"
    CONSOLE = "console"
    JSON = "json"


def colour_wanted(stream: TextIO, *, plain: bool) -> bool:
    """Tell whether to colour what goes to ``stream``; ``plain`` is the user's ``--no-color``.

    ``NO_COLOR`` forbids it, ``FORCE_COLOR`` asks for it, a terminal gets it.
    """
    if plain or os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or stream.isatty()


def set_up(level: int, form: Format | None, *, plain: bool) -> None:
    """Send everything from ``level`` on to stderr; a second call replaces the first."""
    is_terminal = sys.stderr.isatty()
    if form is None or form is Format.AUTO:
        form = Format.CONSOLE if is_terminal else Format.JSON
    handler = _StderrHandler()
    if form is Format.JSON:
        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(
            ConsoleFormatter(
                colour=colour_wanted(sys.stderr, plain=plain), tracebacks=level <= logging.DEBUG
            )
        )
    logging.basicConfig(level=level, handlers=[handler], force=True)


class _StderrHandler(logging.Handler):
    """One write for each line: a signal handler may log, and so may children on the same stderr.

    A buffered stream refuses the first and mixes the second.
    """

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record).encode(errors="backslashreplace") + b"\n"
            while line:
                line = line[os.write(_STDERR, line) :]
        except OSError:
            pass  # nobody reads any more
        except Exception:  # noqa: BLE001 - a record that cannot be formatted must not end a worker
            self.handleError(record)


class JsonFormatter(logging.Formatter):
    """A JSON object for each record: ``time``, ``level``, ``event``, ``logger`` and its fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Write a record as JSON; an exception's traceback is the member ``exception``."""
        members: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            "logger": record.name,
            **_fields(record),
        }
        if record.exc_info and record.exc_info[1] is not None:
            members["exception"] = "".join(traceback.format_exception(record.exc_info[1]))
        return json.dumps(members, default=str)


class ConsoleFormatter(logging.Formatter):
    """A line for each record, for people: time, level, event and fields.

    Args:
        colour: colour the level.
        tracebacks: add the traceback of an exception; otherwise only the place it came from.
    """

    def __init__(self, *, colour: bool, tracebacks: bool) -> None:
        super().__init__()
        self._colour = colour
        self._tracebacks = tracebacks

    def format(self, record: logging.LogRecord) -> str:
        """Write a record as one line; what does not print in it is spelled out."""
        level = record.levelname.lower()
        shown = f"{level:<7}"
        if self._colour and level in _COLOURS:
            shown = f"\x1b[{_COLOURS[level]}m{shown}\x1b[0m"
        parts = [record.getMessage(), *(f"{name}={text}" for name, text in _fields(record).items())]
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            parts.append(_place(error))
        line = f"{_time(record)} {shown} {_printable('  '.join(parts))}"
        if error is not None and self._tracebacks:
            line += "\n" + "".join(traceback.format_exception(error)).rstrip()
        return line


def _time(record: logging.LogRecord) -> str:
    at = datetime.fromtimestamp(record.created, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    return {name: getattr(record, name) for name in FIELDS if hasattr(record, name)}


def _place(error: BaseException) -> str:
    """Name the line an exception was raised in."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return f"({type(error).__name__})"
    return f"({frames[-1].filename}:{frames[-1].lineno} in {frames[-1].name})"


def _printable(text: str) -> str:
    # A line break in what some sender chose would forge a line.
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )
