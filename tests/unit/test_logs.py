"""The two forms of a log line."""

import io
import json
import logging
import sys
from typing import Any

import pytest

from inferq.cli.choices import Choices, Level
from inferq.cli.logs import ConsoleFormatter, JsonFormatter, colour_wanted

# 2026-12-01 12:30:45.678 UTC
AT_S = 1_796_128_245.678
AT = "2026-12-01T12:30:45.678Z"


def record(message: str = "hello %s", *args: object, **extra: Any) -> logging.LogRecord:
    level = extra.pop("level", logging.INFO)
    made = logging.LogRecord("inferq.test", level, __file__, 1, message, args or ("you",), None)
    made.created = AT_S
    made.__dict__.update(extra)
    return made


def fail() -> None:
    raise ValueError("bad\nnews")


def raised() -> Any:
    try:
        fail()
    except ValueError:
        return sys.exc_info()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class TestJson:
    def test_members(self) -> None:
        """A record is one JSON object with time in UTC, level, event and logger."""
        line = JsonFormatter().format(record())
        assert json.loads(line) == {
            "time": AT,
            "level": "info",
            "event": "hello you",
            "logger": "inferq.test",
        }

    def test_fields(self) -> None:
        """The known fields of a record are members; others are nobody's business."""
        found = json.loads(JsonFormatter().format(record(model="m", batch_size=3, secret="s")))
        assert (found["model"], found["batch_size"]) == ("m", 3)
        assert "secret" not in found

    def test_exception(self) -> None:
        """A traceback is a member, so that the record stays one line."""
        line = JsonFormatter().format(record(exc_info=raised()))
        assert "\n" not in line
        assert "ValueError: bad\nnews" in json.loads(line)["exception"]

    def test_what_json_cannot_hold(self) -> None:
        """A field that is no JSON is written as text instead of losing the record."""
        assert json.loads(JsonFormatter().format(record(worker=object)))["worker"]


class TestConsole:
    def test_a_line(self) -> None:
        """A line reads time, level, event, fields."""
        line = ConsoleFormatter(colour=False, tracebacks=False).format(record(model="m"))
        assert line == f"{AT} info    hello you  model=m"

    def test_a_line_break_forges_no_line(self) -> None:
        """What does not print is spelled out: terminal codes and line breaks alike."""
        line = ConsoleFormatter(colour=False, tracebacks=False).format(
            record("%s", "a\nb\x1b[31m\u202e")
        )
        assert line.endswith(r"a\nb\x1b[31m\u202e")

    def test_exception_in_one_line(self) -> None:
        """An exception adds the place it came from; its traceback is for debugging."""
        made = record(exc_info=raised())
        line = ConsoleFormatter(colour=False, tracebacks=False).format(made)
        assert "\n" not in line
        assert f"{__file__}:" in line
        assert "in fail" in line
        with_traceback = ConsoleFormatter(colour=False, tracebacks=True).format(made)
        assert "Traceback (most recent call last)" in with_traceback

    def test_colour(self) -> None:
        """Only a level that matters is coloured, and only if that is wanted."""
        warning = record(level=logging.WARNING)
        assert "\x1b[33mwarning" in ConsoleFormatter(colour=True, tracebacks=False).format(warning)
        assert "\x1b" not in ConsoleFormatter(colour=True, tracebacks=False).format(record())
        assert "\x1b" not in ConsoleFormatter(colour=False, tracebacks=False).format(warning)


class TestColourWanted:
    @pytest.mark.parametrize(
        ("environment", "plain", "terminal", "expected"),
        [
            ({}, False, True, True),
            ({}, False, False, False),
            ({}, True, True, False),
            ({"NO_COLOR": "1"}, False, True, False),
            ({"NO_COLOR": ""}, False, True, True),
            ({"FORCE_COLOR": "1"}, False, False, True),
            ({"FORCE_COLOR": "1"}, True, True, False),
            ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False, True, False),
        ],
    )
    def test_who_decides(
        self,
        monkeypatch: pytest.MonkeyPatch,
        environment: dict[str, str],
        plain: bool,  # noqa: FBT001 - a column of the table
        terminal: bool,  # noqa: FBT001
        expected: bool,  # noqa: FBT001
    ) -> None:
        """The flag and NO_COLOR forbid, FORCE_COLOR asks, a terminal gets colour."""
        for name in ("NO_COLOR", "FORCE_COLOR"):
            monkeypatch.delenv(name, raising=False)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        stream = Terminal() if terminal else io.StringIO()
        assert colour_wanted(stream, plain=plain) is expected


class TestLevel:
    @pytest.mark.parametrize(
        ("choices", "level"),
        [
            (Choices(), logging.WARNING),
            (Choices(verbose=1), logging.INFO),
            (Choices(verbose=2), logging.DEBUG),
            (Choices(verbose=9), logging.DEBUG),
            (Choices(quiet=1), logging.ERROR),
            (Choices(quiet=9), logging.ERROR),
            (Choices(verbose=1, quiet=1), logging.WARNING),
            (Choices(verbose=2, log_level=Level.ERROR), logging.ERROR),
        ],
    )
    def test_from_flags(self, choices: Choices, level: int) -> None:
        """Each -v and -q moves the usual level by one; --log-level sets it."""
        assert choices.level(logging.WARNING) == level

    def test_after_the_command(self) -> None:
        """Choices after a command's name come on top of those before it."""
        before = Choices(url="a", prefix="p", verbose=1)
        assert before.then(Choices(url="b", as_json=True, verbose=1)) == Choices(
            url="b", prefix="p", as_json=True, verbose=2
        )
