"""A reply, written by a worker and read by whoever waits for it, in both wire forms."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from pydantic_core import from_json, to_json

from inferq.contract import frames
from inferq.contract.errors import InferqError, InvalidRequest, from_wire, sentence
from inferq.contract.layouts import Layout, LayoutMemo, TensorHead
from inferq.contract.oip import InferReply, describe
from inferq.contract.requests import Wanted
from inferq.contract.tensors import Array, Buffer, to_json_data, unpack


class Reply(Mapping[str, Array]):
    """The outputs of one request by name, with the reasons why it looks as it does.

    Arrays are read-only views of the message. ``single`` tells that the request was one row
    without a batch dimension; then the outputs have none either.

    Attributes:
        id: the request's id.
        model_name: the model that answered.
        model_version: its version, ``None`` for a model without versions.
        parameters: ``queue_ms``, ``compute_ms``, ``batch_size`` (requests), ``batch_rows``,
            ``batch_reason``, ``attempt`` and ``worker``, and what the model added.
    """

    __slots__ = ("_body", "_layout", "_single", "id", "model_name", "model_version", "parameters")

    def __init__(self, members: Mapping[str, Any], layout: Layout, body: Buffer) -> None:
        self.id: str | None = members.get("id")
        self.model_name: str | None = members.get("model_name")
        self.model_version: str | None = members.get("model_version")
        self.parameters: dict[str, Any] = members.get("parameters") or {}
        self._layout = layout
        self._body = body
        self._single = False

    def __getitem__(self, name: str) -> Array:
        for head, (start, end) in zip(self._layout.heads, self._layout.spans, strict=True):
            if head.name == name:
                array = unpack(head.datatype, head.shape, memoryview(self._body)[start:end])
                return array[0] if self._single else array
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return (head.name for head in self._layout.heads)

    def __len__(self) -> int:
        return len(self._layout.heads)

    def __repr__(self) -> str:
        shown = ", ".join(
            f"{head.name}: {head.datatype}{list(head.shape[1:] if self._single else head.shape)}"
            for head in self._layout.heads
        )
        return f"<Reply {self.id} of {self.model_name}: {shown}>"

    @property
    def datatypes(self) -> dict[str, str]:
        """OIP datatype of each output."""
        return {head.name: head.datatype for head in self._layout.heads}

    def as_single(self) -> "Reply":
        """Drop the batch dimension from now on, for a request that had none; returns itself."""
        self._single = True
        return self

    def to_oip(self) -> dict[str, Any]:
        """Return the reply as an OIP response object in JSON form.

        Raises:
            InvalidRequest: an output has no JSON form (NaN, BF16, bytes that are not UTF-8).
        """
        outputs = []
        for head, (start, end) in zip(self._layout.heads, self._layout.spans, strict=True):
            array = unpack(head.datatype, head.shape, memoryview(self._body)[start:end])
            outputs.append(_json_output(head, array))
        members = {
            "model_name": self.model_name,
            "model_version": self.model_version,
            "id": self.id,
            "parameters": self.parameters,
            "outputs": outputs,
        }
        return {name: value for name, value in members.items() if value is not None}


def _json_output(head: TensorHead, array: Array) -> dict[str, Any]:
    return {
        "name": head.name,
        "datatype": head.datatype,
        "shape": head.shape,
        "data": to_json_data(array, head.datatype),
    }


class ReplyWriter:
    """Writes one model's replies; the constant part of a head is built once per layout."""

    def __init__(self, model_name: str, model_version: str | None, limit: int = 512) -> None:
        self._limit = limit
        self._constant: dict[tuple[Layout, tuple[bool, ...]], bytes] = {}
        self._identity: dict[str, Any] = {"model_name": model_name}
        if model_version is not None:
            self._identity["model_version"] = model_version

    def success(
        self,
        request_id: str,
        layout: Layout,
        body: Sequence[Buffer],
        form: Sequence[bool],
        parameters: bytes,
    ) -> bytes:
        """Return the reply of a request that ran.

        ``body`` holds the raw bytes of each tensor of ``layout``, ``form`` whether each travels
        in binary; ``parameters`` is a JSON object. ``request_id`` has passed ``check_id``.

        Raises:
            InvalidRequest: a tensor that travels in JSON has no JSON form.
        """
        if all(form):
            constant = self._constant_part(layout, tuple(form))
            head = b'%b"id":"%b","parameters":%b}' % (constant, request_id.encode(), parameters)
            return frames.join(head, body)
        outputs = []
        for head_of, raw, is_binary in zip(layout.heads, body, form, strict=True):
            if is_binary:
                outputs.append(_binary_output(head_of))
            else:
                array = unpack(head_of.datatype, head_of.shape, raw)
                outputs.append(_json_output(head_of, array))
        members = to_json({"outputs": outputs, **self._identity})[:-1]
        head = b'%b,"id":"%b","parameters":%b}' % (members, request_id.encode(), parameters)
        if not any(form):
            return head
        binary = [raw for raw, is_binary in zip(body, form, strict=True) if is_binary]
        return frames.join(head, binary)

    def error(
        self, request_id: str, error: InferqError, parameters: Mapping[str, Any] | None = None
    ) -> bytes:
        """Return the error reply of a request; always JSON."""
        members = {
            "id": request_id,
            **self._identity,
            "error": sentence(error),
            "parameters": {"code": error.code, **(parameters or {})},
        }
        return to_json(members)

    def _constant_part(self, layout: Layout, form: tuple[bool, ...]) -> bytes:
        key = (layout, form)
        constant = self._constant.get(key)
        if constant is None:
            if len(self._constant) >= self._limit:
                self._constant.clear()
            outputs = [_binary_output(head) for head in layout.heads]
            members = to_json({"outputs": outputs, **self._identity})
            constant = self._constant[key] = members[:-1] + b","
        return constant


