"""``inferq demo``."""

import json
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Final

import typer

from inferq.cli.choices import Choices, command
from inferq.contract.errors import InferqError

if TYPE_CHECKING:
    from inferq.cli.trial import Report

_BATCH: Final = 64
_LABEL_WIDTH: Final = 22


def add_to(app: typer.Typer) -> None:
    """Add the command of this file."""
    command(app, "demo", demo)


def demo(
    choices: Choices,
    seconds: Annotated[
        float, typer.Option(min=0.1, max=3600, metavar="N", help="Length of each of two loads.")
    ] = 4.0,
) -> None:
    """Read handwritten digits on two worker processes, with batches and without.

    Each held-out image is a request of its own, sent over and over; each reply is checked. It
    runs on a private server unless --url names another, under a prefix of its own.
    """
    from inferq.cli.trial import Images, run
    from inferq.endpoint import EMBEDDED

    # A demo that is told to end takes its workers along.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    url = choices.url or EMBEDDED
    images = Images.load()
    with _progress() as (batched_done, single_done):
        batched = run(url, images, _BATCH, seconds, batched_done)
        single = run(url, images, 1, seconds, single_done)
    if choices.as_json:
        print(json.dumps(_members(batched, single)))
    else:
        _print(len(images.pixels), batched, single)
    for report in (batched, single):
        if report.lost or report.wrong:
            why = f" ({report.failure})" if report.failure else ""
            raise InferqError(f"{report.lost} requests lost, {report.wrong} replies wrong{why}")


Tick = Callable[[float], object]


@contextmanager
def _progress() -> Iterator[tuple[Tick, Tick]]:
    """Show a bar for each load on a terminal, and nothing elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    shown = Progress(
        *columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()
    )

    def bar(title: str) -> Tick:
        task = shown.add_task(title, total=1.0)
        return lambda share: shown.update(task, completed=min(1.0, share))

    with shown:
        yield bar(f"batches up to {_BATCH}"), bar("one at a time")


def _members(batched: "Report", single: "Report") -> dict[str, object]:
    return {
        "requests": batched.requests,
        "answered": batched.answered,
        "wrong": batched.wrong,
        "accuracy": round(batched.accuracy, 4),
        "throughput_rps": round(batched.throughput_rps, 1),
        "latency_ms": {"p50": round(batched.p50_ms, 3), "p99": round(batched.p99_ms, 3)},
        "batch_size": {"mean": round(batched.mean_batch, 2), "max": batched.largest_batch},
        "unbatched_throughput_rps": round(single.throughput_rps, 1),
    }


def _print(count: int, batched: "Report", single: "Report") -> None:
    from inferq.cli.trial import OUTSTANDING, WORKERS
    from inferq.cli.view import batch_sizes

    print(
        f"{count} held-out images, {WORKERS} worker processes, {OUTSTANDING} requests under way\n"
    )
    rows: list[tuple[str, Callable[[Report], str]]] = [
        ("", lambda each: "one at a time" if each is single else f"batches up to {_BATCH}"),
        ("requests", lambda each: f"{each.requests:,}"),
        ("lost / wrong", lambda each: f"{each.lost} / {each.wrong}"),
        ("accuracy", lambda each: f"{each.accuracy:.1%}"),
        ("requests per second", lambda each: f"{each.throughput_rps:,.0f}"),
        ("latency p50 / p99", lambda each: f"{each.p50_ms:.1f} / {each.p99_ms:.1f} ms"),
        ("batch mean / largest", lambda each: f"{each.mean_batch:.1f} / {each.largest_batch}"),
    ]
    for label, text in rows:
        print(f"{label:<{_LABEL_WIDTH}}{text(batched):>18}{text(single):>18}".rstrip())
    print("\nmodel calls by batch size\n")
    print("\n".join(batch_sizes(batched.batch_size)))
    gain = batched.throughput_rps / single.throughput_rps
    print(f"\nbatching: {gain:.1f} times the throughput")
