"""A request reads as it was written, in both forms, and a reader that remembers reads the same."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inferq.contract import frames
from inferq.contract.errors import InvalidRequest, TooLarge
from inferq.contract.requests import (
    Address,
    Parameters,
    Refusal,
    Request,
    RequestReader,
    RequestWriter,
    Wanted,
    check_parameters,
)
from inferq.contract.tensors import pack
from support.wire import (
    JSON_DATATYPES,
    Named,
    binary_tensor,
    broken,
    frame,
    frame_of,
    json_tensor,
    names,
    request,
    request_ids,
    request_of,
    rows_of_tensors,
    scalars,
)

LIMIT = 1024**2
own_parameters = st.dictionaries(
    st.text(max_size=8).filter(lambda name: name not in Parameters.model_fields),
    scalars,
    max_size=3,
)


def read(message: bytes) -> Request:
    found = RequestReader(LIMIT).read(message)
    assert isinstance(found, Request), found
    return found


def refused(message: bytes, limit: int = LIMIT) -> Refusal:
    found = RequestReader(limit).read(message)
    assert isinstance(found, Refusal), found
    return found


def meaning(found: Request | Refusal) -> tuple[Any, ...]:
    """Return everything about a reading that may be compared: layouts are equal by identity."""
    if isinstance(found, Refusal):
        return found.address, type(found.error), str(found.error)
    return found._replace(layout=None, body=None), found.layout.heads, bytes(found.body)  # type: ignore[arg-type]


def same_tensors(found: Request, drawn: list[Named]) -> bool:
    heads = [(name, datatype, array.shape) for name, datatype, array in drawn]
    raw = b"".join(pack(array, datatype) for _, datatype, array in drawn)
    return [head[:3] for head in found.layout.heads] == heads and bytes(found.body) == raw


@given(
    request_id=request_ids,
    drawn=rows_of_tensors(),
    own=own_parameters,
    outputs=st.none() | st.lists(names, max_size=3),
)
def test_what_is_written_is_read(
    request_id: str, drawn: list[Named], own: dict[str, Any], outputs: list[str] | None
) -> None:
    """Writer and reader agree about every datatype, shape, parameter and output, twice in a row."""
    message = RequestWriter().write(request_id, drawn, own, outputs)
    reader = RequestReader(LIMIT)
    for _ in range(2):
        found = reader.read(message)
        assert isinstance(found, Request)
        assert found.id == request_id
        assert found.binary
        assert found.rows == len(drawn[0][2])
        assert same_tensors(found, drawn)
        assert found.outputs == (
            None if outputs is None else tuple(Wanted(name, None) for name in outputs)
        )
        received = {**found.parameters.model_dump(exclude_unset=True)}
        assert received == own


@given(request_id=request_ids, drawn=rows_of_tensors(JSON_DATATYPES, finite=True))
def test_json_form(request_id: str, drawn: list[Named]) -> None:
    """The JSON form of a request holds the same tensors as its binary form."""
    members = {"id": request_id, "inputs": [json_tensor(*tensor) for tensor in drawn]}
    found = read(json.dumps(members).encode())
    assert (found.id, found.binary) == (request_id, False)
    assert same_tensors(found, drawn)


def test_frames_align_their_tensors() -> None:
    """The first tensor of a frame begins on an 8-byte boundary, whatever the head's length."""
    writer = RequestWriter()
    for size in range(1, 17):
        message = writer.write("r" * size, [("x", "FP64", np.zeros((1, 2)))], {})
        assert (len(message) - 16) % 8 == 0


def test_the_id_is_the_first_member_that_differs() -> None:
    """Writers put what requests have in common in front: that is what a reader remembers."""
    writer = RequestWriter()
    tensor = ("x", "FP32", np.zeros((1, 2), np.float32))
    heads = [
        frames.split(writer.write(request_id, [tensor], {"n": number}, ["y"]))[0]
        for number, request_id in enumerate(["one", "two"])
    ]
    fronts = {head.partition(b'"id":"')[0] for head in heads}
    (front,) = fronts
    assert json.loads(front + b'"id":""}') == {
        "inputs": [binary_tensor("x", "FP32", [1, 2], 8)],
        "outputs": [{"name": "y"}],
        "id": "",
    }


