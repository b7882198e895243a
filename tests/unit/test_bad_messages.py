"""The table of bad input: what is told to whom about a message that is no request.

Each row is a message, the id that can be told (``None``: nobody can be, it is for the dead list)
and words of the sentence, which names the member or tensor and what was expected of it.
"""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferq.contract.errors import InvalidRequest, TooLarge
from inferq.contract.requests import Address, Refusal, RequestReader
from support.wire import binary_tensor, frame, frame_of, request, request_ids, request_of

LIMIT = 1024**2
DEEP = b"[" * 100_000
Row = tuple[bytes, str | None, str]


def refusal(message: bytes, limit: int = LIMIT) -> Refusal:
    found = RequestReader(limit).read(message)
    assert isinstance(found, Refusal), found
    return found


def text(members: str) -> bytes:
    return b'{"id":"r1",' + members.encode() + b"}"


NOT_JSON: list[Row] = [
    (b"", None, "neither JSON nor a frame: begins b''"),
    (b"\x80\x04\x95junk", None, r"neither JSON nor a frame: begins b'\\x80"),
    (b"OIP2\2\0\0\0{}", None, "neither JSON nor a frame: begins b'OIP2"),
    (b" " + request(), None, "neither JSON nor a frame"),
    (b"\xef\xbb\xbf" + request(), None, "neither JSON nor a frame"),
    (b"[1]", None, "neither JSON nor a frame"),
    (b"null", None, "neither JSON nor a frame"),
    (b"{", None, "not JSON: EOF"),
    (b"{nope}", None, "not JSON: key must be a string"),
    (b'{"id":"r1",nope}', "r1", "not JSON: key must be a string at line 1 column 12"),
    (b"{'id':'r1'}", None, "not JSON"),
    (request()[:-1], "r1", "not JSON: EOF"),
    (request() + b"x", "r1", "not JSON: trailing characters"),
    (request() + request(id="r2"), "r1", "not JSON: trailing characters"),
    (text('"inputs":[1,,2]'), "r1", "not JSON: expected value"),
    (text('\n"inputs":\n[01]'), "r1", "not JSON: invalid number at line 3"),
    (b'{"id":"r1","x":"\xff"}', "r1", "not JSON: invalid unicode"),
    (b'{"id":"r1","x":"tab\t"}', "r1", "not JSON: control character"),
    (text('"x":"\\ud800"'), "r1", "not JSON: .*hex escape"),
    (text('"x":' + "9" * 5_000), "r1", "not JSON: number out of range"),
    (b'{"id":"r1","inputs":' + DEEP, "r1", "not JSON: recursion limit exceeded"),
    (b'{"id":"r1","inputs":' + DEEP + b"]" * 100_000 + b"}", "r1", "recursion limit exceeded"),
    (b'{"inputs":' + DEEP, None, "recursion limit exceeded"),
    (b'{"a":' * 100_000, None, "recursion limit exceeded"),
]  # fmt: skip


IDS: list[Row] = [
    (request(id=None), None, "id: input should be a valid string"),
    (request(id=7), None, "id: input should be a valid string"),
    (request(id=["r1"]), None, "id: input should be a valid string"),
    (json.dumps({"inputs": json.loads(request())["inputs"]}).encode(), None, "id: field required"),
    (request(id=""), None, "id: string should match pattern"),
    (request(id="r1\n"), None, "id: string should match pattern"),
    (request(id="r 1"), None, "id: string should match pattern"),
    (request(id="r\0"), None, "id: string should match pattern"),
    (request(id="{r1}"), None, "id: string should match pattern"),
    (request(id="r/1"), None, "id: string should match pattern"),
    (request(id="é"), None, "id: string should match pattern"),
    (request(id="\u0661"), None, "id: string should match pattern"),
    (request(id="😀"), None, "id: string should match pattern"),
    (request(id="a" * 129), None, r"id: string should match pattern '\^\[A-Za-z0-9._:-\]\{1,128\}"),
    (request(id="a" * 100_000), None, "id: string should match pattern"),
]

