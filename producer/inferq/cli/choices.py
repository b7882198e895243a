"""What can be chosen for every command, before its name or after it.

The fields of :class:`Choices` are the options. :func:`command` adds them to those of a command, and
the application itself takes them before one.
"""

import inspect
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import typer

from inferq.cli import logs
from inferq.cli.exits import Interrupted

S = TypeVar("S")
Command = Callable[..., None]

_PANEL: Final = "Everywhere"
_LEVELS: Final = (logging.ERROR, logging.WARNING, logging.INFO, logging.DEBUG)


class Level(StrEnum):
    """Names of log levels."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"
    DEBUG = "debug"


@dataclass(frozen=True)
class Choices:
    """The choices that hold for a command; ``None`` where nothing was chosen."""

    url: Annotated[
        str | None,
        typer.Option(
            "--url", "-u",
            metavar="ADDRESS",
            rich_help_panel=_PANEL,
            help="Where Redis is, or 'embedded' for a private server (INFERQ_REDIS_URL).",
        ),
    ] = None  # fmt: skip
    prefix: Annotated[
        str | None,
        typer.Option(
            "--prefix",
            metavar="NAME",
            rich_help_panel=_PANEL,
            help="First part of every key (INFERQ_PREFIX).",
        ),
    ] = None
    as_json: Annotated[
        bool,
        typer.Option("--json", rich_help_panel=_PANEL, help="Print JSON, one object a line."),
    ] = False
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            metavar="FILE",
            exists=True,
            dir_okay=False,
            readable=True,
            rich_help_panel=_PANEL,
            help="File of INFERQ_NAME=value lines; flags and environment win.",
        ),
    ] = None
    verbose: Annotated[
        int,
        typer.Option(
            "--verbose", "-v",
            count=True,
            metavar="",
            show_default=False,
            rich_help_panel=_PANEL,
            help="Log more; twice also shows tracebacks.",
        ),
    ] = 0  # fmt: skip
    quiet: Annotated[
        int,
        typer.Option(
            "--quiet", "-q",
            count=True,
            metavar="",
            show_default=False,
            rich_help_panel=_PANEL,
            help="Log less.",
        ),
    ] = 0  # fmt: skip
    log_level: Annotated[
        Level | None,
        typer.Option(
            "--log-level",
            metavar="LEVEL",
            rich_help_panel=_PANEL,
            help="Log from error, warning, info or debug on.",
        ),
    ] = None
    log_format: Annotated[
        logs.Format | None,
        typer.Option(
            "--log-format",
            metavar="FORM",
            rich_help_panel=_PANEL,
            help="console, json, or auto: console on a terminal, else json.",
        ),
    ] = None
    no_color: Annotated[
        bool,
        typer.Option("--no-color", rich_help_panel=_PANEL, help="No colours; as NO_COLOR=1 does."),
    ] = False

    def then(self, later: "Choices") -> "Choices":
        """Return these choices with later ones on top."""
        given = {
            field.name: getattr(later, field.name)
            for field in fields(later)
            if getattr(later, field.name) != field.default
        }
        verbose, quiet = self.verbose + later.verbose, self.quiet + later.quiet
        return replace(self, **{**given, "verbose": verbose, "quiet": quiet})

    def level(self, usual: int) -> int:
        """Return the log level, ``usual`` where nothing else was chosen."""
        if self.log_level is not None:
            return int(logging.getLevelNamesMapping()[self.log_level.upper()])
        place = _LEVELS.index(usual) + self.verbose - self.quiet
        return _LEVELS[max(0, min(place, len(_LEVELS) - 1))]

    def log_flags(self, usual: int) -> list[str]:
        """Return the flags that make another command log as this one does."""
        level = logging.getLevelName(self.level(usual)).lower()
        form = [] if self.log_format is None else ["--log-format", self.log_format]
        return ["--log-level", level, *form, *(["--no-color"] if self.no_color else [])]

    def settings(self, kind: Callable[..., S], **flags: object) -> S:
        """Make settings: flags, then the environment, then the file, then defaults.

        A flag that is ``None`` was not given.

        Raises:
            InvalidSetting: a value is not allowed; the message names the setting.
        """
        given = {"redis_url": self.url, "prefix": self.prefix, **flags}
        return kind(
            _env_file=self.config,
            **{name: value for name, value in given.items() if value is not None},
        )


def command(
    app: typer.Typer,
    name: str,
    function: Command,
    *,
    logs_from: int = logging.WARNING,
    hidden: bool = False,
) -> None:
    """Make a command of a function that takes :class:`Choices` first, then its own options.

    Args:
        app: what to add it to.
        name: the command's name; its help is the function's docstring.
        function: what runs, once logging is set up.
        logs_from: its usual log level.
        hidden: it is left out of the help.
    """

    @wraps(function)
    def run(context: typer.Context, **values: Any) -> None:
        later = Choices(**{field.name: values.pop(field.name) for field in fields(Choices)})
        choices = context.ensure_object(Choices).then(later)
        logs.set_up(choices.level(logs_from), choices.log_format, plain=choices.no_color)
        try:
            function(choices, **values)
        except KeyboardInterrupt as error:
            # typer would end with the right code and without a word.
            raise Interrupted(str(error)) from None

    own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
    app.command(name, hidden=hidden)(taking_choices(run, own))


def taking_choices(function: Command, own: Sequence[inspect.Parameter] = ()) -> Command:
    """Give a function the signature that typer reads options off: its own, then the choices."""
    everywhere = inspect.signature(Choices, eval_str=True).parameters.values()
    context = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    options = [part.replace(kind=inspect.Parameter.KEYWORD_ONLY) for part in (*own, *everywhere)]
    function.__signature__ = inspect.Signature([context, *options])  # type: ignore[attr-defined]
    function.__annotations__ = {}
    return function
