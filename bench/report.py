"""What is made of measured figures: medians, spreads, ratios, a table. Pure."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True)
class Series:
    """One scenario, measured once in every round.

    Attributes:
        name: the scenario.
        rates: requests per second, one for each round.
        ceilings: the ceiling of the same round, requests per second.
    """

    name: str
    rates: Sequence[float]
    ceilings: Sequence[float]

    @property
    def ratios(self) -> list[float]:
        """Each rate as a part of its own round's ceiling: a slow moment slows both down."""
        return [rate / limit for rate, limit in zip(self.rates, self.ceilings, strict=True)]

    def to_dict(self) -> dict[str, object]:
        """Return everything as plain values."""
        return {
            "scenario": self.name,
            "rates_rps": list(self.rates),
            "median_rps": median(self.rates),
            "min_rps": min(self.rates),
            "max_rps": max(self.rates),
            "ratios_to_ceiling": self.ratios,
            "median_ratio_to_ceiling": median(self.ratios),
        }


def table(every: Sequence[Series]) -> str:
    """Return a Markdown table, one line a scenario: requests per second and ratio to the ceiling."""
    rows: list[tuple[str, ...]] = [
        ("scenario", "median", "min", "max", "of the ceiling (min to max)")
    ]
    for each in every:
        rates = (f"{rate:,.0f}" for rate in (median(each.rates), min(each.rates), max(each.rates)))
        ratios = f"{median(each.ratios):.3f} ({min(each.ratios):.3f} to {max(each.ratios):.3f})"
        rows.append((each.name, *rates, ratios))
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    # Words to the left, figures to the right.
    rule = [("-" * (width + 1)) + (":" if at else "-") for at, width in enumerate(widths)]
    lines = ["| " + " | ".join(_padded(row, widths)) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "|".join(rule) + "|", *lines[1:]])


def _padded(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    return [
        cell.ljust(width) if at == 0 else cell.rjust(width)
        for at, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]


def to_json(facts: Mapping[str, object], run: Mapping[str, object], every: Sequence[Series]) -> str:
    """Return machine, arguments and all figures as JSON text."""
    scenarios = [each.to_dict() for each in every]
    return json.dumps({"machine": facts, "run": run, "scenarios": scenarios}, indent=2) + "\n"
