"""A request, read from and written in both wire forms.

A :class:`Request` is what a worker keeps of a message: the tensors as raw bytes, whatever form
they came in. A message that is no valid request becomes a :class:`Refusal`, a value like any
other, so that one bad message is answered and its neighbours go on.
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from pydantic import ValidationError
from pydantic_core import from_json, to_json

from inferq.contract import frames
from inferq.contract.errors import InferqError, InvalidRequest, TooLarge
from inferq.contract.keys import check_box, check_id
from inferq.contract.layouts import Layout, LayoutMemo
from inferq.contract.oip import InferRequest, Parameters, RequestRest, describe
from inferq.contract.tensors import Array, Buffer, pack

__all__ = [
    "Address",
    "InferRequest",
    "Parameters",
    "Refusal",
    "Request",
    "RequestReader",
    "RequestWriter",
    "Wanted",
    "check_parameters",
]

# How much of an oversized or broken message is read in search of its id.
_PEEK_BYTES: Final = 64 * 1024


class Address(NamedTuple):
    """Where the reply of a request goes."""

    id: str
    reply_to: str | None = None
    reply_ttl_s: int | None = None


class Refusal(NamedTuple):
    """A message that cannot run. Without an address nobody can be told: it goes to the dead list."""

    address: Address | None
    error: InferqError


class Wanted(NamedTuple):
    """One output the sender named, and whether it wants it in binary (``None``: as the request)."""

    name: str
    binary: bool | None


class Request(NamedTuple):
    """A request as the worker keeps it: validated, its tensors still raw bytes."""

    id: str
    parameters: Parameters
    layout: Layout
    body: Buffer
    outputs: tuple[Wanted, ...] | None
    binary: bool

    @property
    def address(self) -> Address:
        """Where its reply goes."""
        return Address(self.id, self.parameters.reply_to, self.parameters.reply_ttl)

    @property
    def rows(self) -> int:
        """Extent of the batch dimension."""
        return self.layout.rows


class RequestReader:
    """Reads messages; what it learned from one it uses for the next. Not for several threads."""

    def __init__(self, max_message_bytes: int) -> None:
        self._max_message_bytes = max_message_bytes
        self._layouts = LayoutMemo()
        self._memo: frames.HeadMemo[tuple[Layout, tuple[Wanted, ...] | None]] = frames.HeadMemo()

    def read(self, message: bytes) -> Request | Refusal:
        """Read one list element, in either form."""
        if len(message) > self._max_message_bytes:
            return self._too_large(message)
        if message.startswith(frames.MAGIC):
            return self._read_frame(message)
        if message.startswith(b"{"):
            return self._read_head(message, memoryview(b""), is_frame=False)
        return Refusal(None, InvalidRequest(f"neither JSON nor a frame: begins {message[:8]!r}"))

    def _read_frame(self, message: bytes) -> Request | Refusal:
        try:
            head, body = frames.split(message)
        except InvalidRequest as error:
            return Refusal(_salvage(_peek(message)), error)
        found = self._memo.find(head)
        if found is not None:
            (layout, outputs), rest = found
            # Of another size it is wrong in a way that the slow path puts into words.
            if len(body) == layout.size:
                try:
                    known = RequestRest.__pydantic_validator__.validate_json(rest)
                    layout.check(body)
                except (ValidationError, InvalidRequest):
                    pass
                else:
                    binary = known.parameters.binary_data_output is not False
                    return Request(known.id, known.parameters, layout, body, outputs, binary)
        return self._read_head(head, body, is_frame=True)

    def _read_head(self, head: bytes, body: memoryview, *, is_frame: bool) -> Request | Refusal:
        try:
            parsed = InferRequest.__pydantic_validator__.validate_json(head)
        except ValidationError as error:
            return Refusal(_salvage(head), InvalidRequest(describe(error)))
        try:
            layout, raw = self._layouts.lay_out(parsed.inputs, body)
        except InvalidRequest as error:
            wanted = parsed.parameters
            return Refusal(Address(parsed.id, wanted.reply_to, wanted.reply_ttl), error)
        outputs = None
        if parsed.outputs is not None:
            outputs = tuple(Wanted(out.name, out.parameters.binary_data) for out in parsed.outputs)
        # A tensor that came as JSON is data, and not a part of what later frames have in common.
        if is_frame and layout.size == len(body):
            self._memo.learn(head, (layout, outputs))
        asked = parsed.parameters.binary_data_output
        binary = is_frame if asked is None else asked
        return Request(parsed.id, parsed.parameters, layout, raw, outputs, binary)

    def _too_large(self, message: bytes) -> Refusal:
        """Find out who sent an oversized message without reading it as a whole."""
        error = TooLarge(
            f"message of {len(message)} bytes is over the limit of {self._max_message_bytes}"
        )
        return Refusal(_salvage(_peek(message)), error)


def _peek(message: bytes) -> bytes:
    """Return the beginning of a message's JSON."""
    if message.startswith(frames.MAGIC):
        return frames.peek(message, _PEEK_BYTES)
    return message[:_PEEK_BYTES]


