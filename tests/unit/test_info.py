"""What ``inferq info`` concludes from raw answers."""

import dataclasses
import io
import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from inferq.cli.view import Show, batch_sizes, members, picture
from inferq.contract.counters import BATCH_EDGES, LATENCY_EDGES_S, bucket_fields
from inferq.info import (
    PLACES,
    ModelInfo,
    Snapshot,
    WorkerInfo,
    batch_size_bucket,
    batch_size_ranges,
    quantile,
    summarise,
)

EMPTY = dict.fromkeys(PLACES, 0)


def summary(**changes: Any) -> ModelInfo:
    return summarise("m", dataclasses.replace(Snapshot(EMPTY), **changes))


def drawn(info: ModelInfo, show: Show = Show.BOTH) -> str:
    out = io.StringIO()
    Console(file=out, soft_wrap=True, highlight=False).print(picture([info], show))
    return out.getvalue()


class TestQuantile:
    @pytest.mark.parametrize(
        ("counts", "share", "expected"),
        [
            ([0, 0, 0], 0.5, None),
            # All in one bucket: its edges are 1 and 2.
            ([0, 10, 0], 0.5, 1.5),
            ([0, 10, 0], 0.99, 1.99),
            # The first bucket begins at 0.
            ([10, 0, 0], 0.5, 0.5),
            # Half lie below 1, the other half between 1 and 2.
            ([5, 5, 0], 0.5, 1.0),
            ([5, 5, 0], 0.75, 1.5),
            # Of the open bucket only its lower edge is known.
            ([0, 0, 10], 0.5, 2.0),
            ([9, 0, 1], 0.99, 2.0),
            # An empty bucket in between holds no quantile.
            ([1, 0, 1], 0.5, 1.0),
        ],
    )
    def test_interpolates(
        self, counts: Sequence[int], share: float, expected: float | None
    ) -> None:
        """A quantile lies inside its bucket as far as its rank does."""
        assert quantile((1.0, 2.0), counts, share) == pytest.approx(expected)

    @given(
        st.lists(st.integers(0, 1_000), min_size=16, max_size=16),
        st.floats(0.01, 1.0),
        st.floats(0.01, 1.0),
    )
    def test_grows_with_the_share(self, counts: list[int], one: float, other: float) -> None:
        """A larger share never has a smaller quantile, and none lies outside the edges."""
        low = quantile(LATENCY_EDGES_S, counts, min(one, other))
        high = quantile(LATENCY_EDGES_S, counts, max(one, other))
        if low is None or high is None:
            assert not sum(counts)
        else:
            assert 0 < low <= high <= LATENCY_EDGES_S[-1]


class TestSummary:
    def test_nothing_has_happened(self) -> None:
        """A model without traffic has zeros, every outcome among them, and no quantiles."""
        info = summary()
        assert info.requests == {
            "succeeded": 0,
            "invalid_request": 0,
            "too_large": 0,
            "model_error": 0,
            "crashed": 0,
            "expired": 0,
            "cancelled": 0,
        }
        assert dataclasses.asdict(info.total_ms) == {"p50": None, "p95": None, "p99": None}
        assert (info.batches, info.rows, info.in_flight, info.waiting) == (0, 0, 0, 0)

    def test_counts_by_outcome(self) -> None:
        """Each outcome is under its code, one that this version does not know included."""
        counters = {"requests_succeeded": 3, "requests_expired": 1, "requests_new": 2, "dead": 9}
        requests = summary(counters=counters).requests
        assert {name: count for name, count in requests.items() if count} == {
            "succeeded": 3,
            "expired": 1,
            "new": 2,
        }

    def test_waiting_excludes_the_dead(self) -> None:
        """What was given up on does not wait."""
        lengths = dict(zip(PLACES, (1, 2, 4, 8, 16, 32), strict=True))
        info = summary(lengths=lengths)
        assert info.depth == lengths
        assert info.waiting == 31

    def test_in_flight_is_what_claims_hold(self) -> None:
        """Requests in flight are counted over all claims, also of workers that are gone."""
        info = summary(
            claims=[("a", 3), ("a", 4), ("gone", 5), ("b", 0)], leases={"a": 1000, "b": 1000}
        )
        assert info.in_flight == 12
        assert {worker.id: worker.in_flight for worker in info.workers} == {"a": 7, "b": 0}

    @pytest.mark.parametrize(
        ("held", "says", "lease_end_ms", "state"),
        [
            (0, {"state": "idle"}, 15_000, "idle"),
            # A claim that blocks is open and empty.
            (1, {"state": "idle"}, 15_000, "busy"),
            (0, {"state": "draining"}, 15_000, "draining"),
            (0, {}, 15_000, "idle"),
            (1, {"state": "idle"}, 9_999, "lost"),
            (0, {"state": "idle"}, 10_000, "lost"),
        ],
    )
    def test_state_of_a_worker(
        self, held: int, says: dict[str, str], lease_end_ms: int, state: str
    ) -> None:
        """A worker is busy while it holds a request, and lost once its lease has ended."""
        info = summary(
            claims=[("w", held)], leases={"w": lease_end_ms}, about={"w": says}, now_ms=10_000
        )
        assert [worker.state for worker in info.workers] == [state]

    def test_worker_tells_about_itself(self) -> None:
        """Host, process and version come from the worker's own hash; its lease from the set."""
        about = {"host": "h", "pid": "7", "version": "1.2", "state": "idle", "batch": "9"}
        info = summary(leases={"w": 12_500.0}, about={"w": about}, now_ms=10_000)
        assert info.workers == [WorkerInfo("w", "idle", 0, 2.5, "h", 7, "1.2")]

    def test_worker_whose_hash_is_gone(self) -> None:
        """A worker of which only the lease is left is listed with what is known."""
        info = summary(leases={"w": 5_000.0}, now_ms=1_000)
        assert info.workers == [WorkerInfo("w", "idle", 0, 4.0, None, None, None)]

    def test_latencies_are_in_milliseconds(self) -> None:
        """Each histogram gives its own quantiles, converted from seconds."""
        counters = {"queue_le_0.005": 10, "compute_le_0.5": 10, "total_le_inf": 10}
        info = summary(counters=counters)
        assert info.queue_ms.p50 == pytest.approx(3.75)
        assert info.compute_ms.p50 == pytest.approx(375.0)
        assert info.total_ms.p50 == pytest.approx(60_000.0)

    def test_batch_sizes_by_bucket(self) -> None:
        """Every bucket is there, named by its upper edge, the open one by inf."""
        sizes = summary(counters={"batch_size_le_4": 2, "batch_size_le_inf": 1}).batch_size
        assert list(sizes) == [*map(str, BATCH_EDGES), "inf"]
        assert {name: count for name, count in sizes.items() if count} == {"4": 2, "inf": 1}

    def test_ranges_name_the_buckets(self) -> None:
        """The ranges shown to people are those of the buckets, in order."""
        names = [name for name, _ in batch_size_ranges()]
        assert [f"batch_size_le_{name}" for name in names] == list(bucket_fields("batch_size"))
        assert dict(batch_size_ranges())["1"] == "1"
        assert dict(batch_size_ranges())["8"] == "5-8"
        assert dict(batch_size_ranges())["inf"] == "257+"

    @pytest.mark.parametrize(
        ("size", "name"), [(1, "1"), (2, "2"), (3, "4"), (64, "64"), (256, "256"), (257, "inf")]
    )
    def test_bucket_of_a_size(self, size: int, name: str) -> None:
        """A size on an edge belongs to the bucket that the edge closes."""
        assert batch_size_bucket(size) == name


