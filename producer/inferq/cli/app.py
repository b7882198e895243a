"""The whole command line put together, and the one place where it begins and ends."""

import os
import sys
from collections.abc import Sequence
from inspect import Parameter
from typing import Annotated, Any, Final

import typer

from inferq.cli import check, config, dead, demo, info, requests, worker
from inferq.cli.choices import Choices, taking_choices
from inferq.cli.exits import Exit, end


def _print_version(asked: bool) -> None:  # noqa: FBT001 - typer calls it so
    if asked:
        print(config.version_line())
        raise typer.Exit


def _choose(context: typer.Context, **values: Any) -> None:
    values.pop("version")
    context.obj = Choices(**values)


_VERSION: Final = Parameter(
    "version",
    Parameter.KEYWORD_ONLY,
    default=False,
    annotation=Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_print_version, help="Print the version and exit."
        ),
    ],
)


def make_app() -> typer.Typer:
    """Put the command line together."""
    app = typer.Typer(
        help="A message queue for model inference on Redis.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(taking_choices(_choose, [_VERSION]))
    for group in (worker, requests, info, dead, check, demo, config):
        group.add_to(app)
    return app


def run(arguments: Sequence[str]) -> int:
    """Run one command line; return the exit code of the process."""
    try:
        command = typer.main.get_command(make_app())
        code = command.main(list(arguments), prog_name="inferq", standalone_mode=False)
        # Here and not at the interpreter's end, where a closed pipe could not be dealt with.
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read has seen enough; the interpreter flushes once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.FAILED
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - each has its line and code
        return end(error)
    return int(code or Exit.OK)
