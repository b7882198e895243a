"""Tensors keep every bit on their way between arrays, raw bytes, JSON and a caller's values."""

import json
import sys
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferq.contract import oip
from inferq.contract.errors import InvalidRequest, InvalidSetting
from inferq.contract.tensors import (
    DATATYPES,
    TensorSpec,
    coerce,
    dtype_of,
    element_count,
    from_json_data,
    item_size,
    pack,
    to_json_data,
    unpack,
)
from support.wire import BFLOAT16, JSON_DATATYPES, arrays, shapes

every_datatype = pytest.mark.parametrize("datatype", DATATYPES)
every_json_datatype = pytest.mark.parametrize("datatype", JSON_DATATYPES)


@every_datatype
@given(data=st.data(), shape=shapes)
def test_raw_round_trip(datatype: str, data: st.DataObject, shape: tuple[int, ...]) -> None:
    """Raw bytes give back the array they were made of, bit by bit, whatever its extents."""
    array = data.draw(arrays(datatype, shape))
    raw = pack(array, datatype)
    again = unpack(datatype, shape, raw)
    assert (again.shape, again.dtype) == (shape, dtype_of(datatype))
    assert pack(again, datatype) == raw
    if datatype == "BYTES":
        assert again.tolist() == array.tolist()
    else:
        assert again.tobytes() == array.tobytes()


@every_json_datatype
@given(data=st.data(), shape=shapes)
def test_json_round_trip(datatype: str, data: st.DataObject, shape: tuple[int, ...]) -> None:
    """JSON text gives back the array it was made of, bit by bit, flat or nested in its shape."""
    array = data.draw(arrays(datatype, shape, finite=True))
    flat = json.loads(json.dumps(to_json_data(array, datatype)))
    again = from_json_data(datatype, shape, flat)
    assert (again.shape, again.dtype) == (shape, dtype_of(datatype))
    assert pack(again, datatype) == pack(array, datatype)
    nested = np.array(flat, dtype=object).reshape(shape).tolist()
    if array.size:
        assert pack(from_json_data(datatype, shape, nested), datatype) == pack(array, datatype)


@every_datatype
@given(data=st.data(), rest=st.lists(st.integers(0, 3), max_size=2), cut=st.integers(0, 4))
def test_stacked_rows_are_joined_bytes(
    datatype: str, data: st.DataObject, rest: list[int], cut: int
) -> None:
    """The raw form of rows is the raw forms of its parts in a row: batching joins bytes."""
    array = data.draw(arrays(datatype, (4, *rest)))
    parts = [pack(array[:cut], datatype), pack(array[cut:], datatype)]
    assert b"".join(parts) == pack(array, datatype)


def test_unpacking_copies_nothing() -> None:
    """An array of a message is a read-only view of it."""
    raw = bytearray(8)
    array = unpack("FP32", (2,), memoryview(raw).toreadonly())
    raw[:4] = np.float32(1.5).tobytes()
    assert array.tolist() == [1.5, 0.0]
    assert not array.flags.writeable


def test_packing_takes_any_memory_order() -> None:
    """Raw bytes are little-endian and row-major, however the array lies in memory."""
    array = np.array([[1, 2], [3, 4]], dtype=">i2", order="F")
    assert pack(array, "INT16") == bytes([1, 0, 2, 0, 3, 0, 4, 0])


def test_datatypes_are_one_list() -> None:
    """What the JSON models accept is what the codecs can do."""
    assert set(get_args(oip.Datatype)) == set(DATATYPES)
    assert {item_size(datatype) for datatype in DATATYPES} == {None, 1, 2, 4, 8}


