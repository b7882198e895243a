"""What one batch adds to the counters."""

from hypothesis import given
from hypothesis import strategies as st

from inferq.contract.counters import BATCH_EDGES, HISTOGRAMS, LATENCY_EDGES_S, bucket_fields
from inferq_worker.metrics import Tally


def counted(tally: Tally) -> dict[str, int]:
    """Return a tally's increments, and check that they are what HINCRBY takes."""
    pairs = list(tally.pairs())
    fields, increments = pairs[::2], pairs[1::2]
    assert len(fields) == len(set(fields))
    found = {}
    for field, increment in zip(fields, increments, strict=True):
        assert isinstance(field, str)
        assert isinstance(increment, int)
        found[field] = increment
    return found


def test_plain_counters() -> None:
    """Counters add up, and what did not change is not sent."""
    tally = Tally()
    tally.add("rows", 3)
    tally.add("rows")
    tally.add("batches", 0)
    assert counted(tally) == {"rows": 4}


def test_put_sets() -> None:
    """What is put replaces what was put before, so that building a completion twice is harmless."""
    tally = Tally()
    tally.put("bytes_in", 10)
    tally.put("bytes_in", 12)
    assert counted(tally) == {"bytes_in": 12}


def test_value_on_an_edge_belongs_to_the_bucket_it_closes() -> None:
    """Each edge counts in its own bucket, anything above in the next, and the last has no end."""
    tally = Tally()
    tally.observe("batch_size", [*BATCH_EDGES, *(edge + 1 for edge in BATCH_EDGES)])
    assert counted(tally) == {
        "batch_size_le_1": 1,
        **{f"batch_size_le_{edge}": 2 for edge in BATCH_EDGES[1:]},
        "batch_size_le_inf": 1,
    }


def test_seconds_and_their_sum() -> None:
    """Durations are counted in seconds and summed in nanoseconds."""
    tally = Tally()
    tally.observe_seconds("queue", [0.0, 0.001, 0.0011, 61.0])
    assert counted(tally) == {
        "queue_le_0.001": 2,
        "queue_le_0.0025": 1,
        "queue_le_inf": 1,
        "queue_ns_sum": 61_002_100_000,
    }


def test_nothing_observed() -> None:
    """No durations add nothing, not even a sum of 0."""
    tally = Tally()
    tally.observe_seconds("queue", [])
    assert counted(tally) == {}


@given(st.sampled_from(sorted(HISTOGRAMS)), st.lists(st.floats(0, 1e5), max_size=50))
def test_every_observation_is_in_one_bucket(histogram: str, values: list[float]) -> None:
    """The buckets of a histogram together hold every observation once, in the right place."""
    tally = Tally()
    tally.observe(histogram, values)
    found = counted(tally)
    assert set(found) <= set(bucket_fields(histogram))
    edges = [*HISTOGRAMS[histogram], float("inf")]
    below = 0
    for edge, field in zip(edges, bucket_fields(histogram), strict=True):
        below += found.get(field, 0)
        assert below == sum(value <= edge for value in values)


def test_names_of_the_buckets() -> None:
    """Bucket names are the contract's: the edge as people write it, and inf."""
    assert bucket_fields("queue")[:3] == ("queue_le_0.001", "queue_le_0.0025", "queue_le_0.005")
    assert bucket_fields("queue")[-2:] == ("queue_le_60", "queue_le_inf")
    assert len(bucket_fields("total")) == len(LATENCY_EDGES_S) + 1