PARAMETERS: list[Row] = [
    (request(parameters=[]), "r1", "parameters: input should be an object"),
    (request(parameters=None), "r1", "parameters: input should be an object"),
    (request(parameters={"reply_to": "a b"}), "r1", "parameters.reply_to: string should match"),
    (request(parameters={"reply_to": "box\n"}), "r1", "parameters.reply_to: string should match"),
    (request(parameters={"reply_to": "a" * 65}), "r1", r"parameters.reply_to: .*\{1,64\}"),
    (request(parameters={"reply_to": "in:box"}), "r1", "parameters.reply_to: string should match"),
    (
        request(parameters={"timeout": -1}),
        "r1",
        "parameters.timeout: .* greater than or equal to 0",
    ),
    (request(parameters={"timeout": 1.5}), "r1", "parameters.timeout: .* valid integer"),
    (request(parameters={"timeout": "5"}), "r1", "parameters.timeout: .* valid integer"),
    (request(parameters={"timeout": True}), "r1", "parameters.timeout: .* valid integer"),
    (request(parameters={"timeout": 2**64}), "r1", "parameters.timeout: .* 18446744073709551615"),
    (request(parameters={"reply_ttl": -5}), "r1", "parameters.reply_ttl"),
    (request(parameters={"submitted_ms": "now"}), "r1", "parameters.submitted_ms"),
    (request(parameters={"priority": "high"}), "r1", "parameters.priority: .* valid integer"),
    (request(parameters={"binary_data_output": 1}), "r1", "parameters.binary_data_output"),
    (request(parameters={"traceparent": 1}), "r1", "parameters.traceparent: .* valid string"),
    (
        request(parameters={"x": None}),
        "r1",
        "parameters.x: .* string, a finite number or a boolean",
    ),
    (request(parameters={"x": {}}), "r1", "parameters.x: .* string, a finite number or a boolean"),
    (text('"inputs":[],"parameters":{"x":NaN}'), "r1", "parameters.x: .* finite number"),
    (text('"inputs":[],"parameters":{"x":1e999}'), "r1", "parameters.x: .* finite number"),
    (request(parameters={"x" * 9_000: []}), "r1", r"parameters\.x{77}\.\.\.: input should be"),
]