def _binary_output(head: TensorHead) -> dict[str, Any]:
    return {
        "name": head.name,
        "datatype": head.datatype,
        "shape": head.shape,
        "parameters": {"binary_data_size": head.size},
    }


def output_form(wanted: Sequence[Wanted], *, binary: bool) -> tuple[bool, ...]:
    """Tell for each wanted output whether it travels in binary; ``binary`` is the default."""
    return tuple(binary if want.binary is None else want.binary for want in wanted)


class ReplyReader:
    """Reads replies; what it learned from one it uses for the next. Not for several threads."""

    def __init__(self) -> None:
        self._layouts = LayoutMemo()
        self._memo: frames.HeadMemo[tuple[Layout, dict[str, Any]]] = frames.HeadMemo()

    def read(self, message: bytes) -> Reply | InferqError:
        """Read the value of a reply key; an error reply is returned, not raised.

        Raises:
            InvalidRequest: the value is no reply of this contract.
        """
        if not message.startswith(frames.MAGIC):
            return self._read_head(message, memoryview(b""))
        head, body = frames.split(message)
        found = self._memo.find(head)
        if found is not None:
            (layout, constant), rest = found
            members = _rest_of(rest)
            # Whatever is wrong, the slow path puts it into words.
            if members is not None and len(body) == layout.size:
                layout.check(body)
                return Reply({**constant, **members}, layout, body)
        return self._read_head(head, body)

    def _read_head(self, head: bytes, body: memoryview) -> Reply | InferqError:
        try:
            parsed = InferReply.__pydantic_validator__.validate_json(head)
        except ValidationError as error:
            raise InvalidRequest(f"not a reply: {describe(error)}") from None
        if parsed.error is not None:
            return from_wire(parsed.parameters.get("code"), parsed.error, parsed.parameters)
        if parsed.outputs is None:
            raise InvalidRequest("not a reply: neither outputs nor an error")
        layout, raw = self._layouts.lay_out(parsed.outputs, body)
        constant = {
            "model_name": parsed.model_name,
            "model_version": parsed.model_version,
            "parameters": {},
        }
        if layout.size == len(body):
            self._memo.learn(head, (layout, constant))
        members = {"id": parsed.id, "parameters": parsed.parameters}
        return Reply({**constant, **members}, layout, raw)


def _rest_of(rest: bytes) -> dict[str, Any] | None:
    """Parse the part of a reply's head that is its own; ``None`` if it is not just that."""
    try:
        members: dict[str, Any] = from_json(rest)
    except ValueError:
        return None
    if not members.keys() <= {"id", "parameters"}:
        return None
    is_plain = type(members.get("id")) is str and type(members.get("parameters", {})) is dict
    return members if is_plain else None
