"""The golden vectors: other languages test against them, so these bytes never change."""

import importlib.util
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inferq.contract import errors
from inferq.contract.errors import InferqError
from inferq.contract.layouts import LayoutMemo, TensorHead
from inferq.contract.replies import Reply, ReplyReader, ReplyWriter
from inferq.contract.requests import Refusal, Request, RequestReader, RequestWriter, Wanted
from inferq.contract.tensors import DATATYPES, pack, unpack

FOLDER = Path(__file__).parents[1] / "golden"
Vector = dict[str, Any]


def vectors(name: str, *, written: bool = False) -> list[Any]:
    """Return the vectors of a file as parameters, on request only those our writers write."""
    found = json.loads((FOLDER / name).read_text(encoding="utf-8"))["vectors"]
    return [
        pytest.param(each, id=each["name"])
        for each in found
        if each.get("written", False) or not written
    ]


def message_of(vector: Vector) -> bytes:
    return bytes.fromhex(vector["hex"])


def arrays_of(tensors: list[Vector]) -> list[tuple[str, str, Any]]:
    return [
        (each["name"], each["datatype"], unpack(each["datatype"], each["shape"], bytes.fromhex(each["raw"])))
        for each in tensors
    ]  # fmt: skip


def raw_of(tensors: list[Vector]) -> bytes:
    return bytes.fromhex("".join(each["raw"] for each in tensors))


def by_the_page(message: bytes, list_name: str) -> list[tuple[str, str, list[int], bytes]]:
    """Take a message apart as the page describes it, without a line of inferq's."""
    body = b""
    if message[:4] == b"OIP1":
        (length,) = struct.unpack_from("<I", message, 4)
        message, body = message[8 : 8 + length], message[8 + length :]
    codes = {"BOOL": "?", "FP16": "<f2", "FP32": "<f4", "FP64": "<f8"}
    found = []
    for tensor in json.loads(message)[list_name]:
        size = tensor.get("parameters", {}).get("binary_data_size")
        if size is not None:
            raw, body = body[:size], body[size:]
        elif tensor["datatype"] == "BYTES":
            texts = [text.encode() for text in tensor["data"]]
            raw = b"".join(struct.pack("<I", len(text)) + text for text in texts)
        else:
            kind, bits = tensor["datatype"].rstrip("0123456789"), tensor["datatype"].lstrip("UINT")
            code = codes.get(tensor["datatype"]) or f"<{kind[0].lower()}{int(bits) // 8}"
            raw = np.array(tensor["data"], dtype=code).tobytes()
        found.append((tensor["name"], tensor["datatype"], tensor["shape"], raw))
    assert body == b""
    return found


