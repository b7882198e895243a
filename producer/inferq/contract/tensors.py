"""Tensors between four forms: numpy arrays, raw bytes, JSON data, and what a caller hands in.

Raw bytes are little-endian in C order; BYTES elements carry a 4-byte little-endian length each.
So the raw form of rows stacked along the batch dimension is the concatenation of their raw forms,
for every datatype. Batching rests on that: it joins bytes and builds one array for the whole call.
"""

import importlib
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, pairwise
from struct import Struct
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from inferq.contract.errors import InvalidRequest, InvalidSetting

Array = NDArray[Any]
Buffer = bytes | bytearray | memoryview

_DTYPES: Final = {
    "BOOL": np.dtype("?"),
    "UINT8": np.dtype("u1"),
    "UINT16": np.dtype("<u2"),
    "UINT32": np.dtype("<u4"),
    "UINT64": np.dtype("<u8"),
    "INT8": np.dtype("i1"),
    "INT16": np.dtype("<i2"),
    "INT32": np.dtype("<i4"),
    "INT64": np.dtype("<i8"),
    "FP16": np.dtype("<f2"),
    "FP32": np.dtype("<f4"),
    "FP64": np.dtype("<f8"),
    "BYTES": np.dtype(object),
}
DATATYPES: Final = (*_DTYPES, "BF16")
"""The datatypes of the Open Inference Protocol, and Triton's BF16."""