INPUTS: list[Row] = [
    (b'{"id":"r1"}', "r1", "inputs: field required"),
    (request(inputs=[]), "r1", "inputs: list should have at least 1 item, not 0"),
    (request(inputs={}), "r1", "inputs: input should be a valid array"),
    (request(inputs=None), "r1", "inputs: input should be a valid array"),
    (request(inputs=[7]), "r1", r"inputs\[0\]: input should be an object"),
    (request(inputs=[{}] * 1_025), "r1", "inputs.*: field required|at most 1024 items"),
    (request_of(name=None, zzz=1), "r1", r"inputs\[0\].name: field required"),
    (request_of(name=""), "r1", r"inputs\[0\].name: .* at least 1 character"),
    (request_of(name="x" * 257), "r1", r"inputs\[0\].name: .* at most 256 characters"),
    (request_of(name=5), "r1", r"inputs\[0\].name: input should be a valid string"),
    (request_of(datatype=None, zzz=1), "r1", r"inputs\[0\].datatype: field required"),
    (
        request_of(datatype="float32"),
        "r1",
        r"inputs\[0\].datatype: input should be 'BOOL', 'UINT8'",
    ),
    (request_of(datatype="STRING"), "r1", r"inputs\[0\].datatype: input should be 'BOOL'"),
    (request_of(shape=None, zzz=1), "r1", r"inputs\[0\].shape: field required"),
    (request_of(shape=[]), "r1", r"inputs\[0\].shape: list should have at least 1 item"),
    (request_of(shape="12"), "r1", r"inputs\[0\].shape: input should be a valid array"),
    (request_of(shape=[-1, 2]), "r1", r"inputs\[0\].shape\[0\]: .* greater than or equal to 0"),
    (request_of(shape=[1, 2.0]), "r1", r"inputs\[0\].shape\[1\]: .* valid integer"),
    (request_of(shape=["1", 2]), "r1", r"inputs\[0\].shape\[0\]: .* valid integer"),
    (request_of(shape=[True, 2]), "r1", r"inputs\[0\].shape\[0\]: .* valid integer"),
    (request_of(shape=[1] * 65), "r1", r"inputs\[0\].shape: list should have at most 64 items"),
    (request_of(shape=[2**64]), "r1", r"inputs\[0\].shape\[0\]: .* less than or equal to"),
    (request_of(shape=[2**63]), "r1", r"tensor 'x': shape \[9223372036854775808\] is larger"),
    (request_of(shape=[2**40, 2**40]), "r1", "tensor 'x': shape .* is larger than any array"),
    (request_of(shape=[0, 2**63], data=[]), "r1", "tensor 'x': shape .* is larger than any array"),
    (request_of(shape=[2**64 - 1] * 64), "r1", "tensor 'x': shape .* is larger than any array"),
    (request_of(data=None), "r1", "tensor 'x': expected either data or binary_data_size"),
    (request_of(data={"0": 1}), "r1", r"inputs\[0\].data: input should be a valid array"),
    (request_of(data=[1]), "r1", r"tensor 'x': shape \[1, 2\] needs 2 elements, got 1"),
    (request_of(data=[[1, 2], [3]]), "r1", "tensor 'x': shape .* needs 1 rows of data, got 2"),
    (request_of(shape=[2, 2], data=[[1, 2], [3]]), "r1", "tensor 'x': data is ragged"),
    (request_of(data=["a", 1]), "r1", "tensor 'x': FP32 data must be numbers, got a string"),
    (request_of(data=[None, 1]), "r1", "tensor 'x': FP32 data must be numbers, got null"),
    (request_of(data=[float("nan"), 1]), "r1", "tensor 'x': .* send NaN and Infinity in binary"),
    (request_of(data=[float("-inf"), 1]), "r1", "tensor 'x': .* send NaN and Infinity in binary"),
    (request_of(data=[1e39, 1]), "r1", "tensor 'x': a number is out of the range of FP32"),
    (request_of(datatype="INT8", data=[128, 0]), "r1", "out of the range of INT8"),
    (request_of(datatype="UINT8", data=[-1, 0]), "r1", "out of the range of UINT8"),
    (request_of(datatype="INT64", data=[2**63, 0]), "r1", "out of the range of INT64"),
    (request_of(datatype="UINT64", data=[2**64, 0]), "r1", "out of the range of UINT64"),
    (request_of(datatype="INT64", data=[1.5, 0]), "r1", "must be whole numbers, got a fraction"),
    (request_of(datatype="BOOL", data=[0, 1]), "r1", "must be true or false, got a number"),
    (request_of(datatype="BYTES", data=[1, 2]), "r1", "must be strings, got a number"),
    (request_of(datatype="BF16"), "r1", "tensor 'x': BF16 has no JSON form: send it in binary"),
    (request(inputs=json.loads(request())["inputs"] * 2), "r1", "tensor 'x' appears twice"),
    (request(outputs={}), "r1", "outputs: input should be a valid array"),
    (request(outputs=["y"]), "r1", r"outputs\[0\]: input should be an object"),
    (request(outputs=[{}]), "r1", r"outputs\[0\].name: field required"),
]


def cut_frame(promised: int, rest: bytes) -> bytes:
    return b"OIP1" + promised.to_bytes(4, "little") + rest


