"""Writes the JSON Schemas of wire contract 1 from the models that inferq itself reads with."""

# ruff: noqa: INP001 - a program beside its output, no package
import json
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema

from inferq.contract.description import PublishedModel
from inferq.contract.oip import InferReply, InferRequest

FOLDER: Final = Path(__file__).parent
SCHEMAS: Final[dict[str, tuple[type[BaseModel], str]]] = {
    "request.json": (InferRequest, "A request: a message in JSON, or the head of a frame."),
    "reply.json": (InferReply, "The value of a reply key in JSON, or the head of its frame."),
    "model.json": (PublishedModel, "The value of a model's description key."),
}


class _Plain(GenerateJsonSchema):
    """pydantic's generator without the titles it makes of Python's field names."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        del schema
        return False


def schema_of(name: str) -> dict[str, Any]:
    """Return one of :data:`SCHEMAS`."""
    model, title = SCHEMAS[name]
    made = model.model_json_schema(schema_generator=_Plain)
    made.pop("title")
    identity = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:inferq:wire:1:{name.removesuffix('.json')}",
        "title": title,
    }
    tidy: dict[str, Any] = _tidy({**identity, **made})
    return tidy


def _tidy(schema: Any) -> Any:
    """Leave out defaults that say nothing, and write docstrings as plain text."""
    if isinstance(schema, list):
        return [_tidy(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {name: value for name, value in schema.items() if name != "default" or _says_much(value)}
    if isinstance(kept.get("description"), str):
        kept["description"] = " ".join(kept["description"].replace("``", "`").split())
    return {name: value if name == "description" else _tidy(value) for name, value in kept.items()}


def _says_much(default: Any) -> bool:
    """Tell whether a default is more than the absence of something."""
    return any(default.values()) if isinstance(default, dict) else default is not None


def files() -> dict[str, str]:
    """Return each file's name and text."""
    return {name: json.dumps(schema_of(name), indent=2) + "\n" for name in SCHEMAS}


if __name__ == "__main__":
    for file, text in files().items():
        (FOLDER / file).write_text(text, encoding="utf-8")