# numpy's own limits, met before numpy raises what nobody expects. It multiplies the extents of an
# empty array too, those that are 0 left out, and counts bytes in 63 bits.
MAX_DIMENSIONS: Final = 64
"""Dimensions of a tensor, the batch dimension included."""
_MAX_ELEMENTS: Final = 2**59
_LENGTH = Struct("<I")
# What each datatype accepts as a JSON element. bool is an int in Python, so types are exact.
_JSON_TYPES: Final[dict[str, frozenset[type]]] = {
    "b": frozenset({bool}),
    "i": frozenset({int}),
    "u": frozenset({int}),
    "f": frozenset({int, float}),
    "O": frozenset({str}),
}
_JSON_WORDS: Final = {
    "b": "true or false",
    "i": "whole numbers",
    "u": "whole numbers",
    "f": "numbers",
    "O": "strings",
}
_KINDS_TAKEN: Final = {"b": "b", "i": "iub", "u": "iub", "f": "fiub"}


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One tensor of a model, per row: without the batch dimension.

    ``shape`` may hold -1 for a dimension that differs from request to request; such requests
    share a model call only with others of the same shape. A list is accepted and kept as a tuple.

    Raises:
        InvalidSetting: a name that is no identifier, an unknown datatype, more than 63
            dimensions, or one that is neither a non-negative whole number nor -1.
    """

    name: str
    datatype: str
    shape: Sequence[int]

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.isidentifier():
            raise InvalidSetting(
                f"tensor name {self.name!r}: expected a Python identifier, since predict() takes "
                "each input as a keyword"
            )
        if self.datatype not in DATATYPES:
            raise InvalidSetting(
                f"tensor '{self.name}': unknown datatype {self.datatype!r}; expected one of "
                + ", ".join(DATATYPES)
            )
        try:
            object.__setattr__(self, "shape", tuple(self.shape))
        except TypeError:
            raise InvalidSetting(
                f"tensor '{self.name}': shape {self.shape!r} is no list of extents"
            ) from None
        if len(self.shape) >= MAX_DIMENSIONS:
            raise InvalidSetting(
                f"tensor '{self.name}': {len(self.shape)} dimensions are over "
                f"{MAX_DIMENSIONS - 1}, the batch dimension not counted"
            )
        for extent in self.shape:
            if isinstance(extent, bool) or not isinstance(extent, int) or extent < -1:
                raise InvalidSetting(
                    f"tensor '{self.name}': shape {list(self.shape)} may hold whole numbers from "
                    "0, and -1 for a variable dimension"
                )

    def admits(self, row_shape: Sequence[int]) -> bool:
        """Tell whether a row of this shape fits."""
        return len(row_shape) == len(self.shape) and all(
            want in {-1, have} for want, have in zip(self.shape, row_shape, strict=True)
        )


def dtype_of(datatype: str) -> np.dtype[Any]:
    """Return the little-endian numpy dtype of an OIP datatype; BYTES is ``object``.

    Raises:
        InvalidRequest: unknown datatype, or BF16 without the ml-dtypes package.
    """
    if datatype == "BF16":
        try:
            ml_dtypes: Any = importlib.import_module("ml_dtypes")
        except ImportError:
            raise InvalidRequest(
                "datatype BF16 needs the ml-dtypes package here, and it is not installed"
            ) from None
        bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return bfloat16
    try:
        return _DTYPES[datatype]
    except KeyError:
        raise InvalidRequest(
            f"unknown datatype {datatype!r}: expected one of " + ", ".join(DATATYPES)
        ) from None


def element_count(shape: Sequence[int]) -> int:
    """Multiply a shape out.

    Raises:
        InvalidRequest: a negative dimension, more than 64 of them, or extents that no array can
            have, even where one of them is 0.
    """
    if len(shape) > MAX_DIMENSIONS:
        raise InvalidRequest(f"a shape of {len(shape)} dimensions is over {MAX_DIMENSIONS}")
    if any(extent < 0 for extent in shape):
        raise InvalidRequest(f"shape {list(shape)} has a negative dimension")
    if math.prod(extent for extent in shape if extent) > _MAX_ELEMENTS:
        raise InvalidRequest(f"shape {list(shape)} is larger than any array can be")
    return math.prod(shape)


def item_size(datatype: str) -> int | None:
    """Bytes of one element in raw form, or ``None`` for BYTES, whose elements differ."""
    return None if datatype == "BYTES" else dtype_of(datatype).itemsize


def unpack(datatype: str, shape: Sequence[int], raw: Buffer) -> Array:
    """View raw bytes as an array, without a copy; BYTES gives an object array of ``bytes``.

    The view is read-only, since it shares the message's memory.

    Raises:
        InvalidRequest: ``raw`` is shorter or longer than the shape needs, or holds a BOOL that is
            neither 0 nor 1.
    """
    count = element_count(shape)
    if datatype == "BYTES":
        # Cut before anything of that size is allocated: the shape may lie.
        elements = _split_elements(raw, count)
        array = np.empty(count, dtype=object)
        array[:] = elements
        return array.reshape(shape)
    dtype = dtype_of(datatype)
    if len(raw) != count * dtype.itemsize:
        raise InvalidRequest(
            f"shape {list(shape)} of {datatype} needs {count * dtype.itemsize} bytes, got {len(raw)}"
        )
    if datatype == "BOOL":
        octets = np.frombuffer(raw, dtype=np.uint8)
        if octets.size and octets.max() > 1:
            raise InvalidRequest("BOOL elements are one byte each, 0 or 1")
    return np.frombuffer(raw, dtype=dtype).reshape(shape)


@contextmanager
def naming_tensor(name: str) -> Iterator[None]:
    """Put the tensor's name before whatever is found wrong with it in this block."""
    try:
        yield
    except InvalidRequest as error:
        raise InvalidRequest(f"tensor '{name}': {error}") from None


def _split_elements(raw: Buffer, count: int) -> list[bytes]:
    """Cut the raw form of BYTES into its elements."""
    view = memoryview(raw)
    # Each element takes at least its length: a hostile shape is refused before any allocation.
    if count * _LENGTH.size > len(view):
        raise InvalidRequest(f"BYTES tensor of {count} elements cannot fit into {len(view)} bytes")
    elements = []
    offset = 0
    for index in range(count):
        start = offset + _LENGTH.size
        if start > len(view):
            raise InvalidRequest(f"BYTES element {index} has no length: the data ends before it")
        offset = start + _LENGTH.unpack_from(view, offset)[0]
        if offset > len(view):
            raise InvalidRequest(f"BYTES element {index} is longer than the data that is left")
        elements.append(bytes(view[start:offset]))
    if offset != len(view):
        raise InvalidRequest(f"{len(view) - offset} bytes are left after the last BYTES element")
    return elements


