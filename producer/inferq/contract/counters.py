"""Names of the counters in ``{inferq:MODEL}:metrics``, and the edges of the histograms.

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
``recovered``                   requests that ran, or waited to, when their worker died
``discarded``                   results for requests that were answered already
``unwritable``                  replies or hints whose key is of another type
==============================  ==================================================================
"""

from typing import Final

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

SUCCEEDED: Final = "requests_succeeded"


def outcome_field(code: str) -> str:
    """Name the counter of requests that ended with an error code."""
    return f"requests_{code}"


def bucket_fields(histogram: str) -> tuple[str, ...]:
    """Name a histogram's buckets, the last one open."""
    return _FIELDS[histogram]
