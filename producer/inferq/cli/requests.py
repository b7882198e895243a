"""``inferq infer``, ``submit``, ``result`` and ``cancel``."""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from inferq.cli.choices import Choices, command
from inferq.cli.exits import Interrupted
from inferq.cli.flags import pairs, positive_seconds
from inferq.contract.errors import InferqError

if TYPE_CHECKING:
    from inferq.cli.inputs import Asked
    from inferq.options import RequestOptions
    from inferq.producer import Producer


class Lane(StrEnum):
    """Lanes of a queue."""

    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"


Model = Annotated[str, typer.Argument(metavar="MODEL", help="The model's name.")]
RequestId = Annotated[str, typer.Argument(metavar="ID", help="The request's id.")]
Input = Annotated[
    str | None,
    typer.Argument(
        metavar="INPUT",
        help="A file, or '-' for standard input: an OIP request, a JSON object of tensor names "
        "and data, or .npy for a model with one input.",
        show_default=False,
    ),
]
Tensors = Annotated[
    list[str] | None,
    typer.Option("--input", metavar="NAME=FILE", help="One more tensor: .npy, or JSON data."),
]
Timeout = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="The model must have started by then, as 500ms or 2s."),
]
Priority = Annotated[Lane | None, typer.Option(help="The lane to wait in.")]
OwnId = Annotated[
    str | None, typer.Option("--id", metavar="ID", help="An id of your own; a known one joins.")
]
Parameter = Annotated[
    list[str] | None, typer.Option(metavar="NAME=VALUE", help="A parameter for the model.")
]
Output = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="Return only this output, and others named."),
]
Npz = Annotated[
    Path | None,
    typer.Option(metavar="FILE", dir_okay=False, help="Save the arrays there, and print no data."),
]


def add_to(app: typer.Typer) -> None:
    """Add the commands of this file."""
    command(app, "infer", infer)
    command(app, "submit", submit)
    command(app, "result", result)
    command(app, "cancel", cancel)


@dataclass(frozen=True)
class _Flags:
    """Flags of a request; ``None`` where one was not given."""

    timeout: str | None
    priority: Lane | None
    request_id: str | None
    parameter: Sequence[str] | None
    output: Sequence[str] | None


def infer(
    choices: Choices,
    model: Model,
    source: Input = None,
    *,
    tensors: Tensors = None,
    timeout: Timeout = None,
    priority: Priority = None,
    request_id: OwnId = None,
    parameter: Parameter = None,
    output: Output = None,
    npz: Npz = None,
) -> None:
    """Send one request, wait for its reply and print it.

    With --timeout the wait ends too when the time is over.
    """
    from inferq.cli.replies import show
    from inferq.ids import new_request_id

    asked = _ask(source, tensors, _Flags(timeout, priority, request_id, parameter, output))
    # Named here, so that it can be told whenever the wait is cut short.
    known_as = asked.options.setdefault("request_id", new_request_id())
    try:
        with _producer(choices) as producer:
            reply = producer.infer(model, asked.inputs, **asked.options)
    except KeyboardInterrupt:
        raise Interrupted(
            f"interrupted; request '{known_as}' may still be answered: "
            f"inferq result {model} {known_as}"
        ) from None
    show(reply, npz=npz, one_line=choices.as_json)


def submit(
    choices: Choices,
    model: Model,
    source: Input = None,
    *,
    tensors: Tensors = None,
    timeout: Timeout = None,
    priority: Priority = None,
    request_id: OwnId = None,
    parameter: Parameter = None,
    output: Output = None,
) -> None:
    """Send one request and print its id, for result and cancel."""
    asked = _ask(source, tensors, _Flags(timeout, priority, request_id, parameter, output))
    with _producer(choices) as producer:
        handle = producer.submit(model, asked.inputs, **asked.options)
    _print(choices, handle.id, id=handle.id, model=model)


def result(
    choices: Choices,
    model: Model,
    request_id: RequestId,
    timeout: Annotated[
        str | None, typer.Option(metavar="TIME", help="Wait so long; otherwise look once.")
    ] = None,
    npz: Npz = None,
) -> None:
    """Print the reply of a request, as often as wanted until it expires."""
    from inferq.cli.replies import show

    wait_s = None if timeout is None else positive_seconds("--timeout", timeout)
    with _producer(choices) as producer:
        reply = producer.result(model, request_id, timeout=wait_s)
    show(reply, npz=npz, one_line=choices.as_json)


def cancel(choices: Choices, model: Model, request_id: RequestId) -> None:
    """Withdraw a request that is not answered yet."""
    with _producer(choices) as producer:
        if not producer.cancel(model, request_id):
            raise InferqError(f"request '{request_id}' of model '{model}' is answered already")
    _print(choices, "cancelled", id=request_id, model=model, cancelled=True)


def _producer(choices: Choices) -> "Producer":
    from inferq.producer import Producer
    from inferq.settings import ProducerSettings

    return Producer(settings=choices.settings(ProducerSettings))


def _print(choices: Choices, line: str, **members: Any) -> None:
    print(json.dumps(members) if choices.as_json else line)


def _ask(source: str | None, tensors: Sequence[str] | None, flags: _Flags) -> "Asked":
    """Put a request together from what stdin, files and flags say; flags win."""
    from inferq.cli import inputs

    files = pairs("--input", tensors)
    if source is None and not files:
        if sys.stdin.isatty():
            raise typer.BadParameter(
                "missing: give a file, '-' for standard input, or --input NAME=FILE",
                param_hint="INPUT",
            )
        source = inputs.STDIN
    asked = None if source is None else inputs.parse(_read(source))
    more = {name: inputs.parse_tensor(_read(file)) for name, file in files.items()}
    combined = inputs.combine(asked, more)
    return inputs.Asked(combined.inputs, {**combined.options, **_options(combined, flags)})


def _options(asked: "Asked", flags: _Flags) -> "RequestOptions":
    from inferq.cli.inputs import scalar

    options: RequestOptions = {}
    if flags.timeout is not None:
        options["timeout"] = positive_seconds("--timeout", flags.timeout)
    if flags.priority is not None:
        options["priority"] = flags.priority.value
    if flags.request_id is not None:
        options["request_id"] = flags.request_id
    if flags.output:
        options["outputs"] = list(flags.output)
    if flags.parameter:
        given = pairs("--parameter", flags.parameter)
        theirs = asked.options.get("parameters", {})
        options["parameters"] = {**theirs, **{name: scalar(text) for name, text in given.items()}}
    return options


def _read(source: str) -> bytes:
    from inferq.cli.inputs import read

    try:
        return read(source)
    except OSError as error:
        raise typer.BadParameter(f"cannot read '{source}': {error.strerror}") from None