def test_bf16_without_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where ml-dtypes is not installed, BF16 is refused with a sentence that names it."""
    # What Python itself does for a module that is known to be missing.
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(InvalidRequest, match="ml-dtypes"):
        dtype_of("BF16")


@pytest.mark.parametrize("datatype", ["fp32", "FLOAT", "", "object", "STRING"])
def test_unknown_datatypes(datatype: str) -> None:
    """An unknown datatype is refused with a list of those there are."""
    with pytest.raises(InvalidRequest, match=r"expected one of BOOL, UINT8, .*BF16"):
        dtype_of(datatype)


BAD_RAW: list[tuple[str, tuple[int, ...], bytes, str]] = [
    ("FP32", (2,), b"\0" * 7, r"shape \[2\] of FP32 needs 8 bytes, got 7"),
    ("FP32", (2,), b"\0" * 9, r"shape \[2\] of FP32 needs 8 bytes, got 9"),
    ("BF16", (2,), b"\0" * 3, r"needs 4 bytes, got 3"),
    ("INT64", (0, 3), b"\0", r"needs 0 bytes, got 1"),
    ("BOOL", (2,), b"\1\2", "one byte each, 0 or 1"),
    ("BYTES", (1,), b"", "1 elements cannot fit into 0 bytes"),
    ("BYTES", (2,), b"\4\0\0\0abcd", "element 1 has no length"),
    ("BYTES", (2,), b"\3\0\0\0abc\1", "element 1 has no length"),
    ("BYTES", (1,), b"\5\0\0\0abcd", "element 0 is longer than the data"),
    ("BYTES", (1,), b"\xff\xff\xff\xffabcd", "element 0 is longer than the data"),
    ("BYTES", (1,), b"\3\0\0\0abcd", "1 bytes are left after the last BYTES element"),
    ("BYTES", (0,), b"a", "1 bytes are left"),
    # Nothing of that size may be allocated before it is refused.
    ("BYTES", (2**50,), b"\0" * 4, "cannot fit into 4 bytes"),
    ("BYTES", (2**58,), b"\0" * 4, "cannot fit into 4 bytes"),
    ("UINT8", (2**58,), b"\0", "got 1"),
    ("UINT8", (2**63,), b"", "larger than any array"),
    ("UINT8", (2**32, 2**32), b"", "larger than any array"),
    ("UINT8", (0, 2**63), b"", "larger than any array"),
    ("FP64", (0, 2**31, 2**31), b"", "larger than any array"),
    ("UINT8", (-1, -1), b"\0", "negative dimension"),
    ("UINT8", (1,) * 65, b"\0", "65 dimensions"),
    ("UINT8", (2**64,) * 100_000, b"", "100000 dimensions"),
]


@pytest.mark.parametrize(("datatype", "shape", "raw", "words"), BAD_RAW)
def test_bad_raw_bytes(datatype: str, shape: tuple[int, ...], raw: bytes, words: str) -> None:
    """Raw bytes that a shape does not describe are refused in words, before they cost memory."""
    with pytest.raises(InvalidRequest, match=words):
        unpack(datatype, shape, raw)


@every_datatype
@given(data=st.data(), raw=st.binary(max_size=24), shape=shapes)
def test_any_raw_bytes(
    datatype: str, data: st.DataObject, raw: bytes, shape: tuple[int, ...]
) -> None:
    """Of any bytes, those that are not refused are exactly what packing gives back."""
    extents = data.draw(st.just(shape) | st.lists(st.integers(0, 2**64), max_size=70).map(tuple))
    try:
        array = unpack(datatype, extents, raw)
    except InvalidRequest:
        return
    assert pack(array, datatype) == raw


@pytest.mark.parametrize("shape", [(2**59,), (0, 2**59), (1,) * 64])
def test_largest_shapes(shape: tuple[int, ...]) -> None:
    """The largest extents that pass are extents that numpy can handle."""
    count = element_count(shape)
    assert np.broadcast_to(np.zeros((), np.float64), shape).size == count
    assert np.empty(0 if count == 0 else 1).reshape(shape if count < 2 else (1,)).size < 2


BAD_JSON: list[tuple[str, list[int], object, str]] = [
    ("FP32", [2], {"a": 1}, "data must be a list, got an object"),
    ("FP32", [2], "ab", "data must be a list, got a string"),
    ("FP32", [2], None, "data must be a list, got null"),
    ("FP32", [2], [1], r"shape \[2\] needs 2 elements, got 1"),
    ("FP32", [2], [1, 2, 3], r"shape \[2\] needs 2 elements, got 3"),
    ("FP32", [2, 2], [[1, 2], [3]], "ragged"),
    ("FP32", [2, 2], [[1, 2], 3], "ragged"),
    ("FP32", [2, 2], [[1, 2]], r"shape \[2, 2\] needs 2 rows of data, got 1"),
    ("FP32", [2, 2], [[1], [2], [3], [4]], "needs 2 rows of data, got 4"),
    ("FP32", [2], [[1, 2]], "nested deeper than shape"),
    ("FP32", [1, 2], [[[1], [2]]], "nested deeper than shape"),
    ("FP32", [0], [[]], "nested deeper than shape"),
    ("FP32", [1], [None], "FP32 data must be numbers, got null"),
    ("FP32", [1], ["1"], "FP32 data must be numbers, got a string"),
    ("FP32", [1], [True], "FP32 data must be numbers, got a boolean"),
    ("FP32", [1], [{}], "FP32 data must be numbers, got an object"),
    ("INT32", [1], [1.5], "INT32 data must be whole numbers, got a fraction"),
    ("INT32", [1], [1.0], "whole numbers, got a fraction"),
    ("INT32", [2], [True, "a"], "got a boolean and a string"),
    ("BOOL", [1], [1], "BOOL data must be true or false, got a number"),
    ("BYTES", [1], [1], "BYTES data must be strings, got a number"),
    ("FP64", [1], [float("nan")], "finite .* send NaN and Infinity in binary"),
    ("FP32", [1], [float("inf")], "send NaN and Infinity in binary"),
    ("FP32", [1], [1e39], "out of the range of FP32"),
    ("FP16", [1], [65_520], "out of the range of FP16"),
    ("FP64", [1], [10**400], "out of the range of FP64"),
    ("BF16", [1], [1.0], "BF16 has no JSON form: send it in binary"),
    ("FP32", [2**62], [], "larger than any array"),
]


@pytest.mark.parametrize(("datatype", "shape", "data", "words"), BAD_JSON)
def test_bad_json_data(datatype: str, shape: list[int], data: object, words: str) -> None:
    """JSON data of another type, count or nesting are refused in words."""
    with pytest.raises(InvalidRequest, match=words):
        from_json_data(datatype, shape, data)


INTEGER_LIMITS = [
    (datatype, int(np.iinfo(dtype_of(datatype)).min), int(np.iinfo(dtype_of(datatype)).max))
    for datatype in DATATYPES
    if "INT" in datatype
]


@pytest.mark.parametrize(("datatype", "least", "most"), INTEGER_LIMITS)
def test_integers_at_their_limits(datatype: str, least: int, most: int) -> None:
    """Integers travel exactly up to the limits of their datatype, and not one beyond."""
    assert from_json_data(datatype, [2], [least, most]).tolist() == [least, most]
    assert coerce([least, most], datatype).tolist() == [least, most]
    for beyond in (least - 1, most + 1):
        for numbers in ([beyond], [beyond, 1], [0, beyond]):
            with pytest.raises(InvalidRequest, match=f"out of the range of {datatype}"):
                from_json_data(datatype, [len(numbers)], numbers)
            with pytest.raises(InvalidRequest, match=f"out of the range of {datatype}"):
                coerce(numbers, datatype)


@pytest.mark.parametrize(
    ("datatype", "array", "words"),
    [
        ("FP32", np.array([np.nan], np.float32), "NaN and Infinity have no JSON form"),
        ("FP16", np.array([-np.inf], np.float16), "NaN and Infinity have no JSON form"),
        ("BYTES", np.array([b"\xff"], object), "not UTF-8 have no JSON form"),
        ("BF16", np.zeros(1, BFLOAT16), "BF16 has no JSON form"),
    ],
)
def test_without_json_form(datatype: str, array: Any, words: str) -> None:
    """What JSON cannot hold is refused with the parameter that asks for the binary form."""
    with pytest.raises(InvalidRequest, match=f"{words}.*binary_data_output"):
        to_json_data(array, datatype)


COERCED: list[tuple[str, object, object]] = [
    ("FP32", 1, 1.0),
    ("FP32", [1, 2.5, True], [1.0, 2.5, 1.0]),
    ("FP32", np.array([[1, 2]], np.int8), [[1.0, 2.0]]),
    ("FP32", np.array([0.1]), [float(np.float32(0.1))]),
    ("FP32", np.array([1.5], BFLOAT16), [1.5]),
    ("FP32", np.ma.masked_array([1.0], [False], np.float32), [1.0]),
    ("FP32", [2**64], [float(2**64)]),
    ("FP64", [-(2**70), 1], [-float(2**70), 1.0]),
    ("FP64", np.array([float("inf")]), [float("inf")]),
    ("FP32", [], []),
    ("BF16", [1.5, -2], [1.5, -2.0]),
    ("BF16", [2**70], [float(2**70)]),
    ("INT8", True, 1),
    ("INT64", [True, 2], [1, 2]),
    ("INT32", np.array([7], np.uint64), [7]),
    ("INT32", np.array([7], ">i8"), [7]),
    ("UINT64", [2**64 - 1, 1], [2**64 - 1, 1]),
    ("UINT64", np.array([2**63, 1], object), [2**63, 1]),
    ("INT16", [], []),
    ("BOOL", [True, False], [True, False]),
    ("BYTES", "é", "é".encode()),
    ("BYTES", ["a", b"b\0"], [b"a", b"b\0"]),
    ("BYTES", np.array([["a"], ["bc"]]), [[b"a"], [b"bc"]]),
    ("BYTES", np.array([b"a"]), [b"a"]),
    ("BYTES", [], []),
]


@pytest.mark.parametrize(("datatype", "value", "expected"), COERCED)
def test_values_of_the_family(datatype: str, value: object, expected: object) -> None:
    """Values of a datatype's family become an array of exactly its type."""
    array = coerce(value, datatype)
    assert type(array) is np.ndarray
    assert array.dtype == dtype_of(datatype)
    assert array.tolist() == expected