def test_the_files_are_what_the_generator_gives() -> None:
    """The published vectors can be made again from the values they stand for, byte by byte."""
    spec = importlib.util.spec_from_file_location("golden_generate", FOLDER / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name, text in module.files().items():
        assert (FOLDER / name).read_text(encoding="utf-8") == text


@pytest.mark.parametrize("file", ["requests.json", "replies.json"])
@pytest.mark.parametrize("form", ["json", "frame"])
def test_every_datatype_has_its_vectors(file: str, form: str) -> None:
    """No datatype is without an example in a form that can hold it."""
    names = {parameter.id for parameter in vectors(file)}
    wanted = {f"{form}_{datatype.lower()}" for datatype in DATATYPES}
    assert wanted - names == ({"json_bf16"} if form == "json" else set())


@pytest.mark.parametrize("vector", vectors("requests.json"))
def test_requests_are_read(vector: Vector) -> None:
    """A request's bytes mean what the vector says, to a fresh reader and to one that remembers."""
    meaning = vector["request"]
    reader = RequestReader(1024**2)
    for _ in range(2):
        found = reader.read(message_of(vector))
        assert isinstance(found, Request)
        assert found.id == meaning["id"]
        assert found.parameters.model_dump(exclude_unset=True) == meaning["parameters"]
        assert [list(head[:3]) for head in found.layout.heads] == [
            [each["name"], each["datatype"], tuple(each["shape"])] for each in meaning["inputs"]
        ]
        assert bytes(found.body) == raw_of(meaning["inputs"])
        wanted = meaning["outputs"]
        assert found.outputs == (
            None
            if wanted is None
            else tuple(
                Wanted(each["name"], each.get("parameters", {}).get("binary_data"))
                for each in wanted
            )
        )
        is_binary = meaning["parameters"].get("binary_data_output", vector["form"] == "frame")
        assert found.binary is is_binary


@pytest.mark.parametrize("vector", vectors("requests.json", written=True))
def test_requests_are_written(vector: Vector) -> None:
    """Our writer gives exactly the published bytes."""
    meaning = vector["request"]
    outputs = meaning["outputs"]
    names = None if outputs is None else [each["name"] for each in outputs]
    arrays = arrays_of(meaning["inputs"])
    written = RequestWriter().write(meaning["id"], arrays, meaning["parameters"], names)
    assert written == message_of(vector)


@pytest.mark.parametrize("vector", vectors("requests.json"))
def test_requests_follow_the_page(vector: Vector) -> None:
    """A reader written from the page alone finds the same tensors."""
    assert by_the_page(message_of(vector), "inputs") == [
        (each["name"], each["datatype"], each["shape"], bytes.fromhex(each["raw"]))
        for each in vector["request"]["inputs"]
    ]


@pytest.mark.parametrize("vector", vectors("refusals.json"))
def test_refusals(vector: Vector) -> None:
    """Bytes that are no request are refused with the code and to the id that the vector says."""
    found = RequestReader(1024**2).read(message_of(vector))
    assert isinstance(found, Refusal)
    assert found.error.code == vector["refused"]["code"]
    assert (found.address.id if found.address else None) == vector["refused"]["id"]


SUCCESSES = [each for each in vectors("replies.json") if "reply" in each.values[0]]
ERRORS = [each for each in vectors("replies.json") if "error" in each.values[0]]


@pytest.mark.parametrize("vector", SUCCESSES)
def test_replies_are_read(vector: Vector) -> None:
    """A reply's bytes mean what the vector says, to a fresh reader and to one that remembers."""
    meaning = vector["reply"]
    reader = ReplyReader()
    for _ in range(2):
        found = reader.read(message_of(vector))
        assert isinstance(found, Reply)
        assert (found.id, found.model_name, found.model_version, found.parameters) == (
            meaning["id"], meaning["model_name"], meaning["model_version"], meaning["parameters"],
        )  # fmt: skip
        read = [
            (
                name,
                found.datatypes[name],
                list(array.shape),
                bytes(pack(array, found.datatypes[name])),
            )
            for name, array in found.items()
        ]
        assert read == by_the_page(message_of(vector), "outputs")
        assert b"".join(raw for *_, raw in read) == raw_of(meaning["outputs"])


@pytest.mark.parametrize("vector", SUCCESSES)
def test_replies_are_written(vector: Vector) -> None:
    """Our writer gives exactly the published bytes."""
    meaning = vector["reply"]
    body = [bytes.fromhex(each["raw"]) for each in meaning["outputs"]]
    layout = LayoutMemo().layout(
        [
            TensorHead(each["name"], each["datatype"], tuple(each["shape"]), len(raw))
            for each, raw in zip(meaning["outputs"], body, strict=True)
        ]
    )
    form = [each["binary"] for each in meaning["outputs"]]
    why = json.dumps(meaning["parameters"], separators=(",", ":")).encode()
    writer = ReplyWriter(meaning["model_name"], meaning["model_version"])
    assert writer.success(meaning["id"], layout, body, form, why) == message_of(vector)


@pytest.mark.parametrize("vector", ERRORS)
def test_errors_are_read(vector: Vector) -> None:
    """An error reply reads as the error of its code, with its sentence and its hint."""
    meaning = vector["error"]
    found = ReplyReader().read(message_of(vector))
    assert isinstance(found, InferqError)
    code = meaning["parameters"]["code"]
    assert type(found) is errors.WIRE_ERRORS.get(code, errors.AnswerError)
    assert str(found) == meaning["error"]
    if isinstance(found, errors.QueueFull):
        assert found.retry_after_ms == meaning["parameters"]["retry_after_ms"]


@pytest.mark.parametrize("vector", [each for each in ERRORS if each.values[0].get("written")])
def test_errors_are_written(vector: Vector) -> None:
    """Our writer gives exactly the published bytes, for every code of the contract."""
    meaning = vector["error"]
    extra = dict(meaning["parameters"])
    error = errors.from_wire(extra.pop("code"), meaning["error"], extra)
    assert ReplyWriter("digits", None).error("r1", error, extra) == message_of(vector)


def test_every_code_has_its_vector() -> None:
    """No code of the contract is without an example."""
    codes = {each.values[0]["error"]["parameters"]["code"] for each in ERRORS}
    assert codes >= errors.WIRE_ERRORS.keys()
