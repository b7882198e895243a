"""The matrix as a table: on the terminal, and in the documentation."""

from collections.abc import Mapping
from pathlib import Path

from rich.table import Table

from faults.matrix.plan import Result, Row

Results = Mapping[Row, Result]

_HEADS = (
    "", "fault", "requests", "answered", "lost", "answered twice", "misrouted",
    "seconds to recover",
)  # fmt: skip
BEGIN = "<!-- faults: begin -->"
END = "<!-- faults: end -->"


def on_terminal(results: Results) -> Table:
    """Build the table for a terminal."""
    table = Table(title="Fault matrix", title_justify="left")
    for place, head in enumerate(_HEADS):
        table.add_column(head, justify="left" if place == 1 else "right", no_wrap=place == 1)
    for row, result in results.items():
        failed = bool(result.broken or result.late)
        table.add_row(*_cells(row, result), style="bold red" if failed else None)
    return table


def in_markdown(results: Results, command: str) -> str:
    """Build the same for the documentation, with the command that prints it."""
    lines = [
        "| " + " | ".join(_HEADS) + " |",
        "| --: | :-- |" + " --: |" * (len(_HEADS) - 2),
        *("| " + " | ".join(_cells(row, result)) + " |" for row, result in results.items()),
        "",
        f"Printed by `{command}`. How each time to recover is measured, and the most it may be:",
        "",
    ]
    for row, result in results.items():
        lines += [f"* {row.number}: {figure}." for figure in result.figures]
    lines += ["", "What happened on the way:", ""]
    for row, result in results.items():
        lines += [f"* {row.number}: {note}." for note in result.notes]
    return "\n".join(lines)


def write_between_marks(file: Path, text: str) -> None:
    """Put text between the two marks of a file.

    Raises:
        ValueError: a mark is missing.
    """
    before, begin, rest = file.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{file} lacks the marks {BEGIN} and {END}")
    file.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}")


def _cells(row: Row, result: Result) -> list[str]:
    first = next(iter(result.figures), None)
    return [
        str(row.number),
        row.fault,
        f"{result.requests:,}",
        f"{result.answered:,}",
        *map(str, (result.lost, result.answered_twice, result.misrouted)),
        "-" if first is None else f"{first.measured_s:.1f}",
    ]
