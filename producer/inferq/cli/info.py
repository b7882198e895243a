"""``inferq info`` and ``inferq models``."""

import json
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from inferq.cli.choices import Choices, command
from inferq.cli.exits import say
from inferq.cli.flags import positive_seconds
from inferq.cli.linked import linked
from inferq.contract.errors import NotFound, ServerUnfit, sentence

if TYPE_CHECKING:
    from inferq.cli.view import Show
    from inferq.info import ModelInfo


def add_to(app: typer.Typer) -> None:
    """Add the commands of this file."""
    command(app, "info", info)
    command(app, "models", models)


def info(
    choices: Choices,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="MODEL", help="Only these models.", show_default=False),
    ] = None,
    *,
    interval: Annotated[
        str | None,
        typer.Option("--interval", "-i", metavar="TIME", help="Look again after each TIME."),
    ] = None,
    only_queues: Annotated[
        bool, typer.Option("--only-queues", "-Q", help="Leave workers out.")
    ] = False,
    only_workers: Annotated[
        bool, typer.Option("--only-workers", "-W", help="Leave queues out.")
    ] = False,
) -> None:
    """Show queues, workers, and what they have counted.

    With --json there is one object for each model.
    """
    from inferq.cli.view import Show
    from inferq.info import InfoReader

    if only_queues and only_workers:
        raise typer.BadParameter("leaves nothing beside --only-workers", param_hint="-Q")
    show = Show.QUEUES if only_queues else Show.WORKERS if only_workers else Show.BOTH
    pause_s = None if interval is None else positive_seconds("--interval", interval)
    with linked(choices) as (link, prefix):
        reader = InfoReader(link, prefix)

        def look() -> list["ModelInfo"]:
            found = []
            unfit = []
            for name in names or reader.models():
                try:
                    found.append(reader.read(name))
                except ServerUnfit as error:
                    unfit.append(error)
            # One model's key is another program's; the others are as they were.
            if unfit and (names or not found):
                raise unfit[0]
            for each in unfit:
                say(sentence(each))
            return found

        if pause_s is not None:
            _watch(choices, look, show, pause_s)
        found = look()
        if not found:
            raise _no_models(prefix)
        _print(choices, found, show)


def models(choices: Choices) -> None:
    """List the models that workers have published, and what they take and give."""
    from inferq.cli.view import model_line
    from inferq.contract.description import ModelDescription
    from inferq.contract.keys import Keys
    from inferq.info import InfoReader
    from inferq.redis_link import command as redis_command

    with linked(choices) as (link, prefix):
        names = InfoReader(link, prefix).models()
        if not names:
            raise _no_models(prefix)
        texts = link.run(*(redis_command("GET", Keys(prefix, name).description) for name in names))
    for name, text in zip(names, texts, strict=True):
        # A name whose description was deleted by hand is still a name.
        line = model_line(ModelDescription.from_json(text)) if text else name
        print(json.dumps({"model": name, **json.loads(text or "{}")}) if choices.as_json else line)


def _no_models(prefix: str) -> NotFound:
    return NotFound(f"no worker has ever published a model under prefix '{prefix}'")


def _print(choices: Choices, found: Sequence["ModelInfo"], show: "Show") -> None:
    from inferq.cli.terminal import console
    from inferq.cli.view import members, picture

    if choices.as_json:
        for each in found:
            print(json.dumps(members(each, show)), flush=True)
    else:
        console(plain=choices.no_color).print(picture(found, show))


def _watch(
    choices: Choices, look: Callable[[], list["ModelInfo"]], show: "Show", pause_s: float
) -> NoReturn:
    """Show what there is again and again: in place on a terminal, else one after the other."""
    from rich.live import Live

    from inferq.cli.terminal import console
    from inferq.cli.view import picture

    if choices.as_json or not sys.stdout.isatty():
        while True:
            _print(choices, look(), show)
            sys.stdout.flush()
            time.sleep(pause_s)
    with Live(console=console(plain=choices.no_color), auto_refresh=False) as live:
        while True:
            live.update(picture(look(), show), refresh=True)
            time.sleep(pause_s)
