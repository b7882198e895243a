"""Cutting the rows of several requests into model calls.

Calls are filled to the brim, in order, and a request whose rows cross a boundary is continued in
the next call: the fewest calls for the rows there are. The alternative, never splitting what fits
into a call of its own, leaves calls half empty when requests hold a little more than half a batch.
"""

from collections.abc import Sequence
from typing import NamedTuple


class Segment(NamedTuple):
    """Rows ``start`` to ``stop`` of one request, which is given by its place, in one call."""

    place: int
    start: int
    stop: int

    @property
    def rows(self) -> int:
        """How many rows it holds."""
        return self.stop - self.start


def pack_rows(rows: Sequence[tuple[int, int]], max_rows: int) -> list[list[Segment]]:
    """Distribute requests, given as (place, row count), over calls of at most ``max_rows`` rows.

    Every row is in exactly one segment; segments of one request are in order, in consecutive
    calls; requests of no rows are in none.
    """
    return pack_segments([Segment(place, 0, count) for place, count in rows], max_rows)


def pack_segments(segments: Sequence[Segment], max_rows: int) -> list[list[Segment]]:
    """Distribute segments in the same way, cutting those that cross the end of a call."""
    calls: list[list[Segment]] = []
    room = 0
    for place, start, end in segments:
        at = start
        while at < end:
            if room == 0:
                calls.append([])
                room = max_rows
            stop = min(end, at + room)
            calls[-1].append(Segment(place, at, stop))
            room -= stop - at
            at = stop
    return calls
