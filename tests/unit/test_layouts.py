"""Where the tensors of a message lie in its bytes, and when two messages are alike."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferq.contract.errors import InvalidRequest
from inferq.contract.layouts import Layout, LayoutMemo, TensorHead
from inferq.contract.oip import InferRequest, Tensor
from inferq.contract.tensors import pack
from support.wire import Named, binary_tensor, json_tensor, rows_of_tensors

FRONT = TensorHead("b", "UINT8", (2, 3), 6)
BACK = TensorHead("a", "FP32", (2,), 8)


def tensors(*described: dict[str, Any]) -> list[Tensor]:
    return InferRequest.model_validate_json(json.dumps({"id": "r", "inputs": described})).inputs


def test_spans_follow_the_order_of_the_bytes() -> None:
    """Each tensor lies behind the one before it, and the whole has the sum of their sizes."""
    layout = Layout([FRONT, BACK])
    assert (layout.spans, layout.size, layout.rows) == (((0, 6), (6, 14)), 14, 2)
    arrays = layout.arrays(bytes(range(6)) + np.array([1, 2], np.float32).tobytes())
    assert arrays["b"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert arrays["a"].tolist() == [1.0, 2.0]


def test_signature_leaves_out_order_and_rows() -> None:
    """Requests that may share a model call have one signature, whatever their rows and order."""
    one = Layout([FRONT, BACK]).signature
    more = Layout([BACK._replace(shape=(5,), size=20), FRONT._replace(shape=(5, 3), size=15)])
    assert more.signature == one
    assert Layout([FRONT, BACK._replace(datatype="FP16")]).signature != one
    assert Layout([FRONT._replace(shape=(2, 4)), BACK]).signature != one
    assert Layout([FRONT._replace(name="c"), BACK]).signature != one


def test_equal_heads_share_one_layout() -> None:
    """Equal messages are told by comparing a pointer; the memo starts over at its limit."""
    memo = LayoutMemo(limit=2)
    first = memo.layout([FRONT])
    assert memo.layout([TensorHead("b", "UINT8", (2, 3), 6)]) is first
    memo.layout([BACK])
    memo.layout([FRONT, BACK])
    assert memo.layout([FRONT]) is not first


def test_a_doubled_tensor_is_found_at_once() -> None:
    """A tensor that appears twice is named, also among very many."""
    heads = [TensorHead(f"t{number}", "UINT8", (1,), 1) for number in range(100_000)]
    with pytest.raises(InvalidRequest, match="tensor 't7' appears twice: expected once"):
        LayoutMemo().layout([*heads, heads[7]])


@given(drawn=rows_of_tensors(), data=st.data())
def test_laying_out(drawn: list[Named], data: st.DataObject) -> None:
    """Tensors in JSON and in binary, in any mixture, end up as the same bytes in order."""
    described, body = [], []
    for name, datatype, array in drawn:
        raw = bytes(pack(array, datatype))
        try:
            as_json = json_tensor(name, datatype, array)
        except InvalidRequest:
            as_json = None
        if as_json is None or data.draw(st.booleans()):
            described.append(binary_tensor(name, datatype, array.shape, len(raw)))
            body.append(raw)
        else:
            described.append(as_json)
    layout, raw_all = LayoutMemo().lay_out(tensors(*described), memoryview(b"".join(body)))
    assert bytes(raw_all) == b"".join(pack(array, datatype) for _, datatype, array in drawn)
    assert [head[:3] for head in layout.heads] == [
        (name, datatype, array.shape) for name, datatype, array in drawn
    ]


def test_binary_tensors_are_not_copied() -> None:
    """A message that came in binary keeps its own memory."""
    body = memoryview(bytearray(8))
    _, raw = LayoutMemo().lay_out(tensors(binary_tensor("x", "FP32", [2], 8)), body)
    assert raw is body


DATA = {"name": "x", "datatype": "UINT8", "shape": [2], "data": [1, 2]}
RAW = binary_tensor("y", "UINT8", [2], 2)
BAD_LAYOUTS: list[tuple[list[dict[str, Any]], bytes, str]] = [
    ([RAW], b"", "tensor 'y': binary_data_size is 2, and 0 bytes are left in the message"),
    ([RAW], b"1", "tensor 'y': binary_data_size is 2, and 1 bytes are left"),
    ([RAW], b"123", "1 bytes are left after the last tensor: expected none"),
    ([DATA], b"1", "1 bytes are left after the last tensor"),
    ([DATA, RAW], b"1234", "2 bytes are left after the last tensor"),
    ([RAW, {**RAW, "name": "z"}], b"12", "tensor 'z': binary_data_size is 2, and 0 bytes"),
    ([RAW, RAW], b"1234", "tensor 'y' appears twice"),
    ([{**DATA, **RAW}], b"12", "tensor 'y': expected either data or binary_data_size"),
    ([{**DATA, "data": None}], b"", "tensor 'x': expected either data or binary_data_size"),
    ([{**RAW, "shape": [3]}], b"12", r"tensor 'y': shape \[3\] of UINT8 needs 3 bytes, got 2"),
    ([{**RAW, "datatype": "BOOL"}], b"\1\2", "tensor 'y': BOOL elements are one byte each"),
    ([{**RAW, "datatype": "BYTES"}], b"\1\2", "tensor 'y': BYTES tensor of 2 elements"),
    (
        [binary_tensor("x", "UINT8", [1], 2**64 - 1)],
        b"1",
        "binary_data_size is 18446744073709551615",
    ),
    ([{**DATA, "data": [1, 300]}], b"", "tensor 'x': a number is out of the range of UINT8"),
]


@pytest.mark.parametrize(("described", "body", "words"), BAD_LAYOUTS)
def test_bodies_that_do_not_fit(described: list[dict[str, Any]], body: bytes, words: str) -> None:
    """A body that is not what its head says is refused with the tensor's name and both sizes."""
    with pytest.raises(InvalidRequest, match=words):
        LayoutMemo().lay_out(tensors(*described), memoryview(body))
