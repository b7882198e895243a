"""A frame is cut where it was joined, and a remembered head means what its full text means."""

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic_core import from_json

from inferq.contract import frames
from inferq.contract.errors import InvalidRequest
from inferq.contract.frames import HeadMemo
from support.wire import broken, json_texts, json_values


@given(head=st.binary(max_size=40), body=st.lists(st.binary(max_size=20), max_size=3))
def test_round_trip(head: bytes, body: list[bytes]) -> None:
    """Head and body come back as they went in, the body on an 8-byte boundary."""
    message = frames.join(head, body)
    again, rest = frames.split(message)
    assert again.rstrip(b" ") == head.rstrip(b" ")
    assert bytes(rest) == b"".join(body)
    assert (len(message) - len(rest)) % 8 == 0


@pytest.mark.parametrize("padding", [b"", b" ", b" " * 9, b"\n\t "])
def test_any_padding(padding: bytes) -> None:
    """A reader takes a head with any padding, also none."""
    head = b"{}" + padding
    again, body = frames.split(b"OIP1" + len(head).to_bytes(4, "little") + head + b"x")
    assert (again, bytes(body)) == (head, b"x")


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (b"OIP1", "ends before its length"),
        (b"OIP1\1\0\0", "ends before its length"),
        (b"OIP1\1\0\0\0", "promises a head of 1 bytes, and 0 follow"),
        (b"OIP1\3\0\0\0{}", "promises a head of 3 bytes, and 2 follow"),
        (b"OIP1\xff\xff\xff\xff{}", "promises a head of 4294967295 bytes, and 2 follow"),
        (b"OIP1\0\0\0\1{}", "promises a head of 16777216 bytes, and 2 follow"),
    ],
)
def test_lengths_that_lie(message: bytes, words: str) -> None:
    """A frame that ends before its head does is refused, and the sentence has both numbers."""
    with pytest.raises(InvalidRequest, match=words):
        frames.split(message)


@given(head=st.binary(max_size=20), length=st.integers(0, 2**32 - 1), limit=st.integers(0, 30))
def test_peeking(head: bytes, length: int, limit: int) -> None:
    """The beginning of a head can be read whatever the frame promises, and nothing behind it."""
    message = b"OIP1" + length.to_bytes(4, "little") + head
    assert frames.peek(message, limit) == head[: min(length, limit)]


@given(short=st.binary(max_size=3))
def test_peeking_into_a_stump(short: bytes) -> None:
    """A frame without a length has no head."""
    assert frames.peek(b"OIP1" + short, 99) == b""


def spelled(draw: st.DrawFn, value: Any) -> str:
    """Write a value as JSON with blanks anywhere, and letters as escapes here and there."""
    blank: str = draw(st.sampled_from(["", "", "", " ", "\n"]))
    if isinstance(value, dict):
        return "{" + members(draw, list(value.items())) + blank + "}"
    if isinstance(value, list):
        return "[" + ",".join(spelled(draw, item) for item in value) + blank + "]"
    if isinstance(value, str):
        escapes = {'"': '\\"', "\\": "\\\\", **draw(st.sampled_from([{}, {"i": "\\u0069"}]))}
        return blank + '"' + "".join(escapes.get(char, char) for char in value) + '"'
    return blank + ("null" if value is None else str(value).lower())


def members(draw: st.DrawFn, pairs: list[tuple[str, Any]]) -> str:
    return ",".join(f"{spelled(draw, name)}:{spelled(draw, value)}" for name, value in pairs)


@st.composite
def heads(draw: st.DrawFn) -> bytes:
    """Draw the text of an object with the members of a head and others, doubled, in any order."""
    name = st.sampled_from(["inputs", "outputs", "id", "parameters"]) | json_texts
    pairs = st.lists(st.tuples(name, json_values), max_size=2)
    front, tail = draw(pairs), draw(pairs)
    # In most of them the place where a memo cuts.
    cut = draw(st.sampled_from(['"id":"a"', '"id":"a"', '"id":"a","parameters":{}', '"x":0']))
    parts = [members(draw, front), cut, members(draw, tail)]
    return ("{" + ",".join(part for part in parts if part) + "}").encode()


def parsed(text: bytes) -> Any:
    try:
        return from_json(text)
    except ValueError:
        return None


def through_memo(memo: HeadMemo[dict[str, Any]], text: bytes) -> dict[str, Any] | None:
    """Read a head as a reader does on a hit; ``None`` if it has to parse the whole."""
    found = memo.find(text)
    if found is None:
        return None
    meaning, rest = found
    own = parsed(rest)
    if own is None or "id" not in own or own.keys() - {"id", "parameters"}:
        return None
    return {**meaning, **own}


@given(data=st.data(), first=heads())
def test_a_hit_means_what_the_text_means(data: st.DataObject, first: bytes) -> None:
    """Whatever strings, escapes and doubled members heads hold, a hit is exactly a full parse."""
    whole = parsed(first)
    assume(whole is not None)
    memo: HeadMemo[dict[str, Any]] = HeadMemo()
    memo.learn(first, {name: whole[name] for name in whole.keys() - {"id", "parameters"}})
    other = data.draw(heads())
    seconds = [
        first,
        other,
        data.draw(broken(first)),
        first[: first.find(b'"id":"')] + other[other.find(b'"id":"') :],
    ]
    for second in seconds:
        answer = through_memo(memo, second)
        assert answer is None or answer == parsed(second)


CONSTANT = b'{"inputs":[1],'
REMEMBERED = [
    (b'"id":"a"}', True),
    (b'"id":"b","parameters":{"x":1}}', True),
    (b'"id":"b","id":"c"}', True),
    (b' "id":"b"}', False),
    (b'"parameters":{},"id":"b"}', False),
    (b'"id" :"b"}', False),
    (b'"\\u0069d":"b"}', False),
]


@pytest.mark.parametrize(("rest", "hit"), REMEMBERED)
def test_what_is_remembered(rest: bytes, *, hit: bool) -> None:
    """Heads that differ only behind the id share their constant part; others are parsed."""
    memo: HeadMemo[str] = HeadMemo()
    memo.learn(CONSTANT + b'"id":"first"}', "meaning")
    found = memo.find(CONSTANT + rest)
    assert found == (("meaning", b"{" + rest) if hit else None)


@pytest.mark.parametrize(
    "head",
    [
        b'{"id":"a","inputs":[1]}',
        b'{"inputs":[{"name":"x","id":"y"}],"id":"a"}',
        b'{"parameters":{},"inputs":[1],"id":"a"}',
        b'{"\\u0069d":"a","inputs":[1],"id":"b"}',
        b'{"par\\u0061meters":{},"id":"b"}',
        b'{"inputs":[1]}',
        b'{"inputs":[1],"id":"a","inputs":[2]}',
        b'{"inputs":"' + b"a" * 20_000 + b'","id":"a"}',
    ],
)
def test_what_is_not_remembered(head: bytes) -> None:
    """A head with an id or half a member in front, or more than its own behind, is never a hit."""
    memo: HeadMemo[str] = HeadMemo()
    memo.learn(head, "meaning")
    assert memo.find(head) is None


def test_memory_is_bounded() -> None:
    """A flood of different heads starts the memo over instead of growing it."""
    memo: HeadMemo[int] = HeadMemo(limit=3)
    texts = [b'{"inputs":[%d],"id":"a"}' % number for number in range(4)]
    for number, text in enumerate(texts):
        memo.learn(text, number)
    assert [memo.find(text) is not None for text in texts] == [False, False, False, True]
