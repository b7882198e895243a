"""``inferq version`` and ``inferq config show``."""

import json
from importlib.metadata import version

import typer

from inferq.cli.choices import Choices, command


def add_to(app: typer.Typer) -> None:
    """Add the commands of this file."""
    command(app, "version", show_version)
    group = typer.Typer(name="config", help="The settings in force.", no_args_is_help=True)
    command(group, "show", show)
    app.add_typer(group)


def version_line() -> str:
    """Return what ``--version`` prints."""
    return f"inferq {version('inferq')}"


def show_version(choices: Choices) -> None:
    """Print the version."""
    print(json.dumps({"version": version("inferq")}) if choices.as_json else version_line())


def show(choices: Choices) -> None:
    """Print the settings in force, as lines that --config reads.

    A password in the address is masked.
    """
    from inferq.endpoint import masked
    from inferq.settings import ProducerSettings
    from inferq_worker.settings import WorkerSettings

    values = {
        **choices.settings(ProducerSettings).model_dump(),
        **choices.settings(WorkerSettings).model_dump(),
    }
    values["redis_url"] = masked(values["redis_url"])
    if choices.as_json:
        print(json.dumps(values))
        return
    for name, value in values.items():
        line = f"INFERQ_{name.upper()}={'' if value is None else value}"
        # The model's own limit holds.
        print(f"# {line}" if value is None else line)
