"""Writes the golden vectors: messages of wire contract 1 as bytes, and what they mean.

Run it only to add vectors: bytes that are published once never change. What a vector means comes
from the values below, not from reading the message, so that a reader can be tested against it.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from inferq.contract import errors
from inferq.contract.errors import InvalidRequest, QueueFull
from inferq.contract.layouts import LayoutMemo, TensorHead
from inferq.contract.replies import ReplyWriter
from inferq.contract.requests import RequestWriter
from inferq.contract.tensors import DATATYPES, dtype_of, pack, to_json_data

FOLDER = Path(__file__).parent
Named = tuple[str, str, NDArray[Any]]
Vector = dict[str, Any]

LONGEST_ID = "A.z_9:-" + "0" * 121
WHY = {"queue_ms": 3, "compute_ms": 1.25, "batch_size": 2, "batch_rows": 3, "batch_reason": "full",
       "attempt": 1, "worker": "host-7-c0ffee"}  # fmt: skip
SENTENCES = {
    "invalid_request": "tensor 'x': expected FP32, got INT8",
    "too_large": "message of 17000000 bytes is over the limit of 16777216",
    "model_error": "the model raised ValueError: no face in the picture",
    "crashed": "the request was running when its worker died, 4 times; given up",
    "expired": "timeout ran out 12 ms before the model could start",
    "cancelled": "the request was withdrawn before its result was written",
    "queue_full": "the queue of digits holds 1000000 requests, its limit is 1000000",
    "not_found": "no worker has ever published a model 'digits' here",
    "unavailable": "no answer from Redis at redis://localhost:6379/0",
    "no_reply": "no reply within 2 s",
}


def example(datatype: str, *, finite: bool) -> NDArray[Any]:
    """Return two rows of two elements that show a datatype's edges."""
    if datatype == "BYTES":
        texts = (
            [b"", "é".encode(), b'"id":"', b"a\nb"] if finite else [b"", b"\xff\x00", b"{", b"ab"]
        )
        array = np.empty(4, dtype=object)
        array[:] = texts
        return array.reshape(2, 2)
    if datatype == "BOOL":
        return np.array([[True, False], [False, True]])
    if datatype == "BF16":
        return np.array([[0.0, 1.5], [-2.0, np.nan]], dtype=ml_dtypes.bfloat16)
    dtype = dtype_of(datatype)
    if dtype.kind == "f":
        edges = np.finfo(dtype)
        last = edges.tiny if finite else np.nan
        return np.array([[0.1, -0.0], [edges.max, last]], dtype=dtype)
    limits = np.iinfo(dtype)
    return np.array([[limits.min, limits.max], [1, 2]], dtype=dtype)


def in_reply(datatype: str) -> NDArray[Any]:
    """Return an example whose JSON every version of our serialiser spells alike: no exponents."""
    if datatype in {"FP32", "FP64"}:
        return np.array([[0.1, -0.0], [1.5, 65_504]], dtype=dtype_of(datatype))
    return example(datatype, finite=True)


def compact(value: Any) -> bytes:
    """Write JSON without blanks."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def described(name: str, datatype: str, array: NDArray[Any]) -> dict[str, Any]:
    """Say what a tensor is: its raw bytes, and its elements where JSON can hold them."""
    raw = bytes(pack(array, datatype))
    said = {"name": name, "datatype": datatype, "shape": list(array.shape), "raw": raw.hex()}
    try:
        return {**said, "data": to_json_data(array, datatype)}
    except InvalidRequest:
        return said


def in_json(name: str, datatype: str, array: NDArray[Any]) -> dict[str, Any]:
    """Write a tensor as the JSON form has it."""
    data = to_json_data(array, datatype)
    return {"name": name, "datatype": datatype, "shape": list(array.shape), "data": data}


def request_json(
    name: str, tensors: Sequence[Named], *, request_id: str = "r1", **members: Any
) -> Vector:
    """Make a request in JSON; ``members`` stand beside ``id`` and ``inputs``."""
    message = {"id": request_id, **members, "inputs": [in_json(*tensor) for tensor in tensors]}
    meaning = {
        "id": request_id,
        "parameters": members.get("parameters", {}),
        "outputs": members.get("outputs"),
        "inputs": [described(*tensor) for tensor in tensors],
    }
    return {"name": name, "form": "json", "hex": compact(message).hex(), "request": meaning}


def request_frame(
    name: str,
    tensors: Sequence[Named],
    *,
    request_id: str = "r1",
    parameters: dict[str, Any] | None = None,
    outputs: list[str] | None = None,
) -> Vector:
    """Make a request as a frame, exactly as inferq's own writer does."""
    message = RequestWriter().write(request_id, tensors, parameters or {}, outputs)
    meaning: dict[str, Any] = {
        "id": request_id,
        "parameters": parameters or {},
        "outputs": None if outputs is None else [{"name": each} for each in outputs],
        "inputs": [described(*tensor) for tensor in tensors],
    }
    return {
        "name": name,
        "form": "frame",
        "written": True,
        "hex": message.hex(),
        "request": meaning,
    }


