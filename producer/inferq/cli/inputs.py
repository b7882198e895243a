"""What a request is made of on the command line: files and flags in, tensors and options out.

Pure, but for :func:`read`. A file is told by what is in it, not by its name, so that all of them
may come through a pipe.
"""

import io
import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from inferq.contract.errors import InvalidRequest
from inferq.contract.requests import Parameters, Refusal, RequestReader
from inferq.contract.tensors import Array
from inferq.ids import new_request_id
from inferq.options import Priority, RequestOptions, Scalar

STDIN: Final = "-"
_NPY: Final = b"\x93NUMPY"
_FRAME: Final = b"OIP1"


class Asked(NamedTuple):
    """Inputs as :meth:`inferq.Producer.infer` takes them, and the options they came with."""

    inputs: Any
    options: RequestOptions


def read(source: str) -> bytes:
    """Read a file, or standard input for ``-``.

    Raises:
        OSError: it cannot be read.
    """
    return sys.stdin.buffer.read() if source == STDIN else Path(source).read_bytes()


def parse(content: bytes) -> Asked:
    """Read an INPUT: an OIP request in either form, an object tensor -> data, or ``.npy``.

    An ``.npy`` is for a model with one input. An OIP request needs no id here.

    Raises:
        InvalidRequest: it is none of them, or not a sound one.
    """
    if content.startswith(_NPY):
        return Asked(_array(content), {})
    if content.startswith(_FRAME):
        return _oip(content)
    members = _json(content)
    if not isinstance(members, dict):
        raise InvalidRequest(
            "the input is JSON but no object: expected an OIP request, or tensor names with data"
        )
    inputs = members.get("inputs")
    # Of a model with a tensor called "inputs", that one holds numbers or strings.
    if not isinstance(inputs, list) or not all(isinstance(each, dict) for each in inputs):
        return Asked(members, {})
    return _oip(content if "id" in members else _with_id(content))


def parse_tensor(content: bytes) -> Any:
    """Read the data of one tensor: ``.npy``, or JSON.

    Raises:
        InvalidRequest: it is neither.
    """
    return _array(content) if content.startswith(_NPY) else _json(content)


def combine(asked: Asked | None, tensors: Mapping[str, Any]) -> Asked:
    """Add tensors given by name.

    Raises:
        InvalidRequest: a tensor is given twice, or the others have no name.
    """
    if asked is None:
        return Asked(tensors, {})
    if not tensors:
        return asked
    if not isinstance(asked.inputs, Mapping):
        raise InvalidRequest("an .npy has no tensor's name: give it with --input NAME=FILE as well")
    twice = asked.inputs.keys() & tensors.keys()
    if twice:
        raise InvalidRequest(f"tensor '{min(twice)}' is given twice")
    return Asked({**asked.inputs, **tensors}, asked.options)


def scalar(text: str) -> Scalar:
    """Read the value of a parameter: a JSON number, boolean or string, else the text itself."""
    try:
        value = _loads(text)
    except ValueError:
        return text
    return value if isinstance(value, bool | int | float | str) else text


def _array(content: bytes) -> Array:
    try:
        array: Array = np.load(io.BytesIO(content), allow_pickle=False)
    except (ValueError, EOFError, OSError, MemoryError) as error:
        raise InvalidRequest(f"the input is no sound .npy: {error}") from None
    return array


def _json(content: bytes) -> Any:
    if not content.strip():
        raise InvalidRequest("the input is empty")
    try:
        return _loads(content)
    except RecursionError:
        raise InvalidRequest("the input is nested too deeply") from None
    except ValueError as error:
        raise InvalidRequest(f"the input is neither .npy nor JSON: {error}") from None


def _loads(text: str | bytes) -> Any:
    return json.loads(
        text, object_pairs_hook=_each_once, parse_constant=_refuse, parse_float=_finite
    )


def _each_once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"'{twice}' is given twice")
    return members


def _refuse(text: str) -> float:
    raise ValueError(f"{text} is no JSON: send it as .npy")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text} is more than a number can hold")
    return value


def _with_id(content: bytes) -> bytes:
    """Put an id into an OIP request without one: protocol and command line make it optional."""
    # Not parsed and written anew, which could change numbers.
    text = content.decode("utf-8-sig").lstrip().encode()
    return b'{"id":"%b",' % new_request_id().encode() + text[1:]


def _oip(content: bytes) -> Asked:
    read = RequestReader(sys.maxsize).read(content)
    if isinstance(read, Refusal):
        raise read.error
    options = _options(read.parameters)
    options["request_id"] = read.id
    if read.outputs:
        options["outputs"] = [want.name for want in read.outputs]
    return Asked(read.layout.arrays(read.body), options)


def _options(parameters: Parameters) -> RequestOptions:
    """Translate the wire's words; what a producer writes itself is left out."""
    options: RequestOptions = {"parameters": parameters.for_model()}
    if parameters.timeout:
        options["timeout"] = parameters.timeout / 1e6
    if parameters.reply_ttl is not None:
        options["reply_ttl"] = parameters.reply_ttl
    if parameters.priority is not None:
        options["priority"] = _lane(parameters.priority)
    return options


def _lane(priority: int) -> Priority:
    return "high" if priority == 1 else "low" if priority >= 3 else "normal"