def _salvage(head: bytes) -> Address | None:
    """Find the address in a head that is broken, cut off or not OIP.

    What the cut may have shortened is not believed: it could be somebody else's id.
    """
    try:
        members, is_whole = from_json(head), True
    except ValueError:
        members, is_whole = _readable_part(head), False
    if not isinstance(members, dict):
        return None
    try:
        request_id = check_id(members.get("id"))
    except InvalidRequest:
        return None
    parameters = members.get("parameters")
    if not isinstance(parameters, dict):
        return Address(request_id)
    try:
        reply_to = check_box(parameters.get("reply_to"))
    except InvalidRequest:
        reply_to = None
    ttl = parameters.get("reply_ttl")
    # Unlike a string, a number does not show that its end is missing.
    is_ttl = is_whole and isinstance(ttl, int) and not isinstance(ttl, bool) and ttl >= 0
    return Address(request_id, reply_to, ttl if is_ttl else None)


# The parser's errors end with the place where it stopped.
_PLACE: Final = re.compile(r"at line (\d+) column (\d+)\Z")


def _readable_part(head: bytes) -> Any:
    """Parse a head as far as it is JSON, without a string that breaks off; ``None`` at worst."""
    try:
        return from_json(head, allow_partial=True)
    except ValueError as error:
        place = _PLACE.search(str(error))
    if place is None:
        return None
    head = head[:_PEEK_BYTES]
    line, column = int(place[1]), int(place[2])
    lines = head.split(b"\n", line - 1)
    if len(lines) == line:
        head = head[: len(head) - len(lines[-1]) + column - 1]
    try:
        # Without its digits, for what stopped the parser may be a number of thousands of them.
        return from_json(head.rstrip(b"0123456789"), allow_partial=True)
    except ValueError:
        return None


class RequestWriter:
    """Writes requests as frames; the constant part of the head is built once per shape."""

    def __init__(self, limit: int = 512) -> None:
        self._limit = limit
        self._constant: dict[tuple[object, ...], bytes] = {}

    def write(
        self,
        request_id: str,
        tensors: Sequence[tuple[str, str, Array]],
        parameters: Mapping[str, bool | int | float | str],
        outputs: Sequence[str] | None = None,
    ) -> bytes:
        """Return the frame of one request.

        ``tensors`` holds (name, datatype, array), the array's dtype being the datatype's and its
        first dimension the batch. ``request_id`` has passed :func:`check_id`.
        """
        body = [pack(array, datatype) for _, datatype, array in tensors]
        key = (
            tuple(
                (name, datatype, array.shape, len(raw))
                for (name, datatype, array), raw in zip(tensors, body, strict=True)
            ),
            None if outputs is None else tuple(outputs),
        )
        constant = self._constant.get(key)
        if constant is None:
            if len(self._constant) >= self._limit:
                self._constant.clear()
            constant = self._constant[key] = _constant_part(*key)
        head = b'%b"id":"%b","parameters":%b}' % (
            constant,
            request_id.encode(),
            to_json(parameters),
        )
        return frames.join(head, body)


def _constant_part(
    heads: Sequence[tuple[str, str, tuple[int, ...], int]], outputs: Sequence[str] | None
) -> bytes:
    members: dict[str, Any] = {
        "inputs": [
            {
                "name": name,
                "datatype": datatype,
                "shape": shape,
                "parameters": {"binary_data_size": size},
            }
            for name, datatype, shape, size in heads
        ]
    }
    if outputs is not None:
        members["outputs"] = [{"name": name} for name in outputs]
    return to_json(members)[:-1] + b","


def check_parameters(parameters: Mapping[str, object]) -> dict[str, bool | int | float | str]:
    """Return a sender's own parameters if they may travel.

    Raises:
        InvalidRequest: a value that is no scalar, not finite, over 64 bits or not Unicode, or a
            name that is no string or that the contract reserves.
    """
    checked: dict[str, bool | int | float | str] = {}
    for name, value in parameters.items():
        if not isinstance(name, str) or not _is_unicode(name):
            raise InvalidRequest(f"parameter {name!r} must have a Unicode string as its name")
        if name in Parameters.model_fields or name.startswith("inferq_"):
            raise InvalidRequest(f"parameter '{name}' is reserved by the wire contract")
        if not isinstance(value, bool | int | float | str):
            raise InvalidRequest(
                f"parameter '{name}' must be a string, number or boolean, "
                f"got {type(value).__name__}"
            )
        if isinstance(value, float) and not math.isfinite(value):
            raise InvalidRequest(f"parameter '{name}' must be finite")
        if isinstance(value, int) and not -(2**63) <= value < 2**64:
            raise InvalidRequest(f"parameter '{name}' must fit into 64 bits")
        if isinstance(value, str) and not _is_unicode(value):
            raise InvalidRequest(f"parameter '{name}' must be valid Unicode")
        checked[name] = value
    return checked


def _is_unicode(text: str) -> bool:
    """Tell whether a string is without halves of surrogate pairs, which UTF-8 cannot hold."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
