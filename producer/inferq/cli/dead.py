"""``inferq dead``: look at requests that were given up on, let them run again, drop them."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from inferq.cli.choices import Choices, command
from inferq.cli.linked import linked
from inferq.contract.errors import InvalidRequest, NotFound

if TYPE_CHECKING:
    from inferq.dead import DeadEntry, DeadList

Model = Annotated[str, typer.Argument(metavar="MODEL", show_default=False)]
Which = Annotated[
    str, typer.Argument(metavar="ID|N", help="A request id, or its number in the list.")
]
WhichOrAll = Annotated[
    str | None, typer.Argument(metavar="[ID|N]", help="A request id, or its number in the list.")
]
Every = Annotated[bool, typer.Option("--all", help="All entries.")]

_PREVIEW_BYTES = 4_096


def add_to(app: typer.Typer) -> None:
    """Add the commands of this file."""
    group = typer.Typer(help="Requests that were given up on.", no_args_is_help=True)
    command(group, "list", list_)
    command(group, "show", show)
    command(group, "retry", retry)
    command(group, "drop", drop)
    app.add_typer(group, name="dead")


def list_(choices: Choices, model: Model) -> None:
    """List the requests of a model that were given up on, the newest first."""
    with _dead_list(choices, model) as dead:
        entries = dead.entries()
    if not entries:
        raise NotFound(f"the dead list of '{model}' is empty")
    for entry in entries:
        facts = _facts(entry)
        print(json.dumps(facts) if choices.as_json else _line(facts))


def show(choices: Choices, model: Model, which: Which) -> None:
    """Show one of them with the message as it was sent."""
    with _dead_list(choices, model) as dead:
        entry = dead.find(which)
    facts = {**_facts(entry), "whole": entry.is_whole, "message": _text(entry.message)}
    if choices.as_json:
        print(json.dumps(facts))
        return
    for name, value in facts.items():
        print(f"{name:>8}  {value}")


def retry(
    choices: Choices, model: Model, which: WhichOrAll = None, *, every: Every = False
) -> None:
    """Let a request run again, alone and with no deaths on its record."""
    with _dead_list(choices, model) as dead:
        count = _each(dead, which, every=every, act=dead.retry)
    _report(choices, "retried", count)


def drop(
    choices: Choices,
    model: Model,
    which: WhichOrAll = None,
    *,
    every: Every = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask; needed for --all.")] = False,
) -> None:
    """Drop a request for good."""
    if every and not yes:
        if not sys.stdin.isatty():
            raise typer.BadParameter("dropping everything needs --yes", param_hint="--all")
        typer.confirm(f"Drop the whole dead list of {model}?", abort=True, err=True)
    with _dead_list(choices, model) as dead:
        count = _each(dead, which, every=every, act=dead.drop)
    _report(choices, "dropped", count)


def _each(
    dead: "DeadList", which: str | None, *, every: bool, act: Callable[["DeadEntry"], bool]
) -> int:
    """Act on the chosen entries; return on how many. Of all, those that cannot are passed over."""
    if every == (which is not None):
        raise typer.BadParameter("expected either one request or --all", param_hint="ID|N")
    if which is not None:
        if not act(dead.find(which)):
            raise NotFound(f"request '{which}' is not on the dead list any more")
        return 1
    count = 0
    for entry in dead.entries():
        try:
            count += act(entry)
        except InvalidRequest as error:
            print(f"inferq: {error}", file=sys.stderr)
    return count


def _facts(entry: "DeadEntry") -> dict[str, Any]:
    at_ms = entry.note.get("at_ms")
    return {
        "place": entry.place,
        "id": entry.id,
        "at": None if at_ms is None else datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(),
        "code": entry.note.get("code"),
        "attempts": entry.note.get("attempts"),
        "reason": entry.note.get("reason"),
        "bytes": entry.note.get("bytes", len(entry.message)),
    }


def _line(facts: dict[str, Any]) -> str:
    return (
        f"{facts['place']:>4}  {facts['at'] or '-'}  {facts['code'] or '-':<16} "
        f"{facts['id'] or '(no id)'}  {facts['bytes']} bytes: {facts['reason']}"
    )


def _text(message: bytes) -> str:
    """Show a message as text as far as it is text; what is not is escaped."""
    shown = message[:_PREVIEW_BYTES].decode("utf-8", "backslashreplace")
    printable = "".join(each if each.isprintable() else ascii(each)[1:-1] for each in shown)
    return printable if len(message) <= _PREVIEW_BYTES else printable + " ..."


def _report(choices: Choices, verb: str, count: int) -> None:
    print(json.dumps({verb: count}) if choices.as_json else f"{verb} {count}")


@contextmanager
def _dead_list(choices: Choices, model: str) -> "Iterator[DeadList]":
    from inferq.dead import DeadList

    with linked(choices) as (link, prefix):
        yield DeadList(link, prefix, model)
