"""Names that nobody has used before."""

import re
import time
import uuid

from inferq.contract.keys import check_box, check_id
from inferq.ids import new_box, new_request_id


def test_request_ids_are_uuids_of_version_7() -> None:
    """A request id is a UUID of version 7 in its usual spelling, with the time in front."""
    before_ms = time.time_ns() // 1_000_000
    text = new_request_id()
    after_ms = time.time_ns() // 1_000_000
    parsed = uuid.UUID(text)
    assert str(parsed) == text
    assert parsed.version == 7
    assert parsed.variant == uuid.RFC_4122
    assert before_ms <= parsed.int >> 80 <= after_ms


def test_request_ids_differ_and_sort_by_time() -> None:
    """No two ids are the same, and those of a later millisecond sort behind."""
    made = [new_request_id() for _ in range(10_000)]
    assert len(set(made)) == len(made)
    stamps = [text[:13] for text in made]
    assert stamps == sorted(stamps)


def test_names_are_allowed() -> None:
    """Ids and boxes keep the rules of the contract for names that become part of a key."""
    assert check_id(new_request_id())
    assert check_box(new_box())


def test_boxes_cannot_be_guessed() -> None:
    """A box has 96 random bits: nobody else's hints end up in it."""
    boxes = {new_box() for _ in range(1_000)}
    assert len(boxes) == 1_000
    assert all(re.fullmatch("[0-9a-f]{24}", box) for box in boxes)