FORMS: list[tuple[bytes, bool]] = [
    (request(), False),
    (request(parameters={"binary_data_output": True}), True),
    (request(parameters={"binary_data_output": False}), False),
    (frame_of(), True),
    (frame({"inputs": [binary_tensor("x", "INT8", [1], 1)], "id": "r",
            "parameters": {"binary_data_output": False}}, b"1"), False),
]  # fmt: skip


@pytest.mark.parametrize(("message", "binary"), FORMS)
def test_form_of_the_reply(message: bytes, *, binary: bool) -> None:
    """A reply takes the request's form unless binary_data_output says otherwise."""
    reader = RequestReader(LIMIT)
    for _ in range(2):
        found = reader.read(message)
        assert isinstance(found, Request)
        assert found.binary is binary


def test_parameters_of_the_contract_and_of_the_model() -> None:
    """The contract's parameters are typed; the rest goes to the model, but for reserved names."""
    found = read(
        request(
            parameters={
                "timeout": 5, "submitted_ms": 2**64 - 1, "priority": 0, "reply_to": "box",
                "reply_ttl": 60, "traceparent": "00-1-2-03", "inferq_x": 1, "beam": 4, "hot": True,
            }
        )
    )  # fmt: skip
    assert found.parameters.timeout == 5
    assert found.parameters.submitted_ms == 2**64 - 1
    assert found.parameters.for_model() == {"beam": 4, "hot": True}
    assert found.address == Address("r1", "box", 60)


def test_outputs_with_their_form() -> None:
    """Requested outputs keep their order and say each how it wants to travel."""
    outputs = [
        {"name": "b", "parameters": {"binary_data": True}},
        {"name": "a"},
        {"name": "c", "parameters": {"binary_data": False, "classification": 3}},
    ]
    assert read(request(outputs=outputs)).outputs == (
        Wanted("b", True),  # noqa: FBT003 - a wire record
        Wanted("a", None),
        Wanted("c", False),  # noqa: FBT003
    )


def test_members_nobody_knows_are_ignored() -> None:
    """A newer sender may add members anywhere but among parameters, which are the model's."""
    assert read(request(model_version="7", zzz=[{}])).id == "r1"
    assert read(request_of(zzz={"a": [1]})).rows == 1


def test_no_rows() -> None:
    """A leading 0 is a legal shape, in both forms."""
    assert read(request_of(shape=[0, 2], data=[])).rows == 0
    assert read(frame_of(b"", shape=[0, 2], parameters={"binary_data_size": 0})).rows == 0


def test_the_byte_limit_is_exact() -> None:
    """A message of exactly the limit is read, one byte more is refused as too large."""
    message = frame_of()
    assert isinstance(RequestReader(len(message)).read(message), Request)
    refusal = refused(message, len(message) - 1)
    assert isinstance(refusal.error, TooLarge)
    assert str(refusal.error) == (
        f"message of {len(message)} bytes is over the limit of {len(message) - 1}"
    )


SEEDS = [
    request(parameters={"reply_to": "box", "reply_ttl": 60, "beam": 1}),
    request_of(datatype="BYTES", shape=[2], data=["a", "é"]),
    frame_of(),
    frame_of(datatype="BYTES", shape=[1, 1], parameters={"binary_data_size": 8}),
    RequestWriter().write("r2", [("x", "BOOL", np.zeros((1, 3), "?"))], {"timeout": 5}, ["y"]),
    frame({"inputs": [{"name": "a", "datatype": "UINT8", "shape": [1], "data": [1]},
                      binary_tensor("b", "UINT8", [1], 1)], "id": "r1"}, b"1"),
]  # fmt: skip


@st.composite
def messages(draw: st.DrawFn) -> bytes:
    """Draw a good message, a broken one, or junk; of frames also only the head is broken."""
    seed = draw(st.sampled_from(SEEDS))
    if draw(st.booleans()) and seed.startswith(frames.MAGIC):
        head, body = frames.split(seed)
        other = st.sampled_from([b"\2" * len(body), bytes(body) + b"\0", bytes(body)[1:]])
        return frames.join(draw(broken(head) | st.just(head)), [draw(st.just(body) | other)])
    return draw(st.just(seed) | broken(seed) | st.binary(max_size=30))


