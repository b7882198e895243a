"""Whether a request's budget is spent before the model starts."""

import pytest

from inferq_worker.loop import lateness_ms
from support.batches import request

NOW_MS = 1_764_550_000_000
X = ("x", "FP32", [[0, 0]])


@pytest.mark.parametrize(
    ("parameters", "late_ms"),
    [
        ({}, 0),
        ({"submitted_ms": 0}, 0),
        ({"timeout": 1}, 0),
        ({"timeout": 0, "submitted_ms": 0}, 0),
        ({"timeout": 5_000_000, "submitted_ms": NOW_MS - 5_000}, 0),
        ({"timeout": 5_000_000, "submitted_ms": NOW_MS - 5_001}, 1),
        ({"timeout": 5_000_999, "submitted_ms": NOW_MS - 5_001}, 1),
        ({"timeout": 1, "submitted_ms": NOW_MS - 1}, 1),
        ({"timeout": 1, "submitted_ms": NOW_MS}, 0),
        ({"timeout": 1_000, "submitted_ms": NOW_MS + 60_000}, 0),
        ({"timeout": 2**64 - 1, "submitted_ms": 0}, 0),
        ({"timeout": 1_000, "submitted_ms": 0}, NOW_MS - 1),
        ({"timeout": 1_000, "submitted_ms": 2**64 - 1}, 0),
    ],
)
def test_table(parameters: dict[str, int], late_ms: int) -> None:
    """A timeout in microseconds counts from the stamp; without either there is no hurry."""
    assert lateness_ms(request("r", X, parameters=parameters), NOW_MS) == late_ms
