"""The window of a map: its bound, its order, and how it bows to a full queue."""

from collections import deque
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferq.contract.errors import InvalidRequest
from inferq.outstanding import Slot
from inferq.window import Window


def slots(inputs: list[object]) -> list[Slot]:
    return [Slot(str(name), single=True) for name in inputs]


def ids(window: Window) -> list[str]:
    return [each.id for each in window.under_way if isinstance(each, Slot)]


def test_it_starts_full() -> None:
    """The first portion fills the window."""
    window = Window(8)
    assert window.wanted() == 8
    window.held += range(8)
    assert window.portion() == list(range(8))
    window.submitted(8, slots(window.portion()))
    assert window.held == []
    assert ids(window) == [str(number) for number in range(8)]


def test_it_is_refilled_by_halves() -> None:
    """Nothing is taken or submitted while more than half of the window is under way."""
    window = Window(8)
    window.held += range(8)
    window.submitted(8, slots(window.portion()))
    for left in (8, 7, 6, 5):
        assert len(window.under_way) == left
        assert window.wanted() == 0
        assert window.portion() == []
        window.under_way.popleft()
    assert window.wanted() == 4


def test_a_refusal_halves_the_next_portion() -> None:
    """A full queue is asked for less each time, down to one, and for more once it accepts."""
    window = Window(8)
    window.held += range(8)
    asked = []
    for _ in range(5):
        asked.append(len(window.portion()))
        window.submitted(asked[-1], [])
    assert asked == [8, 4, 2, 1, 1]
    window.submitted(1, slots(window.portion()))
    assert len(window.portion()) == 2


def test_it_is_stuck_only_with_nothing_left_to_try() -> None:
    """Waiting for others is right only when not even one fits and no reply of ours is due."""
    window = Window(4)
    window.held += range(4)
    window.submitted(4, [])
    assert not window.is_stuck
    window.submitted(1, [])
    assert window.is_stuck
    window.submitted(1, slots([0]))
    window.submitted(1, [])
    assert not window.is_stuck


@pytest.mark.parametrize("size", [0, -1, True, 2.0, None])
def test_a_size_that_is_none(size: object) -> None:
    """A window is a whole number from 1."""
    with pytest.raises(InvalidRequest, match="window must be a whole number from 1"):
        Window.check(size, {})  # type: ignore[arg-type]


def test_no_id_for_all() -> None:
    """One id for all requests of a map would make one request of them."""
    with pytest.raises(InvalidRequest, match="request_id is not allowed"):
        Window.check(1, {"request_id": "r"})


@given(
    size=st.integers(1, 20),
    total=st.integers(0, 60),
    capacity=st.lists(st.integers(0, 12), min_size=1, max_size=20),
)
def test_bound_and_order(size: int, total: int, capacity: list[int]) -> None:
    """Whatever a queue accepts, no more than the window is under way, and nothing is reordered.

    ``capacity`` says how many requests the queue takes at each try, over and over; where it never
    takes any, one is taken in the end.
    """
    window = Window(size)
    source = iter(range(total))
    room = deque(capacity)
    done: list[str] = []
    while True:
        window.held += islice(source, window.wanted())
        portion = window.portion()
        if portion:
            room.rotate(-1)
            # All or none up to what one call carries, here 3.
            accepted = portion[: min(len(portion), room[0]) // 3 * 3]
            if len(portion) <= room[0] or (window.is_stuck and not any(capacity)):
                accepted = portion
            window.submitted(len(portion), slots(accepted))
        assert len(window.under_way) + len(window.held) <= size
        if window.under_way:
            head = window.under_way.popleft()
            assert isinstance(head, Slot)
            done.append(head.id)
        elif not window.held:
            break
    assert done == [str(number) for number in range(total)]
