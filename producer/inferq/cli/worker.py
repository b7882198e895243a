"""``inferq worker``, and the hidden command that its processes run."""

import logging
import os
import sys
from typing import Annotated

import typer

from inferq.cli.choices import Choices, command
from inferq.cli.exits import Exit, end
from inferq.cli.flags import positive_seconds, seconds_or_zero

log = logging.getLogger(__name__)

_CHILD = "worker-process"


def add_to(app: typer.Typer) -> None:
    """Add the commands of this file."""
    command(app, "worker", serve, logs_from=logging.INFO)
    command(app, _CHILD, serve_under_parent, logs_from=logging.INFO, hidden=True)


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
    processes: Annotated[
        int, typer.Option("--processes", "-n", min=1, metavar="N", help="Run it in N processes.")
    ] = 1,
    devices: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="CUDA devices to deal out to the processes, as 0,1."),
    ] = None,
    batch_timeout: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="A process whose batch runs longer is killed; 0: never."),
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

    A parent process starts the model in processes of their own, starts another for one that dies
    or hangs, and frees its requests at once. SIGTERM or Ctrl-C finishes the batches that run; a
    second one ends at once.
    """
    from inferq_worker.child import Assignment
    from inferq_worker.placement import environments
    from inferq_worker.settings import WorkerSettings
    from inferq_worker.supervisor import Supervisor

    settings = choices.settings(
        WorkerSettings,
        max_batch_size=max_batch_size,
        lease_s=None if lease is None else positive_seconds("--lease", lease),
        batch_timeout_s=(
            None if batch_timeout is None else seconds_or_zero("--batch-timeout", batch_timeout)
        ),
        drain_timeout_s=(
            None if drain_timeout is None else positive_seconds("--drain-timeout", drain_timeout)
        ),
    )
    assignment = Assignment(
        target=target,
        model=model,
        settings=settings.model_dump(),
        burst=burst,
        max_requests=max_requests,
        max_idle_s=None if max_idle is None else positive_seconds("--max-idle", max_idle),
    )
    supervisor = Supervisor(
        [sys.executable, "-m", "inferq", _CHILD, *choices.log_flags(logging.INFO)],
        assignment,
        settings,
        processes=processes,
        environments=environments(
            processes,
            os.cpu_count() or 1,
            [each for each in (devices or "").split(",") if each],
            os.environ,
        ),
    )
    code = supervisor.run()
    log.info("stopped after %d requests", supervisor.answered)
    raise typer.Exit(code)


def serve_under_parent(choices: Choices) -> None:  # noqa: ARG001 - every command takes them
    """Run one process of a worker; what to do comes over standard input."""
    from inferq_worker.child import Assignment, run

    code = int(Exit.FAILED)
    try:
        code = run(Assignment.from_line(sys.stdin.buffer.readline()))
    except BaseException as error:  # noqa: BLE001 - whatever a model raises past its worker
        end(error)
    finally:
        logging.shutdown()
        sys.stdout.flush()
        # Not by returning: a thread that the model left behind would keep the process.
        os._exit(code)
