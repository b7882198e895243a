"""Dead entries, taken apart."""

import json

from inferq.dead import DeadEntry

REQUEST = b'{"id":"r1","inputs":[{"name":"x","datatype":"FP32","shape":[1],"data":[1]}]}'


def entry(message: bytes, **note: object) -> DeadEntry:
    return DeadEntry.parse(1, json.dumps(note).encode() + b"\n" + message)


def test_parts() -> None:
    """The line of JSON and the message are told apart, also if the message has lines itself."""
    made = entry(b"junk\nmore", reason="why", bytes=9)
    assert (made.note["reason"], made.message) == ("why", b"junk\nmore")
    assert made.is_whole


def test_id_of_the_note_or_the_message() -> None:
    """The id comes from the note, else from the message, else there is none."""
    assert entry(REQUEST, id="noted").id == "noted"
    assert entry(REQUEST).id == "r1"
    assert entry(b"junk").id is None


def test_cut() -> None:
    """A message shorter than its note says was cut."""
    assert not entry(REQUEST[:40], bytes=len(REQUEST)).is_whole


def test_unreadable_note() -> None:
    """An entry that is none of ours can still be shown and dropped."""
    made = DeadEntry.parse(3, b"what\nis this")
    assert (made.note, made.message, made.raw) == ({}, b"is this", b"what\nis this")
