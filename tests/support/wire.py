"""Messages of the contract for tests: built by hand, drawn at random, and broken."""

import json
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from inferq.contract import frames
from inferq.contract.tensors import DATATYPES, dtype_of, to_json_data

Array = NDArray[Any]
Named = tuple[str, str, Array]

JSON_DATATYPES = tuple(datatype for datatype in DATATYPES if datatype != "BF16")
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)

names = st.text(min_size=1, max_size=12)
request_ids = st.from_regex(r"[A-Za-z0-9._:-]{1,128}", fullmatch=True)
scalars = (
    st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
shapes = st.lists(st.integers(0, 4), min_size=1, max_size=4).map(tuple)
# In the two letters and the punctuation of JSON the heads of frames are cut.
json_texts = st.text(alphabet='id":,{}\\ a', max_size=12) | st.sampled_from(['"id":"', '\\"id":"'])
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | json_texts,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(json_texts | st.just("id"), inner, max_size=3)
    ),
    max_leaves=6,
)


@st.composite
def arrays(
    draw: st.DrawFn, datatype: str, shape: tuple[int, ...], *, finite: bool = False
) -> Array:
    """Draw an array of a datatype and shape; floats of every bit pattern unless ``finite``."""
    if datatype == "BYTES":
        element = st.text().map(str.encode) if finite else st.binary(max_size=9)
        count = int(np.prod(shape))
        array = np.empty(count, dtype=object)
        array[:] = draw(st.lists(element, min_size=count, max_size=count))
        return array.reshape(shape)
    dtype = dtype_of(datatype)
    if datatype != "BF16" and (finite or dtype.kind != "f"):
        elements = {"allow_nan": False, "allow_infinity": False} if dtype.kind == "f" else {}
        return draw(hnp.arrays(dtype, shape, elements=elements))
    bits = np.dtype(f"<u{dtype.itemsize}")
    return draw(hnp.arrays(bits, shape)).view(dtype)


@st.composite
def rows_of_tensors(
    draw: st.DrawFn, datatypes: Sequence[str] = DATATYPES, *, finite: bool = False
) -> list[Named]:
    """Draw one to three named tensors that agree about the number of rows."""
    rows = draw(st.integers(0, 3))
    drawn = []
    for name in draw(st.lists(names, min_size=1, max_size=3, unique=True)):
        datatype = draw(st.sampled_from(datatypes))
        shape = (rows, *draw(st.lists(st.integers(0, 3), max_size=2)))
        drawn.append((name, datatype, draw(arrays(datatype, shape, finite=finite))))
    return drawn


def compact(value: object) -> bytes:
    """Write JSON as a memo likes it: without blanks."""
    return json.dumps(value, separators=(",", ":")).encode()


def json_tensor(name: str, datatype: str, array: Array) -> dict[str, Any]:
    """Describe a tensor with its data as JSON."""
    data = to_json_data(array, datatype)
    return {"name": name, "datatype": datatype, "shape": list(array.shape), "data": data}


def binary_tensor(name: str, datatype: str, shape: Sequence[int], size: int) -> dict[str, Any]:
    """Describe a tensor whose raw bytes lie behind the head."""
    parameters = {"binary_data_size": size}
    return {"name": name, "datatype": datatype, "shape": list(shape), "parameters": parameters}


def request(**members: Any) -> bytes:
    """Write a valid request for one FP32 row of two numbers, with other or further members."""
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}
    return compact({"id": "r1", "inputs": [tensor], **members})


def request_of(**members: Any) -> bytes:
    """Write that request with other members in its only tensor; ``None`` leaves one out."""
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1, 2], **members}
    return request(inputs=[{key: value for key, value in tensor.items() if value is not None}])


def frame(head: dict[str, Any] | bytes, *raw: bytes) -> bytes:
    """Write a frame."""
    return frames.join(head if isinstance(head, bytes) else compact(head), raw)


def frame_of(raw: bytes = b"\0" * 8, **members: Any) -> bytes:
    """Write the frame of one FP32 row of two numbers, with other members in its only tensor."""
    tensor = {**binary_tensor("x", "FP32", [1, 2], 8), **members}
    return frame({"inputs": [tensor], "id": "r1"}, raw)


@st.composite
def broken(draw: st.DrawFn, text: bytes) -> bytes:
    """Draw a text with a few places cut out, doubled, or overwritten with JSON and junk."""
    pieces = [
        b'"id":"',
        b'"id":"z",',
        b",",
        b"}",
        b"{",
        b"[",
        b'"',
        b"\\",
        b"null",
        b"9",
        b"-",
        b" ",
    ]
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.sampled_from([0, 0, 1, 2, 7, 40])))
        piece = draw(st.sampled_from(pieces) | st.binary(max_size=3) | st.just(text[start:end] * 2))
        text = text[:start] + piece + text[end:]
    return text