def by_hand(name: str, head: bytes, *raw: bytes, tensors: Sequence[Named]) -> Vector:
    """Make a legal frame that inferq's writer would write otherwise; its id is r1."""
    message = b"OIP1" + len(head).to_bytes(4, "little") + head + b"".join(raw)
    inputs = [described(*tensor) for tensor in tensors]
    meaning: dict[str, Any] = {"id": "r1", "parameters": {}, "outputs": None, "inputs": inputs}
    return {"name": name, "form": "frame", "hex": message.hex(), "request": meaning}


def refused(name: str, message: bytes, *, code: str, told: str | None) -> Vector:
    """Make a message that is no request: ``told`` is the id that its reply goes to, if any."""
    return {"name": name, "hex": message.hex(), "refused": {"code": code, "id": told}}


def several_tensors() -> list[Named]:
    """Return three rows of three tensors, one of them without elements."""
    texts = np.empty(3, dtype=object)
    texts[:] = [b"one", b"", b"three"]
    return [
        ("pixels", "FP32", np.arange(12, dtype="<f4").reshape(3, 2, 2) / 4),
        ("text", "BYTES", texts),
        ("nothing", "INT16", np.zeros((3, 0), dtype="<i2")),
    ]


def requests() -> list[Vector]:
    """Return the vectors of requests."""
    row: list[Named] = [("x", "FP32", np.array([[1, 2.5]], dtype="<f4"))]
    no_rows: list[Named] = [("x", "FP32", np.zeros((0, 2), dtype="<f4"))]
    parameters = {
        "timeout": 2_000_000, "submitted_ms": 1_700_000_000_000, "priority": 1, "reply_to": "box-1",
        "reply_ttl": 60, "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "tracestate": "a=1", "binary_data_output": False, "beam": 4, "fast": True, "p": 0.5, "é": "\n",
    }  # fmt: skip
    wanted = [{"name": "label"}, {"name": "scores", "parameters": {"binary_data": True}}]
    nested = {**in_json(*row[0]), "data": [[1, 2.5]]}
    size = {"name": "x", "datatype": "FP32", "shape": [1, 2], "parameters": {"binary_data_size": 8}}
    raw = bytes(pack(row[0][2], "FP32"))
    mixed: list[Named] = [("a", "UINT8", np.array([7], dtype="u1")), *row]
    return [
        request_json("json_smallest", row),
        *(
            request_json(f"json_{datatype.lower()}", [("x", datatype, example(datatype, finite=True))])
            for datatype in DATATYPES
            if datatype != "BF16"
        ),
        request_json("json_several_tensors_and_rows", several_tensors()),
        request_json("json_no_rows", no_rows),
        request_json("json_longest_id", row, request_id=LONGEST_ID),
        request_json("json_parameters", row, parameters=parameters),
        request_json("json_outputs", row, outputs=wanted),
        {**request_json("json_nested_data", row),
         "hex": compact({"inputs": [nested], "id": "r1", "ignored": {"id": "r2"}}).hex()},
        request_frame("frame_smallest", row),
        *(
            request_frame(f"frame_{datatype.lower()}", [("x", datatype, example(datatype, finite=False))])
            for datatype in DATATYPES
        ),
        request_frame("frame_several_tensors_and_rows", several_tensors()),
        request_frame("frame_no_rows", no_rows),
        request_frame("frame_longest_id", row, request_id=LONGEST_ID),
        request_frame("frame_parameters", row, parameters=parameters),
        request_frame("frame_outputs", row, outputs=["label", "scores"]),
        by_hand("frame_without_padding", compact({"id": "r1", "inputs": [size]}), raw, tensors=row),
        by_hand("frame_with_line_breaks", json.dumps({"id": "r1", "inputs": [size]}, indent=1).encode(),
                raw, tensors=row),
        by_hand("frame_with_a_tensor_in_json", compact({"inputs": [in_json(*mixed[0]), size], "id": "r1"}),
                raw, tensors=mixed),
    ]  # fmt: skip


