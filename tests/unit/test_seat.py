"""A worker's place among the workers of a model."""

import os
import re

from inferq.contract.keys import BOX_PATTERN, Keys
from inferq_worker.seat import Seat

KEYS = Keys("inferq", "m")


def test_no_two_seats_have_one_id() -> None:
    """Each seat has an id of its own, also those that one process takes one after the other."""
    ids = {Seat.take(KEYS).worker for _ in range(1_000)}
    assert len(ids) == 1_000


def test_id_can_be_part_of_a_key() -> None:
    """The id names the process and fits into a key, whatever the host is called."""
    worker = Seat.take(KEYS).worker
    assert re.match(BOX_PATTERN, worker)
    assert f"-{os.getpid()}-" in worker


def test_numbers_begin_at_one() -> None:
    """A new seat opens claim 1, and no claim of it can be open before."""
    seat = Seat.take(KEYS)
    assert (seat.number, seat.floor) == (1, 1)
    assert seat.claimed == KEYS.claimed(seat.worker, 1)
    assert seat.open_lists() == [KEYS.claimed(seat.worker, 1)]


def test_open_lists_reach_from_the_floor_to_the_number() -> None:
    """Whatever is not acknowledged may still be open, and belongs to what a leaver hands back."""
    seat = Seat(KEYS, "w", number=5, floor=4)
    assert seat.open_lists() == [KEYS.claimed("w", 4), KEYS.claimed("w", 5)]
