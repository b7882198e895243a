"""How a batch adds to the counters of its model."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from inferq.contract.counters import HISTOGRAMS, bucket_fields

_EDGES: Final = {name: np.array(edges, dtype=np.float64) for name, edges in HISTOGRAMS.items()}


class Tally:
    """What one batch adds to the counters."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def add(self, field: str, amount: int = 1) -> None:
        """Add to a plain counter."""
        self._counts[field] += amount

    def put(self, field: str, amount: int) -> None:
        """Set what this batch adds to a plain counter."""
        self._counts[field] = amount

    def observe(self, histogram: str, values: Sequence[float]) -> None:
        """Count each value in its bucket."""
        fields = bucket_fields(histogram)
        # side="left": a value on an edge belongs to the bucket that the edge closes.
        places = np.searchsorted(_EDGES[histogram], values, side="left")
        for place, count in enumerate(np.bincount(places).tolist()):
            if count:
                self._counts[fields[place]] += count

    def observe_seconds(self, histogram: str, values: Sequence[float]) -> None:
        """Count durations in s, and add them to the histogram's sum."""
        if values:
            self.observe(histogram, values)
            self._counts[f"{histogram}_ns_sum"] += int(sum(values) * 1e9)

    def pairs(self) -> Iterable[str | int]:
        """Return counter, increment, counter, increment, ... of what changed."""
        for field, amount in self._counts.items():
            if amount:
                yield field
                yield amount
