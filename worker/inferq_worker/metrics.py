"""Names of the counters in ``{inferq:MODEL}:metrics``, and how a batch adds to them.

All are integers that only grow, so a reader takes differences. Histograms keep one count per
bucket, not cumulated: one increment per observation. Sums are in nanoseconds.

==============================  ==================================================================
``requests_succeeded``          requests answered with a result
``requests_CODE``               requests answered with that error code of the wire contract
``batches``, ``rows``           model calls, and rows in them
``batch_size_le_N``             model calls by the number of requests that shared them
``queue_ns_sum``                from submission to the start of the model, where the sender
``queue_le_S``                  stamped its request; buckets in seconds
``compute_ns_sum``              the model call a request was in, once per request
``compute_le_S``
``total_ns_sum``                from submission to the reply
``total_le_S``
``bytes_in``, ``bytes_out``     request and reply messages
``dead``                        entries put on the dead list by workers
==============================  ==================================================================
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

LATENCY_EDGES_S: Final = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
)  # fmt: skip
BATCH_EDGES: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)
HISTOGRAMS: Final = {
    "batch_size": BATCH_EDGES,
    "queue": LATENCY_EDGES_S,
    "compute": LATENCY_EDGES_S,
    "total": LATENCY_EDGES_S,
}

_FIELDS: Final = {
    name: (*(f"{name}_le_{edge:g}" for edge in edges), f"{name}_le_inf")
    for name, edges in HISTOGRAMS.items()
}
_EDGES: Final = {name: np.array(edges, dtype=np.float64) for name, edges in HISTOGRAMS.items()}

SUCCEEDED: Final = "requests_succeeded"


def outcome_field(code: str) -> str:
    """Name the counter of requests that ended with an error code."""
    return f"requests_{code}"


def bucket_fields(histogram: str) -> tuple[str, ...]:
    """Name a histogram's buckets, the last one open."""
    return _FIELDS[histogram]


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
        fields = _FIELDS[histogram]
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
