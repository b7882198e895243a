"""Queues, workers and their counters as text for people. Pure, but for the clock of the stamp."""

from collections.abc import Sequence
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Final

from rich.text import Text

from inferq.cli.terminal import bar
from inferq.contract.description import ModelDescription
from inferq.contract.tensors import TensorSpec
from inferq.info import ModelInfo, Quantiles, WorkerInfo, batch_size_ranges

_STATES: Final = {"busy": "green", "idle": "dim", "lost": "red", "draining": "yellow"}
_MARGIN: Final = 18


class Show(Enum):
    """Which half of what is known to show."""

    BOTH = "both"
    QUEUES = "queues"
    WORKERS = "workers"


def picture(infos: Sequence[ModelInfo], show: Show) -> Text:
    """Draw models for people."""
    parts = []
    if show is not Show.WORKERS:
        parts.append(queues(infos))
    if show is not Show.QUEUES:
        parts.append(workers(infos))
    return Text("\n\n").join([*parts, totals(infos)])


def members(info: ModelInfo, show: Show) -> dict[str, Any]:
    """Return one model for programs."""
    found = info.to_json()
    if show is Show.WORKERS:
        return {name: found[name] for name in ("model", "workers")}
    if show is Show.QUEUES:
        del found["workers"]
    return found


def queues(infos: Sequence[ModelInfo]) -> Text:
    """Draw each model's queue, and what has been counted so far."""
    most = max((info.waiting for info in infos), default=0)
    return Text("\n\n").join([_queue(info, most) for info in infos])


def workers(infos: Sequence[ModelInfo]) -> Text:
    """List the workers of all models, one a line."""
    rows = [(worker, info.model) for info in infos for worker in info.workers]
    if not rows:
        return Text("no workers", "yellow")
    width = max(len(worker.id) for worker, _ in rows)
    return Text("\n").join([_worker(worker, model, width) for worker, model in rows])


def totals(infos: Sequence[ModelInfo]) -> Text:
    """Sum up, and say when that was."""
    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    count = sum(len(info.workers) for info in infos)
    return Text(
        f"{_count(len(infos), 'model')}, {sum(info.waiting for info in infos):,} waiting, "
        f"{sum(info.in_flight for info in infos):,} in flight, {_count(count, 'worker')}; {now}",
        "dim",
    )


def model_line(description: ModelDescription) -> str:
    """Say in one line what a model takes and gives."""
    taken, given = (
        ", ".join(_tensor(spec) for spec in specs)
        for specs in (description.inputs, description.outputs)
    )
    return f"{description.name}  {taken} -> {given}  (batches up to {description.max_batch_size})"


def batch_sizes(counts: dict[str, int]) -> list[str]:
    """Draw how often batches had which size, from the smallest seen to the largest.

    ``counts`` is :attr:`ModelInfo.batch_size`.
    """
    ranges = batch_size_ranges()
    seen = [place for place, (name, _) in enumerate(ranges) if counts.get(name)]
    if not seen:
        return []
    most = max(counts.values())
    return [
        f"{label:>7}  {bar(counts.get(name, 0), most)} {counts.get(name, 0):,}"
        for name, label in ranges[seen[0] : seen[-1] + 1]
    ]


def _queue(info: ModelInfo, most: int) -> Text:
    depth = info.depth
    lines = [
        Text.assemble(
            (f"{info.model:<{_MARGIN - 1}} ", "bold"),
            (bar(info.waiting, most), "green"),
            f"{' ' if info.waiting else ''}{info.waiting:,} waiting, {info.in_flight:,} in flight",
        ),
        _line("lanes", ", ".join(f"{place} {depth[place]:,}" for place in depth)),
    ]
    counted = [f"{count:,} {outcome}" for outcome, count in info.requests.items() if count]
    if counted:
        lines.append(_line("requests", ", ".join(counted)))
    if info.batches:
        rows = f"{info.rows / info.batches:,.1f} rows each"
        lines.append(_line("batches", f"{info.batches:,}, {rows}"))
        times = {"queue": info.queue_ms, "compute": info.compute_ms, "total": info.total_ms}
        shown = ", ".join(f"{name} {_times(each)}" for name, each in times.items())
        lines.append(_line("p50/p95/p99 ms", shown))
        lines += [
            _line("batch size" if place == 0 else "", line)
            for place, line in enumerate(batch_sizes(info.batch_size))
        ]
    return Text("\n").join(lines)


def _line(name: str, text: str) -> Text:
    return Text.assemble((f"  {name:<{_MARGIN - 2}}", "dim"), text)


def _times(quantiles: Quantiles) -> str:
    found = (quantiles.p50, quantiles.p95, quantiles.p99)
    return " / ".join("-" if each is None else _short(each) for each in found)


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _worker(worker: WorkerInfo, model: str, width: int) -> Text:
    state = f"busy {worker.in_flight}" if worker.state == "busy" else worker.state
    where = "" if worker.pid is None else f"  pid {worker.pid} on {worker.host}"
    which = "" if worker.version is None else f"  {worker.version}"
    return Text.assemble(
        (f"{worker.id:<{width}}", "bold"),
        f"  {model}  ",
        (state, _STATES.get(worker.state, "")),
        f"  lease {worker.lease_s:.0f} s{where}{which}",
    )


def _tensor(spec: TensorSpec) -> str:
    return f"{spec.name} {spec.datatype} {list(spec.shape)}"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