def pack(array: Array, datatype: str) -> Buffer:
    """Return the raw form of an array whose dtype is that of ``datatype``."""
    if datatype == "BYTES":
        parts: list[bytes] = []
        for element in array.ravel():
            parts += (_LENGTH.pack(len(element)), element)
        return b"".join(parts)
    return np.ascontiguousarray(array, dtype=dtype_of(datatype)).tobytes()


def from_json_data(datatype: str, shape: Sequence[int], data: object) -> Array:
    """Build an array from JSON data, nested in its shape or flat, row-major.

    Raises:
        InvalidRequest: ragged or miscounted data, elements of another type or out of range,
            NaN or Infinity, or BF16, which has no JSON form.
    """
    if datatype == "BF16":
        raise InvalidRequest("BF16 has no JSON form: send it in binary")
    dtype = dtype_of(datatype)
    count = element_count(shape)
    flat = _flatten(data, shape)
    if len(flat) != count:
        raise InvalidRequest(f"shape {list(shape)} needs {count} elements, got {len(flat)}")
    others = set(map(type, flat)) - _JSON_TYPES[dtype.kind]
    if others:
        raise InvalidRequest(
            f"{datatype} data must be {_JSON_WORDS[dtype.kind]}, got "
            + " and ".join(sorted(_json_name(other) for other in others))
        )
    if dtype.kind == "O":
        array = np.empty(count, dtype=object)
        array[:] = [text.encode() for text in flat]
        return array.reshape(shape)
    return _fit_numbers(flat, datatype, dtype).reshape(shape)


def _flatten(data: object, shape: Sequence[int]) -> list[Any]:
    """Flatten nested lists whose nesting must be the shape's; a flat list passes as it is."""
    if not isinstance(data, list):
        raise InvalidRequest(f"data must be a list, got {_json_name(type(data))}")
    if not any(isinstance(item, list) for item in data):
        return data
    level = data
    for have, want in pairwise(shape):
        if len(level) != have and level is data:
            raise InvalidRequest(f"shape {list(shape)} needs {have} rows of data, got {len(level)}")
        if any(not isinstance(item, list) or len(item) != want for item in level):
            raise InvalidRequest(f"data is ragged, or nested otherwise than shape {list(shape)}")
        level = list(chain.from_iterable(level))
    if any(isinstance(item, list) for item in level):
        raise InvalidRequest(f"data is nested deeper than shape {list(shape)}")
    return level


def _fit_numbers(flat: Iterable[Any], datatype: str, dtype: np.dtype[Any]) -> Array:
    """Turn Python numbers into an array, refusing what the dtype cannot hold."""
    values = list(flat)
    try:
        if dtype.kind in "biu":
            return np.array(values, dtype=dtype)
        wide = np.array(values, dtype=np.float64)
    except OverflowError:
        raise InvalidRequest(f"a number is out of the range of {datatype}") from None
    if not np.isfinite(wide).all():
        raise InvalidRequest(
            "JSON data must be finite numbers that FP64 can hold: send NaN and Infinity in binary"
        )
    return _narrow(wide, datatype, dtype)


def _narrow(wide: Array, datatype: str, dtype: np.dtype[Any]) -> Array:
    """Cast floats to ``dtype``, refusing finite values that would become infinite."""
    with np.errstate(over="ignore"):
        narrow = wide.astype(dtype)
    if (np.isinf(narrow) & ~np.isinf(wide)).any():
        raise InvalidRequest(f"a number is out of the range of {datatype}")
    return narrow


