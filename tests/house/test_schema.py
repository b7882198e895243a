"""The published JSON Schemas are those of the models, and hold what the readers hold."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from inferq.contract import frames
from inferq.contract.description import ModelDescription
from inferq.contract.requests import Refusal, RequestReader
from inferq.contract.tensors import TensorSpec
from support.wire import frame_of, request, request_of

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "schema"
GOLDEN = ROOT / "tests" / "golden"


def validator(name: str) -> Draft202012Validator:
    return Draft202012Validator(json.loads((FOLDER / name).read_text(encoding="utf-8")))


def head_of(message: bytes) -> Any:
    """Return the JSON of a message: the whole, or the head of a frame."""
    if message.startswith(frames.MAGIC):
        message, _ = frames.split(message)
    return json.loads(message)


def golden(name: str) -> list[Any]:
    found = json.loads((GOLDEN / name).read_text(encoding="utf-8"))["vectors"]
    return [pytest.param(bytes.fromhex(each["hex"]), id=each["name"]) for each in found]


def test_the_files_are_what_the_generator_gives() -> None:
    """The published schemas are generated; a changed model changes them."""
    spec = importlib.util.spec_from_file_location("schema_generate", FOLDER / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name, text in module.files().items():
        assert (FOLDER / name).read_text(encoding="utf-8") == text


@pytest.mark.parametrize("name", ["request.json", "reply.json", "model.json"])
def test_the_schemas_are_schemas(name: str) -> None:
    """Each file is a valid schema of draft 2020-12 in which every member is described."""
    schema = json.loads((FOLDER / name).read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(schema)
    for each in [schema, *schema["$defs"].values()]:
        assert each["description"]
        for member, described in each["properties"].items():
            assert "description" in described or "$ref" in described, member


@pytest.mark.parametrize("message", golden("requests.json"))
def test_golden_requests_are_valid(message: bytes) -> None:
    """Every published request satisfies the request schema, in both forms."""
    validator("request.json").validate(head_of(message))


@pytest.mark.parametrize("message", golden("replies.json"))
def test_golden_replies_are_valid(message: bytes) -> None:
    """Every published reply satisfies the reply schema, errors included."""
    validator("reply.json").validate(head_of(message))


def test_published_models_are_valid() -> None:
    """What workers publish satisfies the model schema."""
    spec = TensorSpec("x", "FP32", [-1, 2])
    published = ModelDescription("m", (spec,), (spec,), 32, 1024, version="3").to_json()
    validator("model.json").validate(json.loads(published))


# Of wrong requests a schema sees those that are wrong by their structure.
BAD_REQUESTS = [
    request(id=None), request(id=7), request(id=""), request(id="{r1}"), request(id="a" * 129),
    b'{"id":"r1"}', b'{"inputs":[]}', request(inputs=[]), request(inputs={}), request(inputs=[7]),
    request_of(name=None), request_of(name=""), request_of(name="x" * 257),
    request_of(datatype=None), request_of(datatype="float32"),
    request_of(shape=None), request_of(shape=[]), request_of(shape=[-1, 2]),
    request_of(shape=[1, 0.5]), request_of(shape=[1] * 65), request_of(shape=[2**64]),
    request_of(data=None), request_of(data={"0": 1}),
    request(parameters=[]), request(parameters={"x": None}), request(parameters={"x": []}),
    request(parameters={"timeout": -1}), request(parameters={"timeout": 2**64}),
    request(parameters={"timeout": "5"}), request(parameters={"reply_to": "a b"}),
    request(parameters={"reply_to": "a" * 65}), request(parameters={"binary_data_output": 1}),
    request(outputs=["y"]), request(outputs=[{}]),
    frame_of(parameters={}), frame_of(data=[1, 2]), frame_of(parameters={"binary_data_size": -8}),
]  # fmt: skip


@pytest.mark.parametrize("message", BAD_REQUESTS)
def test_bad_requests_are_invalid(message: bytes) -> None:
    """What the schema refuses the reader refuses too: the two say the same."""
    assert not validator("request.json").is_valid(head_of(message))
    assert isinstance(RequestReader(1024**2).read(message), Refusal)


@pytest.mark.parametrize(
    "reply",
    [
        {},
        {"id": "r1", "model_name": "m"},
        {"id": "r1", "model_name": "m", "outputs": []},
        {"id": "r1", "model_name": "m", "error": "x"},
        {"id": "r1", "model_name": "m", "error": 5, "parameters": {"code": "expired"}},
        {"id": "r1", "model_name": "m", "error": "x", "parameters": {"code": 5}},
        {"id": "r1", "model_name": "m", "outputs": [{"name": "y", "datatype": "FP32"}]},
    ],
)
def test_bad_replies_are_invalid(reply: dict[str, Any]) -> None:
    """A reply is an answer or an error with its code, and never neither."""
    assert not validator("reply.json").is_valid(reply)


@pytest.mark.parametrize("member", ["metadata", "limits"])
def test_bad_models_are_invalid(member: str) -> None:
    """A model's description has tensors and limits."""
    spec = TensorSpec("x", "FP32", [2])
    published = json.loads(ModelDescription("m", (spec,), (spec,), 32, 1024).to_json())
    del published[member]
    assert not validator("model.json").is_valid(published)