class TestForPrograms:
    def test_members(self) -> None:
        """The object has exactly the published members, and JSON can hold it."""
        info = summary(leases={"w": 2_000}, now_ms=1_000)
        assert list(members(info, Show.BOTH)) == [
            "model", "depth", "in_flight", "workers", "requests", "batches", "rows", "batch_size",
            "queue_ms", "compute_ms", "total_ms",
        ]  # fmt: skip
        json.dumps(members(info, Show.BOTH), allow_nan=False)

    def test_halves(self) -> None:
        """Only what was asked for is there."""
        info = summary()
        assert list(members(info, Show.WORKERS)) == ["model", "workers"]
        assert "workers" not in members(info, Show.QUEUES)


class TestForPeople:
    def test_a_busy_queue(self) -> None:
        """Depth, outcomes, batches, latencies and workers can be read off."""
        text = drawn(
            summary(
                lengths={**EMPTY, "normal": 1_200, "dead": 2},
                claims=[("w1", 64)],
                leases={"w1": 12_000},
                about={"w1": {"host": "h", "pid": "7", "version": "1.2"}},
                counters={
                    "requests_succeeded": 1_000,
                    "requests_expired": 5,
                    "batches": 20,
                    "rows": 1_000,
                    "batch_size_le_64": 20,
                    "total_le_0.005": 10,
                },
            )
        )
        assert "1,200 waiting, 64 in flight" in text
        assert "normal 1,200" in text
        assert "dead 2" in text
        assert "1,000 succeeded, 5 expired" in text
        assert "20, 50.0 rows each" in text
        assert "total 3.75 / 4.88 / 4.97" in text
        assert "queue - / - / -" in text
        assert "busy 64" in text
        assert "pid 7 on h" in text

    def test_one_half(self) -> None:
        """Either half can be had alone."""
        info = summary(leases={"worker-id": 12_000})
        assert "worker-id" not in drawn(info, Show.QUEUES)
        assert "in flight\n" not in drawn(info, Show.WORKERS).partition("1 model")[0]

    def test_long_lines_stay_whole(self) -> None:
        """A long worker id is not cut or wrapped, whatever the width of the output."""
        worker = "h" * 64
        about = {worker: {"host": "x" * 64, "pid": "1", "version": "1"}}
        info = summary(leases={worker: 12_000}, about=about)
        assert any(
            worker in line and "x" * 64 in line for line in drawn(info, Show.WORKERS).splitlines()
        )

    def test_batch_sizes_from_the_smallest_to_the_largest(self) -> None:
        """Empty buckets are drawn only between others."""
        lines = batch_sizes({"2": 1, "8": 30})
        assert [line.split()[0] for line in lines] == ["2", "3-4", "5-8"]
        assert [line.split()[-1] for line in lines] == ["1", "0", "30"]

    def test_the_longest_bar_is_the_largest_count(self) -> None:
        """Bars compare: the largest is full, and anything above zero is visible."""
        small, large = batch_sizes({"1": 1, "2": 1_000})
        assert 1 == len(small.split()[1]) < len(large.split()[1])