NOT_COERCED: list[tuple[str, object, str]] = [
    ("FP32", "1", "FP32 cannot be made from values of type <U1"),
    ("FP32", [None], "cannot be made from values of type object"),
    ("FP32", [1 + 2j], "complex128"),
    ("FP32", {"a": 1}, "type object"),
    ("FP32", [[1], [1, 2]], "cannot make one array of this"),
    ("FP32", 1e39, "out of the range of FP32"),
    ("FP16", [1, 10**6], "out of the range of FP16"),
    ("FP64", [10**400], "out of the range of FP64"),
    ("BF16", 3.4e38, "out of the range of BF16"),
    ("BF16", [10**40], "out of the range of BF16"),
    ("FP64", np.ma.masked_array([1.0], [True]), "masked"),
    ("INT8", [1.0], "INT8 cannot be made from values of type float64"),
    ("INT8", np.array([2.0]), "float64"),
    ("INT64", np.array(["2020-01-01"], "M8[D]"), "datetime64"),
    ("UINT8", [0.5, 2**70], "cannot be made from values of type object"),
    ("BOOL", [0, 1], "BOOL cannot be made from values of type int64"),
    ("BOOL", ["true"], "BOOL cannot be made"),
    ("BYTES", [1], "bytes or str, got int at 0"),
    ("BYTES", [None], "bytes or str, got NoneType"),
    ("BYTES", [["a"], ["b", "c"]], "bytes or str, got list"),
    ("BYTES", ["ok", "\ud800"], "the string at 1 is not valid Unicode"),
    ("BYTES", [np.zeros((2, 2)), np.zeros((2, 3))], "cannot make one array of this"),
]