def to_json_data(array: Array, datatype: str) -> list[Any]:
    """Return an array as a flat list of JSON values.

    Raises:
        InvalidRequest: NaN or Infinity, BYTES that are not UTF-8, or BF16: these have no JSON
            form, and the message names the binary form.
    """
    if datatype == "BF16":
        raise InvalidRequest("BF16 has no JSON form: ask for binary_data_output")
    flat = array.ravel()
    if datatype == "BYTES":
        try:
            return [element.decode() for element in flat]
        except UnicodeDecodeError:
            raise InvalidRequest(
                "BYTES that are not UTF-8 have no JSON form: ask for binary_data_output"
            ) from None
    if flat.dtype.kind == "f" and not np.isfinite(flat).all():
        raise InvalidRequest(
            "NaN and Infinity have no JSON form: ask for binary_data_output to get them"
        )
    return flat.tolist()


def coerce(value: object, datatype: str) -> Array:
    """Turn what a caller hands in into an array of the datatype's dtype, losing nothing silently.

    Lists, scalars and arrays of the same family are taken: any float or integer for a float
    tensor (rounded to its precision), integers and booleans that are in range for an integer
    tensor, booleans for BOOL, ``bytes`` and ``str`` for BYTES.

    Raises:
        InvalidRequest: another family, ragged lists, masked elements, or numbers out of range.
    """
    dtype = dtype_of(datatype)
    if datatype == "BYTES":
        return _coerce_bytes(value)
    # Subclasses of ndarray (matrix, masked array) have rules of their own.
    if type(value) is np.ndarray and value.dtype == dtype:
        return value
    array = _as_array(value)
    # numpy knows BF16 as an opaque type; here it is a float like the others.
    kind = "f" if datatype == "BF16" else dtype.kind
    if array.dtype.kind == "O" or (kind in "iu" and array.dtype.kind == "f"):
        integers = np.asarray(value, dtype=object)
        # Of Python's integers numpy makes objects beyond 64 bits, and floats where a list needs
        # both a sign and the 64th bit.
        if integers.size and all(type(each) is int for each in integers.ravel()):
            return _fit_numbers(integers.ravel(), datatype, dtype).reshape(integers.shape)
    if array.size and array.dtype.kind not in _KINDS_TAKEN[kind]:
        raise InvalidRequest(f"{datatype} cannot be made from values of type {array.dtype}")
    if kind == "f":
        return _narrow(array, datatype, dtype)
    if kind in "iu" and array.size:
        limits = np.iinfo(dtype)
        if int(array.min()) < limits.min or int(array.max()) > limits.max:
            raise InvalidRequest(f"a number is out of the range of {datatype}")
    return array.astype(dtype)


def _as_array(value: object, dtype: type[object] | None = None) -> Array:
    """Make an array of a value as numpy does."""
    if np.ma.is_masked(value):
        raise InvalidRequest("masked elements have no value: fill them first")
    try:
        array = np.asarray(value, dtype=dtype)
    except (ValueError, OverflowError) as error:
        raise InvalidRequest(f"cannot make one array of this: {error}") from None
    return array.astype(np.float32) if array.dtype.name == "bfloat16" else array


def _coerce_bytes(value: object) -> Array:
    """Build an object array of ``bytes`` from strings, bytes, lists or arrays of them."""
    array = _as_array(value, object)
    flat = np.empty(array.size, dtype=object)
    for index, element in enumerate(array.ravel()):
        if isinstance(element, str):
            try:
                flat[index] = element.encode()
            except UnicodeEncodeError:
                raise InvalidRequest(f"the string at {index} is not valid Unicode") from None
        elif isinstance(element, bytes):
            flat[index] = element
        else:
            raise InvalidRequest(
                f"BYTES elements are bytes or str, got {type(element).__name__} at {index}"
            )
    return flat.reshape(array.shape)


def _json_name(kind: type) -> str:
    names = {
        dict: "an object",
        list: "an array",
        str: "a string",
        bool: "a boolean",
        float: "a fraction",
        int: "a number",
        type(None): "null",
    }
    return names.get(kind, kind.__name__)