@settings(max_examples=400)
@given(stream=st.lists(messages(), min_size=1, max_size=6))
def test_any_bytes_get_a_verdict(stream: list[bytes]) -> None:
    """Reading never raises, and what a reader remembers never changes what it reads."""
    reader = RequestReader(LIMIT)
    for message in [*stream, *stream]:
        found = reader.read(message)
        assert meaning(found) == meaning(RequestReader(LIMIT).read(message))
        if isinstance(found, Refusal):
            assert isinstance(found.error, InvalidRequest)
        else:
            # Whoever holds a request may rely on its tensors.
            assert found.layout.arrays(found.body).keys() == {h.name for h in found.layout.heads}


@given(message=messages(), limit=st.integers(1, 60))
def test_any_oversized_bytes_get_a_verdict(message: bytes, limit: int) -> None:
    """An oversized message is refused as such, and an address in it is one it really holds."""
    found = RequestReader(limit).read(message)
    if len(message) > limit:
        assert isinstance(found, Refusal)
        assert isinstance(found.error, TooLarge)
        if found.address is not None:
            assert f'"{found.address.id}"'.encode() in message


def test_json_data_in_a_frame_is_not_remembered() -> None:
    """Bytes behind a frame whose tensor came as JSON are too many, also the second time."""
    head = {"inputs": [{"name": "a", "datatype": "UINT8", "shape": [1], "data": [7]},
                       binary_tensor("b", "UINT8", [1], 1)], "id": "r1"}  # fmt: skip
    reader = RequestReader(LIMIT)
    assert isinstance(reader.read(frame(head, b"1")), Request)
    found = reader.read(frame(head, b"12"))
    assert isinstance(found, Refusal)
    assert "1 bytes are left" in str(found.error)


@pytest.mark.parametrize(
    ("datatype", "good", "bad"),
    [("BOOL", b"\0\1\1\0\0", b"\0\1\2\0\0"), ("BYTES", b"\1\0\0\0a", b"\2\0\0\0a")],
)
def test_bytes_are_checked_each_time(datatype: str, good: bytes, bad: bytes) -> None:
    """A head that is remembered vouches for no data: BOOL and BYTES are looked at again."""
    shape = [5] if datatype == "BOOL" else [1]
    sizes = {"datatype": datatype, "shape": shape, "parameters": {"binary_data_size": 5}}
    reader = RequestReader(LIMIT)
    assert isinstance(reader.read(frame_of(good, **sizes)), Request)
    assert isinstance(reader.read(frame_of(bad, **sizes)), Refusal)


@pytest.mark.parametrize(
    ("own", "words"),
    [
        ({"timeout": 1}, "parameter 'timeout' is reserved"),
        ({"reply_to": "x"}, "parameter 'reply_to' is reserved"),
        ({"inferq_x": 1}, "parameter 'inferq_x' is reserved"),
        ({"x": None}, "parameter 'x' must be a string, number or boolean, got NoneType"),
        ({"x": [1]}, "got list"),
        ({"x": float("nan")}, "parameter 'x' must be finite"),
        ({"x": float("inf")}, "parameter 'x' must be finite"),
        ({"x": 2**64}, "parameter 'x' must fit into 64 bits"),
        ({"x": "\ud800"}, "parameter 'x' must be valid Unicode"),
        ({"\ud800": 1}, "must have a Unicode string as its name"),
        ({1: 1}, "parameter 1 must have a Unicode string as its name"),
    ],
)
def test_parameters_that_cannot_travel(own: Any, words: str) -> None:
    """A sender's own parameters are refused before they are sent, with the name."""
    with pytest.raises(InvalidRequest, match=words):
        check_parameters(own)


@given(own=own_parameters)
def test_parameters_that_can_travel(own: dict[str, Any]) -> None:
    """Parameters that pass the check arrive as they were, type for type."""
    kept = {name: value for name, value in own.items() if not name.startswith("inferq_")}
    tensor = ("x", "UINT8", np.zeros((1,), np.uint8))
    received = read(RequestWriter().write("r1", [tensor], check_parameters(kept))).parameters
    arrived = received.for_model()
    assert arrived == kept
    assert {name: type(value) for name, value in arrived.items()} == {
        name: type(value) for name, value in kept.items()
    }
