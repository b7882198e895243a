"""A request, read from and written in both wire forms.

:class:`InferRequest` is the JSON text in full; it also is the published JSON Schema. A
:class:`Request` is what a worker keeps of it: the tensors as raw bytes, whatever form they came
in. A message that is no valid request becomes a :class:`Refusal`, a value like any other, so that
one bad message is answered and its neighbours go on.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from pydantic_core import from_json, to_json

from inferq.contract import frames
from inferq.contract.errors import InferqError, InvalidRequest, TooLarge
from inferq.contract.keys import BOX_PATTERN, ID_PATTERN, check_box, check_id
from inferq.contract.layouts import Layout, LayoutMemo, TensorHead
from inferq.contract.tensors import Array, Buffer, from_json_data, naming_tensor, pack

Name = Annotated[str, StringConstraints(min_length=1, max_length=256)]
Uint = Annotated[int, Field(ge=0, le=2**64 - 1)]
# pydantic's pattern engine knows neither \Z nor a "$" that stops before a newline: there "$" is
# the very end.
RequestId = Annotated[str, StringConstraints(pattern=ID_PATTERN.replace(r"\Z", "$"))]
Box = Annotated[str, StringConstraints(pattern=BOX_PATTERN.replace(r"\Z", "$"))]
Datatype = Literal[
    "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64",
    "FP16", "FP32", "FP64", "BF16", "BYTES",
]  # fmt: skip

# How much of an oversized JSON message is read in search of its id.
_PEEK_BYTES = 64 * 1024


class _Wire(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="ignore", allow_inf_nan=False)


class Parameters(_Wire):
    """The scalars that travel with a request; those not named here go to the model.

    ``timeout`` is in microseconds and counts from ``submitted_ms`` (ms of Redis time), or from
    the moment a worker first sees the request; 0 means none. ``reply_ttl`` is in seconds.
    """

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, bool | int | float | str] = Field(init=False)

    timeout: Uint | None = None
    submitted_ms: Uint | None = None
    priority: Uint | None = None
    reply_to: Box | None = None
    reply_ttl: Uint | None = None
    traceparent: str | None = None
    tracestate: str | None = None
    binary_data_output: bool | None = None

    def for_model(self) -> dict[str, bool | int | float | str]:
        """Return the sender's own parameters: neither the contract's nor reserved ones."""
        extra = self.__pydantic_extra__
        if not extra:
            return {}
        return {name: value for name, value in extra.items() if not name.startswith("inferq_")}


_NO_PARAMETERS = Parameters()


class _Rest(_Wire):
    """The part of a head that differs from request to request."""

    model_config = ConfigDict(extra="forbid")

    id: RequestId
    parameters: Parameters = _NO_PARAMETERS


class InputParameters(_Wire):
    """``binary_data_size``: bytes of this tensor behind the head of a frame."""

    binary_data_size: Uint | None = None


class InputTensor(_Wire):
    """One input: ``shape`` leads with the batch dimension; ``data`` is nested or flat."""

    name: Name
    shape: list[Uint]
    datatype: Datatype
    parameters: InputParameters = InputParameters()
    data: list[Any] | None = None


class OutputParameters(_Wire):
    """``binary_data``: raw bytes (true) or JSON (false) for this output."""

    binary_data: bool | None = None


class RequestedOutput(_Wire):
    """One output the sender wants back."""

    name: Name
    parameters: OutputParameters = OutputParameters()


class InferRequest(_Wire):
    """An Open Inference Protocol inference request."""

    id: RequestId
    parameters: Parameters = _NO_PARAMETERS
    inputs: Annotated[list[InputTensor], Field(min_length=1)]
    outputs: list[RequestedOutput] | None = None


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
            return Refusal(None, error)
        found = self._memo.find(head)
        if found is not None:
            (layout, outputs), rest = found
            # Of another size it is wrong in a way that the slow path puts into words.
            if len(body) == layout.size:
                try:
                    known = _Rest.__pydantic_validator__.validate_json(rest)
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
            layout, raw = self._lay_out(parsed.inputs, body)
            layout.check(raw)
        except InvalidRequest as error:
            wanted = parsed.parameters
            return Refusal(Address(parsed.id, wanted.reply_to, wanted.reply_ttl), error)
        outputs = None
        if parsed.outputs is not None:
            outputs = tuple(Wanted(out.name, out.parameters.binary_data) for out in parsed.outputs)
        if is_frame:
            self._memo.learn(head, (layout, outputs))
        asked = parsed.parameters.binary_data_output
        binary = is_frame if asked is None else asked
        return Request(parsed.id, parsed.parameters, layout, raw, outputs, binary)

    def _lay_out(
        self, inputs: Sequence[InputTensor], body: memoryview
    ) -> tuple[Layout, memoryview]:
        """Bring all tensors into raw form; those that came in binary are not copied."""
        heads = []
        parts: list[Buffer] = []
        offset = 0
        for tensor in inputs:
            size = tensor.parameters.binary_data_size
            if (size is None) == (tensor.data is None):
                raise InvalidRequest(
                    f"tensor '{tensor.name}': expected either data or binary_data_size"
                )
            if not tensor.shape:
                raise InvalidRequest(f"tensor '{tensor.name}': shape [] has no batch dimension")
            if size is None:
                with naming_tensor(tensor.name):
                    data = from_json_data(tensor.datatype, tensor.shape, tensor.data)
                    parts.append(pack(data, tensor.datatype))
            else:
                if offset + size > len(body):
                    raise InvalidRequest(
                        f"tensor '{tensor.name}': the frame ends {offset + size - len(body)} "
                        "bytes before the tensor does"
                    )
                parts.append(body[offset : offset + size])
                offset += size
            heads.append(
                TensorHead(tensor.name, tensor.datatype, tuple(tensor.shape), len(parts[-1]))
            )
        if offset != len(body):
            raise InvalidRequest(f"{len(body) - offset} bytes are left after the last tensor")
        layout = self._layouts.layout(heads)
        return layout, body if offset == layout.size else memoryview(b"".join(parts))

    def _too_large(self, message: bytes) -> Refusal:
        """Find out who sent an oversized message without reading it as a whole."""
        error = TooLarge(
            f"message of {len(message)} bytes is over the limit of {self._max_message_bytes}"
        )
        head = message[:_PEEK_BYTES]
        if message.startswith(frames.MAGIC):
            try:
                head = frames.split(message)[0][:_PEEK_BYTES]
            except InvalidRequest:
                return Refusal(None, error)
        return Refusal(_salvage(head), error)


def _salvage(head: bytes) -> Address | None:
    """Find the address in a head that is otherwise broken, cut off or not OIP.

    A string that the cut may have shortened is not believed: it could be somebody else's id.
    """
    try:
        members = from_json(head, allow_partial=True)
    except ValueError:
        return None
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
    is_ttl = isinstance(ttl, int) and not isinstance(ttl, bool) and ttl >= 0
    return Address(request_id, reply_to, ttl if is_ttl else None)


def describe(error: ValidationError) -> str:
    """Put the first finding of a validation into one sentence that names the member."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    place = ""
    for step in first["loc"]:
        place += f"[{step}]" if isinstance(step, int) else f".{step}" if place else step
    if first["type"] == "json_invalid":
        return f"not JSON: {first['msg'].removeprefix('Invalid JSON: ')}"
    return f"{place or 'request'}: {first['msg'][0].lower()}{first['msg'][1:]}"


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
        InvalidRequest: a value that is no scalar or not finite, or a name the contract reserves.
    """
    checked: dict[str, bool | int | float | str] = {}
    for name, value in parameters.items():
        if name in Parameters.model_fields or name.startswith("inferq_"):
            raise InvalidRequest(f"parameter '{name}' is reserved by the wire contract")
        if not isinstance(value, bool | int | float | str):
            raise InvalidRequest(
                f"parameter '{name}' must be a string, number or boolean, "
                f"got {type(value).__name__}"
            )
        if isinstance(value, float) and not math.isfinite(value):
            raise InvalidRequest(f"parameter '{name}' must be finite")
        checked[name] = value
    return checked
