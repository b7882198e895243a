"""Cutting the rows of several requests into model calls."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferq_worker.batching.packing import Segment, pack_rows

ROW_COUNTS = st.lists(st.integers(0, 40), max_size=20)
MAX_ROWS = st.integers(1, 17)


def packed(counts: list[int], max_rows: int) -> list[list[Segment]]:
    return pack_rows(list(enumerate(counts)), max_rows)


@pytest.mark.parametrize(
    ("counts", "max_rows", "calls"),
    [
        ([], 4, []),
        ([0, 0], 4, []),
        ([1, 1, 1], 4, [[(0, 0, 1), (1, 0, 1), (2, 0, 1)]]),
        ([4, 4], 4, [[(0, 0, 4)], [(1, 0, 4)]]),
        ([3, 3], 4, [[(0, 0, 3), (1, 0, 1)], [(1, 1, 3)]]),
        ([9], 4, [[(0, 0, 4)], [(0, 4, 8)], [(0, 8, 9)]]),
        ([1, 0, 2], 1, [[(0, 0, 1)], [(2, 0, 1)], [(2, 1, 2)]]),
    ],
)
def test_table(counts: list[int], max_rows: int, calls: list[list[tuple[int, int, int]]]) -> None:
    """Calls are filled to the brim in order, and a request that crosses a boundary goes on."""
    assert packed(counts, max_rows) == calls


def test_places_are_those_given() -> None:
    """A segment names its request by the place it was given with, not by its turn."""
    assert pack_rows([(7, 2), (3, 1)], 2) == [[(7, 0, 2)], [(3, 0, 1)]]


@given(ROW_COUNTS, MAX_ROWS)
def test_every_row_once_and_in_order(counts: list[int], max_rows: int) -> None:
    """Read one after the other, the segments are the rows of all requests, each exactly once."""
    segments = [segment for call in packed(counts, max_rows) for segment in call]
    rows = [(seg.place, row) for seg in segments for row in range(seg.start, seg.stop)]
    assert rows == [(place, row) for place, count in enumerate(counts) for row in range(count)]


@given(ROW_COUNTS, MAX_ROWS)
def test_no_call_is_above_the_maximum_or_empty(counts: list[int], max_rows: int) -> None:
    """Every call holds one to ``max_rows`` rows, and so does each of its segments."""
    for call in packed(counts, max_rows):
        assert 1 <= sum(segment.rows for segment in call) <= max_rows
        assert all(segment.rows >= 1 for segment in call)


@given(ROW_COUNTS, MAX_ROWS)
def test_fewest_calls(counts: list[int], max_rows: int) -> None:
    """There are as few calls as the rows allow: only the last may have room left."""
    assert len(packed(counts, max_rows)) == -(-sum(counts) // max_rows)


@given(ROW_COUNTS, MAX_ROWS)
def test_a_request_runs_in_consecutive_calls(counts: list[int], max_rows: int) -> None:
    """The calls of one request follow each other, with one segment of it in each."""
    calls = packed(counts, max_rows)
    for place in range(len(counts)):
        turns = [turn for turn, call in enumerate(calls) for seg in call if seg.place == place]
        assert all(later == earlier + 1 for earlier, later in pairwise(turns))
