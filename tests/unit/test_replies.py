"""A reply reads as it was written, in both forms, and no bytes are taken for a reply."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inferq.contract import frames
from inferq.contract.errors import (
    AnswerError,
    Cancelled,
    InferqError,
    InvalidRequest,
    ModelError,
    QueueFull,
)
from inferq.contract.layouts import Layout, LayoutMemo, TensorHead
from inferq.contract.replies import Reply, ReplyReader, ReplyWriter, output_form
from inferq.contract.requests import Wanted
from inferq.contract.tensors import pack, to_json_data
from support.wire import (
    Array,
    Named,
    binary_tensor,
    broken,
    compact,
    frame,
    names,
    request_ids,
    rows_of_tensors,
)

WRITER = ReplyWriter("digits", "3")


def laid_out(drawn: list[Named]) -> tuple[Layout, list[bytes]]:
    body = [bytes(pack(array, datatype)) for _, datatype, array in drawn]
    heads = [
        TensorHead(name, datatype, array.shape, len(raw))
        for (name, datatype, array), raw in zip(drawn, body, strict=True)
    ]
    return LayoutMemo().layout(heads), body


def one(datatype: str, array: Array) -> tuple[Layout, list[bytes]]:
    return laid_out([("y", datatype, array)])


def success(message: bytes) -> Reply:
    found = ReplyReader().read(message)
    assert isinstance(found, Reply), found
    return found


def has_json_form(datatype: str, array: Array) -> bool:
    try:
        to_json_data(array, datatype)
    except InvalidRequest:
        return False
    return True


@given(request_id=request_ids, drawn=rows_of_tensors(), data=st.data())
def test_what_is_written_is_read(request_id: str, drawn: list[Named], data: st.DataObject) -> None:
    """Writer and reader agree about every output, in any mixture of forms, twice in a row."""
    layout, body = laid_out(drawn)
    form = [
        not has_json_form(datatype, array) or data.draw(st.booleans())
        for _, datatype, array in drawn
    ]
    message = WRITER.success(request_id, layout, body, form, b'{"attempt":1}')
    assert message.startswith(frames.MAGIC) is any(form)
    reader = ReplyReader()
    for _ in range(2):
        found = reader.read(message)
        assert isinstance(found, Reply)
        assert (found.id, found.model_name, found.model_version) == (request_id, "digits", "3")
        assert found.parameters == {"attempt": 1}
        assert found.datatypes == {name: datatype for name, datatype, _ in drawn}
        assert list(found) == [name for name, _, _ in drawn]
        for name, datatype, array in drawn:
            assert found[name].shape == array.shape
            assert pack(found[name], datatype) == pack(array, datatype)


@given(drawn=rows_of_tensors(), binary=st.booleans())
def test_json_form_of_a_reply(drawn: list[Named], *, binary: bool) -> None:
    """A reply turns into the same JSON object whichever form it came in, or says why it cannot."""
    layout, body = laid_out(drawn)
    if not all(has_json_form(datatype, array) for _, datatype, array in drawn):
        message = WRITER.success("r1", layout, body, [True] * len(drawn), b"{}")
        with pytest.raises(InvalidRequest, match="binary_data_output"):
            success(message).to_oip()
        with pytest.raises(InvalidRequest, match="binary_data_output"):
            WRITER.success("r1", layout, body, [False] * len(drawn), b"{}")
        return
    as_json = WRITER.success("r1", layout, body, [False] * len(drawn), b"{}")
    message = WRITER.success("r1", layout, body, [True] * len(drawn), b"{}") if binary else as_json
    assert json.loads(json.dumps(success(message).to_oip())) == json.loads(as_json)


def test_outputs_are_views_of_one_message() -> None:
    """The arrays of a reply are read-only views; without a batch dimension they have none."""
    found = success(WRITER.success("r1", *one("FP32", np.ones((1, 2), "f4")), [True], b"{}"))
    assert found["y"].shape == (1, 2)
    assert not found["y"].flags.writeable
    assert found.as_single()["y"].shape == (2,)
    assert repr(found) == "<Reply r1 of digits: y: FP32[2]>"
    assert (len(found), "y" in found, "z" in found) == (1, True, False)
    with pytest.raises(KeyError):
        found["z"]


def test_a_model_without_versions() -> None:
    """A model without versions leaves the member out."""
    message = ReplyWriter("m", None).success("r1", *one("INT8", np.ones(1, "i1")), [False], b"{}")
    assert "model_version" not in json.loads(message)
    assert success(message).model_version is None


def test_the_own_part_is_behind_the_common_part() -> None:
    """Replies of one layout differ behind the id only, so that readers can remember the front."""
    layout, body = one("INT64", np.zeros((1,), "<i8"))
    heads = [
        frames.split(WRITER.success(request_id, layout, body, [True], parameters))[0]
        for request_id, parameters in (("a", b"{}"), ("b", b'{"attempt":2}'))
    ]
    assert len({head.partition(b'"id":"')[0] for head in heads}) == 1


ERRORS: list[tuple[InferqError, dict[str, Any], dict[str, Any]]] = [
    (ModelError("it broke", row=3), {}, {"code": "model_error"}),
    (Cancelled("withdrawn"), {}, {"code": "cancelled"}),
    (ModelError("slow"), {"attempt": 2}, {"code": "model_error", "attempt": 2}),
    (AnswerError("of no known kind"), {}, {"code": None}),
]


@pytest.mark.parametrize(("error", "why", "parameters"), ERRORS)
def test_error_replies(error: InferqError, why: dict[str, Any], parameters: dict[str, Any]) -> None:
    """An error reply is a JSON object with the sentence and the code, and reads as its class."""
    message = WRITER.error("r1", error, why)
    assert json.loads(message) == {
        "id": "r1",
        "model_name": "digits",
        "model_version": "3",
        "error": str(error),
        "parameters": parameters,
    }
    found = ReplyReader().read(message)
    assert type(found) is type(error)
    assert str(found) == str(error)


@given(sentence=st.text(alphabet=st.characters(exclude_categories=())))
def test_any_sentence_can_be_sent(sentence: str) -> None:
    """Whatever a model raised, its error becomes a reply: one line that UTF-8 can hold."""
    text = json.loads(WRITER.error("r1", ModelError(sentence)))["error"]
    assert text.isprintable()
    if sentence.isprintable() and len(sentence) <= 500:
        assert text == sentence


@pytest.mark.parametrize(
    ("parameters", "after_ms"),
    [
        ({"retry_after_ms": 250}, 250),
        ({"retry_after_ms": 0}, 0),
        ({}, 1_000),
        ({"retry_after_ms": "soon"}, 1_000),
        ({"retry_after_ms": []}, 1_000),
        ({"retry_after_ms": -5}, 1_000),
        ({"retry_after_ms": 1e999}, 1_000),
    ],
)
def test_a_hint_that_is_none(parameters: dict[str, Any], after_ms: int) -> None:
    """A broken hint does not hide the error it came with."""
    message = {"error": "full", "parameters": {"code": "queue_full", **parameters}}
    found = ReplyReader().read(json.dumps(message).encode())
    assert isinstance(found, QueueFull)
    assert found.retry_after_ms == after_ms


@pytest.mark.parametrize("code", ["new_code", None, 5, ["queue_full"], {}])
def test_a_code_of_the_future(code: object) -> None:
    """A code this version does not know is still an error of the answer."""
    found = ReplyReader().read(compact({"error": "x", "parameters": {"code": code}}))
    assert type(found) is AnswerError


OUTPUT = binary_tensor("y", "FP32", [1], 4)
NO_REPLIES: list[tuple[bytes, str]] = [
    (b"", "not a reply: not JSON"),
    (b"5", "not a reply: message: input should be an object"),
    (b"OIP1", "the frame ends before its length"),
    (b"OIP1\xff\xff\xff\xff{}", "promises a head of"),
    (b"{}", "not a reply: neither outputs nor an error"),
    (compact({"error": 5}), "not a reply: error: input should be a valid string"),
    (compact({"error": "x", "parameters": None}), "not a reply: parameters: .* object"),
    (compact({"outputs": []}), "not a reply: outputs: list should have at least 1 item"),
    (compact({"id": 5, "outputs": []}), "not a reply: id: input should be a valid string"),
    (frame({"outputs": [{**OUTPUT, "shape": []}]}, b"1234"), r"outputs\[0\].shape: .* at least 1"),
    (frame({"outputs": [{**OUTPUT, "shape": [-1]}]}, b"1234"), r"outputs\[0\].shape\[0\]"),
    (frame({"outputs": [{**OUTPUT, "shape": [2]}]}, b"1234"), "tensor 'y': .* needs 8 bytes, got 4"),
    (frame({"outputs": [{**OUTPUT, "datatype": "X"}]}, b"1234"), r"outputs\[0\].datatype"),
    (frame({"outputs": [OUTPUT]}, b"123"), "tensor 'y': binary_data_size is 4, and 3 bytes"),
    (frame({"outputs": [OUTPUT]}, b"12345"), "1 bytes are left after the last tensor"),
    (frame({"outputs": [OUTPUT, OUTPUT]}, b"12345678"), "tensor 'y' appears twice"),
    (frame({"outputs": [{**OUTPUT, "parameters": {"binary_data_size": -4}}]}, b"1234"),
     r"outputs\[0\].parameters.binary_data_size"),
    (compact({"outputs": [OUTPUT]}), "tensor 'y': binary_data_size is 4, and 0 bytes"),
    (compact({"outputs": [{"name": "y", "datatype": "INT8", "shape": [1]}]}),
     "tensor 'y': expected either data or binary_data_size"),
    (compact({"outputs": [{"name": "y", "datatype": "INT8", "shape": [2], "data": [1]}]}),
     r"tensor 'y': shape \[2\] needs 2 elements, got 1"),
]  # fmt: skip


@pytest.mark.parametrize(("message", "words"), NO_REPLIES)
def test_what_is_no_reply(message: bytes, words: str) -> None:
    """A value that is no reply is refused in words, and never half believed."""
    with pytest.raises(InvalidRequest, match=words):
        ReplyReader().read(message)


def outcome(reader: ReplyReader, message: bytes) -> tuple[Any, ...]:
    """Return everything about a reading that may be compared."""
    try:
        found = reader.read(message)
    except InvalidRequest as error:
        return "refused", str(error)
    if isinstance(found, InferqError):
        return type(found), str(found)
    raw = [bytes(pack(array, found.datatypes[name])) for name, array in found.items()]
    members = (found.id, found.model_name, found.model_version, repr(found.parameters))
    return members, found.datatypes, [array.shape for array in found.values()], raw


ONE = np.ones(1, "i1")
SEEDS = [
    WRITER.success("r1", *one("FP32", np.ones((1, 2), "f4")), [True], b'{"attempt":1}'),
    WRITER.success("r2", *one("BYTES", np.array([b"ab"], object)), [True], b"{}"),
    WRITER.success("r3", *one("BOOL", np.ones(3, "?")), [True], b"{}"),
    WRITER.success("r4", *one("INT8", ONE), [False], b"{}"),
    WRITER.error("r5", QueueFull("full"), {"retry_after_ms": 5}),
    WRITER.success("r6", *laid_out([("a", "INT8", ONE), ("b", "INT8", ONE)]), [False, True], b"{}"),
]


@st.composite
def messages(draw: st.DrawFn) -> bytes:
    """Draw a good reply, a broken one, or junk; of frames also only the head is broken."""
    seed = draw(st.sampled_from(SEEDS))
    if draw(st.booleans()) and seed.startswith(frames.MAGIC):
        head, body = frames.split(seed)
        other = st.sampled_from([b"\2" * len(body), bytes(body) + b"\0", bytes(body)[1:]])
        return frames.join(draw(broken(head) | st.just(head)), [draw(st.just(body) | other)])
    return draw(st.just(seed) | broken(seed) | st.binary(max_size=30))


@settings(max_examples=400)
@given(stream=st.lists(messages(), min_size=1, max_size=6))
def test_any_bytes_get_a_verdict(stream: list[bytes]) -> None:
    """Of any bytes a reader makes a reply, an error, or a refusal, whatever it remembers."""
    reader = ReplyReader()
    for message in [*stream, *stream]:
        assert outcome(reader, message) == outcome(ReplyReader(), message)


def test_json_data_in_a_frame_is_not_remembered() -> None:
    """A byte too many behind a mixed frame is refused, although layout and body are as long."""
    message = SEEDS[-1]
    reader = ReplyReader()
    assert isinstance(reader.read(message), Reply)
    with pytest.raises(InvalidRequest, match="1 bytes are left"):
        reader.read(message + b"\0")


FRONT = compact({"outputs": [OUTPUT]})[:-1] + b","
RESTS = [
    b"}",
    b'"id":"a"',
    b'"id":"a","id":5}',
    b'"id":"a","id":null}',
    b'"id":"a","parameters":5}',
    b'"id":"a","parameters":null}',
    b'"id":"a","parameters":{},"parameters":{"n":1}}',
    b'"id":"a","error":"x"}',
    b'"id":"a","outputs":[]}',
    b'"id":"a","model_name":"other"}',
    b'"id":"a',
    b'"id":"a"}x',
]


@pytest.mark.parametrize("rest", RESTS)
def test_a_remembered_front_vouches_for_no_rest(rest: bytes) -> None:
    """A reply whose front is known is read as if it were the first, whatever follows."""
    reader = ReplyReader()
    reader.read(frame(FRONT + b'"id":"first"}', b"1234"))
    message = frame(FRONT + rest, b"5678")
    assert outcome(reader, message) == outcome(ReplyReader(), message)


@given(wanted=st.lists(st.tuples(names, st.none() | st.booleans())), binary=st.booleans())
def test_form_of_each_output(wanted: list[tuple[str, bool | None]], *, binary: bool) -> None:
    """An output that says how it travels does so; the others follow the request."""
    form = output_form([Wanted(*each) for each in wanted], binary=binary)
    assert form == tuple(binary if own is None else own for _, own in wanted)