SIZES = binary_tensor("x", "FP32", [1, 2], 8)
FRAMES: list[Row] = [
    (b"OIP1", None, "the frame ends before its length"),
    (b"OIP1\1\0", None, "the frame ends before its length"),
    (cut_frame(2**32 - 1, request()), "r1", "promises a head of 4294967295 bytes, and"),
    (cut_frame(500, b'{"id":"r1","inp'), "r1", "promises a head of 500 bytes, and 15 follow"),
    (cut_frame(500, b'{"id":"r1'), None, "promises a head of 500 bytes, and 9 follow"),
    (cut_frame(0, request()), None, "not JSON: EOF"),
    (cut_frame(3, request()), None, "not JSON: EOF"),
    (cut_frame(len(request()) - 1, request()), "r1", "not JSON: EOF"),
    (frame(b"[1]"), None, "message: input should be an object"),
    (frame(b"\xff\xff"), None, "not JSON"),
    (frame_of(b""), "r1", "tensor 'x': binary_data_size is 8, and 0 bytes are left"),
    (frame_of(b"1234567"), "r1", "tensor 'x': binary_data_size is 8, and 7 bytes are left"),
    (frame_of(b"123456789"), "r1", "1 bytes are left after the last tensor: expected none"),
    (frame_of(parameters={"binary_data_size": 7}, raw=b"1234567"), "r1",
     r"tensor 'x': shape \[1, 2\] of FP32 needs 8 bytes, got 7"),
    (frame_of(parameters={"binary_data_size": -8}), "r1",
     r"inputs\[0\].parameters.binary_data_size: .* greater than or equal to 0"),
    (frame_of(parameters={"binary_data_size": "8"}), "r1",
     r"inputs\[0\].parameters.binary_data_size: .* valid integer"),
    (frame_of(parameters={"binary_data_size": 2**63}), "r1",
     "binary_data_size is 9223372036854775808, and 8 bytes are left"),
    (frame_of(parameters={}), "r1", "tensor 'x': expected either data or binary_data_size"),
    (frame_of(data=[1, 2]), "r1", "tensor 'x': expected either data or binary_data_size"),
    (frame_of(shape=[2**63]), "r1", "tensor 'x': shape .* is larger than any array"),
    (frame_of(datatype="BYTES", shape=[2**50]), "r1", "tensor 'x': BYTES .* cannot fit into 8"),
    (frame_of(datatype="BYTES", shape=[1]), "r1", "tensor 'x': 4 bytes are left after the last"),
    (frame_of(b"\xff" * 8, datatype="BYTES", shape=[1]), "r1", "tensor 'x': BYTES element 0 is longer"),
    (frame_of(b"\2" * 8, datatype="BOOL", shape=[8]), "r1", "tensor 'x': BOOL elements"),
    (frame({"inputs": [SIZES, SIZES], "id": "r1"}, b"\0" * 16), "r1", "tensor 'x' appears twice"),
    (request_of(data=None, parameters={"binary_data_size": 8}), "r1",
     "tensor 'x': binary_data_size is 8, and 0 bytes are left in the message"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("message", "told", "words"), NOT_JSON + IDS + PARAMETERS + INPUTS + FRAMES
)
def test_bad_messages(message: bytes, told: str | None, words: str) -> None:
    """A message that is no request is refused in a sentence, to its sender where there is an id."""
    found = refusal(message)
    assert type(found.error) is InvalidRequest
    assert (found.address.id if found.address else None) == told
    with pytest.raises(InvalidRequest, match=words):
        raise found.error


ADDRESSES: list[tuple[dict[str, Any], Address]] = [
    ({}, Address("r1")),
    ({"reply_to": "box", "reply_ttl": 90}, Address("r1", "box", 90)),
    ({"reply_to": "b x", "reply_ttl": 90}, Address("r1", None, 90)),
    ({"reply_to": 5, "reply_ttl": -1}, Address("r1")),
    ({"reply_to": "box", "reply_ttl": True}, Address("r1", "box")),
    ({"reply_to": "box", "reply_ttl": "90"}, Address("r1", "box")),
]


@pytest.mark.parametrize(("parameters", "address"), ADDRESSES)
def test_where_a_refusal_goes(parameters: dict[str, Any], address: Address) -> None:
    """What is right about the address of a wrong request is used, and nothing else of it."""
    assert refusal(request(inputs=[], parameters=parameters)).address == address


def test_a_well_formed_request_of_wrong_tensors_keeps_its_address() -> None:
    """A request whose tensors are wrong is answered where and as long as it asked."""
    message = request_of(data=[1]).replace(
        b'"id"', b'"parameters":{"reply_to":"b","reply_ttl":70},"id"'
    )
    assert refusal(message).address == Address("r1", "b", 70)


def test_salvage_takes_what_a_full_parse_would() -> None:
    """Of doubled members the last counts, also where a request is wrong."""
    message = b'{"id":"first","id":"last","inputs":[]}'
    assert refusal(message).address == Address("last")


FILL = "a" * LIMIT
OVERSIZED: list[tuple[bytes, Address | None]] = [
    (request(zzz=FILL), Address("r1")),
    (request_of(data=[0] * LIMIT), Address("r1")),
    (b'{"parameters":{"reply_to":"box","reply_ttl":90},"id":"r1","x":"' + FILL.encode(),
     Address("r1", "box")),
    (request(parameters={"reply_to": "box"}, inputs=FILL), Address("r1")),
    # Not within the part that is read.
    (b'{"inputs":"' + FILL.encode() + b'","id":"r1"}', None),
    # Only the beginning of an id, of a number, of a character.
    (b'{"id":"' + FILL.encode() + b'"}', None),
    (b'{"x":"' + b"a" * (64 * 1024 - 16) + b'","id":"r1' + FILL.encode() + b'"}', None),
    (b'{"id":"r1","parameters":{"x":"' + b"a" * (64 * 1024 - 48) + b'","reply_ttl":1234567890},"y":"'
     + FILL.encode() + b'"}', Address("r1")),
    (b'{"id":"r1","x":"' + "é".encode() * LIMIT + b'"}', Address("r1")),
    (b'{"id":"r1",nope' + FILL.encode(), Address("r1")),
    (b'{"id":"r 1","x":"' + FILL.encode() + b'"}', None),
    (frame_of(b"\0" * LIMIT), Address("r1")),
    (frame({"inputs": [], "id": "r1", "zzz": FILL}), Address("r1")),
    (frame({"zzz": FILL, "id": "r1"}), None),
    (cut_frame(2**32 - 1, request(zzz=FILL)), Address("r1")),
    (cut_frame(10, b'{"id":"r1"' + FILL.encode()), Address("r1")),
    (cut_frame(8, b'{"id":"r1"' + FILL.encode()), None),
    (b"\0" * (LIMIT + 1), None),
    (b"{" + DEEP * 20, None),
]  # fmt: skip


@pytest.mark.parametrize(("message", "address"), OVERSIZED)
def test_oversized_messages(message: bytes, address: Address | None) -> None:
    """The sender of an oversized message is told, if its address is in the first 64 KiB."""
    found = refusal(message)
    assert type(found.error) is TooLarge
    assert str(found.error) == f"message of {len(message)} bytes is over the limit of {LIMIT}"
    assert found.address == address


@given(
    request_id=request_ids,
    cut=st.integers(0, 400),
    more=st.sampled_from([b"", b"\xff", b"x", b"]", b"1"]),
)
def test_never_a_part_of_an_id(request_id: str, cut: int, more: bytes) -> None:
    """Wherever a message is cut, and whatever follows the cut, nobody else's id is answered."""
    message = request(id=request_id, parameters={"reply_to": "box", "reply_ttl": 12_345})
    found = refusal(message[: min(cut, len(message) - 1)] + more)
    if found.address is not None:
        assert found.address.id == request_id
        assert found.address.reply_to in {None, "box"}
        assert found.address.reply_ttl_s is None