@pytest.mark.parametrize(("datatype", "value", "words"), NOT_COERCED)
def test_values_of_another_family(datatype: str, value: object, words: str) -> None:
    """Nothing is converted that would lose something, and the sentence says what it was."""
    with pytest.raises(InvalidRequest, match=words):
        coerce(value, datatype)


def test_coercing_the_right_array_is_free() -> None:
    """An array that is right already is taken as it is."""
    array = np.zeros((2, 3), np.float32)
    assert coerce(array, "FP32") is array


@pytest.mark.parametrize(
    ("name", "datatype", "shape", "words"),
    [
        ("", "FP32", [1], "tensor name '': expected a Python identifier"),
        ("a b", "FP32", [1], "Python identifier"),
        (None, "FP32", [1], "Python identifier"),
        ("x", "float32", [1], "tensor 'x': unknown datatype 'float32'; expected one of BOOL"),
        ("x", "FP32", [-2], r"tensor 'x': shape \[-2\] may hold whole numbers from 0, and -1"),
        ("x", "FP32", [1.0], "whole numbers"),
        ("x", "FP32", [True], "whole numbers"),
        ("x", "FP32", 5, "tensor 'x': shape 5"),
        ("x", "FP32", [1] * 64, "64 dimensions are over 63"),
    ],
)
def test_bad_specs(name: Any, datatype: str, shape: Any, words: str) -> None:
    """A tensor that a model cannot have is refused where it is written down."""
    with pytest.raises(InvalidSetting, match=words):
        TensorSpec(name, datatype, shape)


@pytest.mark.parametrize(
    ("spec", "row", "fits"),
    [
        ([], (), True),
        ([], (1,), False),
        ([2], (2,), True),
        ([2], (3,), False),
        ([2], (1, 2), False),
        ([-1, 3], (0, 3), True),
        ([-1, 3], (7, 3), True),
        ([-1, 3], (3, 7), False),
    ],
)
def test_rows_that_fit(spec: list[int], row: tuple[int, ...], *, fits: bool) -> None:
    """A row fits by rank and extents, where -1 stands for any extent."""
    assert TensorSpec("x", "FP32", spec).admits(row) is fits