def refusals() -> list[Vector]:
    """Return the vectors of messages that are no requests."""
    size = {"name": "x", "datatype": "FP32", "shape": [1, 2], "parameters": {"binary_data_size": 8}}
    whole = compact({"id": "r1", "inputs": [size]})
    short = b"OIP1" + len(whole).to_bytes(4, "little") + whole + b"\0" * 7
    data = {"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}
    return [
        refused("junk", b"\x80\x04junk", code="invalid_request", told=None),
        refused("unknown_version", b"OIP2" + whole, code="invalid_request", told=None),
        refused("not_json", b'{"id":"r1",nope}', code="invalid_request", told="r1"),
        refused("cut_within_the_id", b'{"id":"r1', code="invalid_request", told=None),
        refused("no_id", compact({"inputs": [data]}), code="invalid_request", told=None),
        refused("id_with_newline", compact({"id": "r1\n", "inputs": [data]}),
                code="invalid_request", told=None),
        refused("no_inputs", compact({"id": "r1", "inputs": []}), code="invalid_request", told="r1"),
        refused("unknown_datatype", compact({"id": "r1", "inputs": [{**data, "datatype": "F4"}]}),
                code="invalid_request", told="r1"),
        refused("too_few_elements", compact({"id": "r1", "inputs": [{**data, "shape": [1, 3]}]}),
                code="invalid_request", told="r1"),
        refused("nan", compact({"id": "r1", "inputs": [{**data, "data": [1, float("nan")]}]}),
                code="invalid_request", told="r1"),
        refused("doubled_tensor", compact({"id": "r1", "inputs": [data, data]}),
                code="invalid_request", told="r1"),
        refused("frame_shorter_than_its_head", b"OIP1\xff\xff\xff\xff" + whole,
                code="invalid_request", told="r1"),
        refused("frame_shorter_than_its_tensor", short, code="invalid_request", told="r1"),
        refused("frame_longer_than_its_tensors", short + b"\0\0", code="invalid_request", told="r1"),
    ]  # fmt: skip


def reply(
    name: str,
    tensors: Sequence[Named],
    form: Sequence[bool],
    *,
    version: str | None = None,
    parameters: dict[str, Any] | None = None,
) -> Vector:
    """Make a successful reply of model ``digits`` to r1; ``form`` says which outputs are binary."""
    body = [bytes(pack(array, datatype)) for _, datatype, array in tensors]
    heads = [
        TensorHead(output, datatype, array.shape, len(raw))
        for (output, datatype, array), raw in zip(tensors, body, strict=True)
    ]
    layout = LayoutMemo().layout(heads)
    why = WHY if parameters is None else parameters
    message = ReplyWriter("digits", version).success("r1", layout, body, form, compact(why))
    outputs = [
        {**described(*tensor), "binary": binary}
        for tensor, binary in zip(tensors, form, strict=True)
    ]
    meaning = {"id": "r1", "model_name": "digits", "model_version": version, "parameters": why}
    kind = "frame" if any(form) else "json"
    written = {"name": name, "form": kind, "written": True, "hex": message.hex()}
    return {**written, "reply": {**meaning, "outputs": outputs}}


def error(code: str) -> Vector:
    """Make the error reply of a code."""
    raised = errors.from_wire(code, SENTENCES[code], {})
    extra = {"retry_after_ms": 1_000} if isinstance(raised, QueueFull) else {}
    message = ReplyWriter("digits", None).error("r1", raised, extra)
    meaning = {"id": "r1", "model_name": "digits", "error": SENTENCES[code],
               "parameters": {"code": code, **extra}}  # fmt: skip
    written = {"name": f"error_{code}", "form": "json", "written": True, "hex": message.hex()}
    return {**written, "error": meaning}


def replies() -> list[Vector]:
    """Return the vectors of replies."""
    label: list[Named] = [("label", "INT64", np.array([7], dtype="<i8"))]
    several = several_tensors()
    unknown = {"id": "r1", "model_name": "digits", "error": "x", "parameters": {"code": "new_code"}}
    return [
        reply("json_smallest", label, [False]),
        reply("json_version", label, [False], version="3"),
        *(
            reply(f"json_{datatype.lower()}", [("y", datatype, in_reply(datatype))], [False])
            for datatype in DATATYPES
            if datatype != "BF16"
        ),
        reply("json_several_outputs_and_rows", several, [False] * 3),
        reply("frame_smallest", label, [True]),
        reply("frame_version", label, [True], version="3"),
        *(
            reply(f"frame_{datatype.lower()}", [("y", datatype, example(datatype, finite=False))], [True])
            for datatype in DATATYPES
        ),
        reply("frame_several_outputs_and_rows", several, [True] * 3),
        reply("frame_of_both_forms", several, [True, False, False]),
        reply("frame_no_rows", [("label", "INT64", np.zeros(0, dtype="<i8"))], [True], parameters={}),
        *(error(code) for code in SENTENCES),
        {"name": "error_of_a_newer_version", "form": "json", "hex": compact(unknown).hex(),
         "error": unknown},
    ]  # fmt: skip


def files() -> dict[str, str]:
    """Return each file's name and text, a vector to a line."""
    made = {"requests.json": requests(), "refusals.json": refusals(), "replies.json": replies()}
    texts = {}
    for name, vectors in made.items():
        lines = ",\n".join(json.dumps(vector, ensure_ascii=False) for vector in vectors)
        texts[name] = '{"contract": 1, "vectors": [\n' + lines + "\n]}\n"
    return texts


if __name__ == "__main__":
    for name, text in files().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
