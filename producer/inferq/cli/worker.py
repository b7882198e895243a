"""``inferq worker``."""

import logging
import math
import os
import signal
from typing import TYPE_CHECKING, Annotated, Any

import typer

from inferq.cli import logs
from inferq.cli.choices import Choices, command
from inferq.cli.exits import Exit
from inferq.cli.flags import positive_seconds

if TYPE_CHECKING:
    from inferq_worker.worker import Worker

log = logging.getLogger(__name__)


def add_to(app: typer.Typer) -> None:
    """Add the command of this file."""
    command(app, "worker", serve, logs_from=logging.INFO)


def serve(
    choices: Choices,
    target: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:OBJECT",
            help="A Model class or instance, or a function decorated with @model; the working "
            "directory is on the import path.",
        ),
    ],
    *,
    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="Serve it under this name.")
    ] = None,
    max_batch_size: Annotated[
        int | None,
        typer.Option(metavar="ROWS", help="Rows in one model call, and requests in one claim."),
    ] = None,
    lease: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Silent for so long, the worker is taken for dead."),
    ] = None,
    drain_timeout: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="The most that stopping may take."),
    ] = None,
    burst: Annotated[bool, typer.Option("--burst", "-b", help="End when nothing waits.")] = False,
    max_requests: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="End once so many requests are answered."),
    ] = None,
    max_idle: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="End once no request has come for so long."),
    ] = None,
) -> None:
    """Serve a model: answer its requests in batches until told to stop.

    SIGTERM or Ctrl-C finishes the batch that runs; a second one ends at once.
    """
    from inferq_worker.settings import WorkerSettings

    settings = choices.settings(
        WorkerSettings,
        max_batch_size=max_batch_size,
        lease_s=None if lease is None else positive_seconds("--lease", lease),
        drain_timeout_s=(
            None if drain_timeout is None else positive_seconds("--drain-timeout", drain_timeout)
        ),
    )
    max_idle_s = math.inf if max_idle is None else positive_seconds("--max-idle", max_idle)
    worker = _worker(target, model, settings)
    logs.bind(model=worker.name)
    _stop_on_signals(worker)
    _announce(worker)
    answered = worker.run(
        burst=burst,
        max_requests=math.inf if max_requests is None else max_requests,
        max_idle_s=max_idle_s,
    )
    log.info("stopped after %d requests", answered)


def _worker(target: str, name: str | None, settings: Any) -> "Worker":
    from inferq.contract.errors import InvalidRequest, ModelUnfit
    from inferq_worker.model import import_model
    from inferq_worker.worker import Worker

    try:
        return Worker(import_model(target), settings, name=name)
    except InvalidRequest as error:
        # A model of that name cannot be served, whoever asks.
        raise ModelUnfit(str(error)) from None


def _announce(worker: "Worker") -> None:
    from inferq.endpoint import masked

    log.info(
        "serving %s in batches of up to %d from %s",
        worker.name,
        worker.description.max_batch_size,
        masked(worker.settings.redis_url),
    )


def _stop_on_signals(worker: "Worker") -> None:
    seen: list[int] = []

    def stop(number: int, _frame: object) -> None:
        name = signal.Signals(number).name
        if seen:
            log.warning("%s again: ending at once; the lease frees what is held", name)
            os._exit(Exit.TEMPORARY)
        seen.append(number)
        worker.stop()
        log.info("%s: finishing the batch that runs; once more to end at once", name)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
