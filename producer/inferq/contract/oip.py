"""The JSON objects of the contract: Open Inference Protocol requests and replies, as models.

They are what readers validate with, and what the published JSON Schema is generated from. Members
that are not named here are ignored, so that a newer program may add some.
"""

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    StringConstraints,
    ValidationError,
    WithJsonSchema,
)
from pydantic_core import CoreSchema, core_schema

from inferq.contract.keys import BOX_PATTERN, ID_PATTERN
from inferq.contract.tensors import MAX_DIMENSIONS

# More would be a flood; a model with a tensor for each column of a table stays far below.
MAX_TENSORS = 1_024
_LONGEST_STEP = 80
_MOST_FINDINGS = 1_000

Name = Annotated[str, StringConstraints(min_length=1, max_length=256)]
Uint = Annotated[int, Field(ge=0, le=2**64 - 1)]
# pydantic's pattern engine knows neither \Z nor a "$" that stops before a newline: there "$" is
# the very end.
RequestId = Annotated[
    str,
    StringConstraints(pattern=ID_PATTERN.replace(r"\Z", "$")),
    Field(description="Names the request and its reply, for as long as the reply is kept."),
]
Box = Annotated[str, StringConstraints(pattern=BOX_PATTERN.replace(r"\Z", "$"))]
Shape = Annotated[
    list[Uint],
    Field(
        min_length=1,
        max_length=MAX_DIMENSIONS,
        description="Extents; the first is the batch dimension, the number of rows.",
    ),
]
Datatype = Literal[
    "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64",
    "FP16", "FP32", "FP64", "BF16", "BYTES",
]  # fmt: skip


class _OneSentence:
    """Words for a value that is no scalar; pydantic would report each of the four types."""

    @staticmethod
    def __get_pydantic_core_schema__(source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.custom_error_schema(
            handler(source),
            "scalar",
            custom_error_message="Input should be a string, a finite number or a boolean",
        )


Scalar = Annotated[bool | int | float | str, _OneSentence]


class Wire(BaseModel):
    """An object that travels: nothing in it is converted, and numbers in it are finite."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore", allow_inf_nan=False)


class Parameters(Wire):
    """The scalars that travel with a request; those not named here go to the model.

    ``timeout`` is in microseconds and counts from ``submitted_ms`` (ms of Redis time), or from
    the moment a worker first sees the request; 0 means none. ``reply_ttl`` is in seconds. Names
    that begin with ``inferq_`` are reserved.
    """

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Scalar] = Field(init=False)

    timeout: Uint | None = Field(
        default=None,
        description="Microseconds until the model must have started; 0 means no limit.",
    )
    submitted_ms: Uint | None = Field(
        default=None, description="When the request was enqueued, in ms of Redis time."
    )
    priority: Uint | None = Field(
        default=None,
        description="Triton's priority. It chooses a lane over HTTP; on a list the lane decides.",
    )
    reply_to: Box | None = Field(
        default=None, description="Inbox that the id is pushed to when the reply is written."
    )
    reply_ttl: Uint | None = Field(
        default=None,
        description="Seconds the reply is kept, between 60 and the worker's setting.",
    )
    traceparent: str | None = Field(default=None, description="W3C trace context.")
    tracestate: str | None = Field(default=None, description="W3C trace context.")
    binary_data_output: bool | None = Field(
        default=None,
        description="Form of outputs that say nothing themselves: raw bytes (true) or JSON "
        "(false); by default the request's own form.",
    )

    def for_model(self) -> dict[str, bool | int | float | str]:
        """Return the sender's own parameters: neither the contract's nor reserved ones."""
        extra = self.__pydantic_extra__
        if not extra:
            return {}
        return {name: value for name, value in extra.items() if not name.startswith("inferq_")}


NO_PARAMETERS = Parameters()


class TensorParameters(Wire):
    """Says that a tensor travels as raw bytes behind the head of a frame."""

    binary_data_size: Uint | None = Field(
        default=None, description="Bytes of this tensor in the frame, in the order of the tensors."
    )


class Tensor(Wire):
    """One tensor of a request or a reply: its data as JSON, or the size of its raw bytes."""

    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [
                {"required": ["data"]},
                {
                    "required": ["parameters"],
                    "properties": {"parameters": {"required": ["binary_data_size"]}},
                },
            ]
        }
    )

    name: Name = Field(description="The tensor's name in the model's description.")
    datatype: Datatype = Field(description="Open Inference Protocol datatype, or BF16.")
    shape: Shape
    parameters: TensorParameters = TensorParameters()
    data: list[Any] | None = Field(
        default=None,
        description="Elements in row-major order, nested in the shape or flat: numbers, "
        "booleans for BOOL, strings for BYTES. BF16 has no JSON form.",
    )


class OutputParameters(Wire):
    """How one output should travel."""

    binary_data: bool | None = Field(
        default=None, description="Raw bytes (true) or JSON (false) for this output."
    )


class RequestedOutput(Wire):
    """One output the sender wants back."""

    name: Name = Field(description="The output's name in the model's description.")
    parameters: OutputParameters = OutputParameters()


class InferRequest(Wire):
    """An Open Inference Protocol inference request: a message in JSON, or the head of a frame."""

    id: RequestId
    parameters: Parameters = NO_PARAMETERS
    inputs: Annotated[list[Tensor], Field(min_length=1, max_length=MAX_TENSORS)] = Field(
        description="The model's inputs, each once, in any order."
    )
    outputs: Annotated[list[RequestedOutput], Field(max_length=MAX_TENSORS)] | None = Field(
        default=None, description="The outputs to return; all of them if absent or empty."
    )


class RequestRest(Wire):
    """The part of a request's head that differs from one to the next."""

    model_config = ConfigDict(extra="forbid")

    id: RequestId
    parameters: Parameters = NO_PARAMETERS


_COUNT = {"type": "integer", "minimum": 0}
_REPLY_PARAMETERS = {
    "type": "object",
    "description": "Why the reply looks as it does, and what the model added.",
    "properties": {
        "code": {
            "type": "string",
            "description": "Of an error reply: what went wrong, as one of the contract's codes.",
        },
        "retry_after_ms": _COUNT | {"description": "Of queue_full: when to try again, in ms."},
        "queue_ms": _COUNT
        | {"description": "From submitted_ms to the start of the model; absent without it."},
        "compute_ms": {
            "type": "number",
            "minimum": 0,
            "description": "Time of the model calls this request was in.",
        },
        "batch_size": _COUNT | {"description": "Requests that shared its model call."},
        "batch_rows": _COUNT | {"description": "Rows of its model call."},
        "batch_reason": {
            "type": "string",
            "description": "What closed the batch: full, idle, window, deadline, suspect, drain.",
        },
        "attempt": _COUNT | {"description": "How often the request was begun, from 1."},
        "worker": {"type": "string", "description": "Who answered."},
    },
}


class InferReply(Wire):
    """The value of a reply key: an Open Inference Protocol response, or an error in its place."""

    model_config = ConfigDict(
        protected_namespaces=(),
        json_schema_extra={
            "oneOf": [
                {"required": ["id", "model_name", "outputs"]},
                {"required": ["id", "model_name", "error", "parameters"]},
            ]
        },
    )

    id: str | None = Field(default=None, description="The request's id.")
    model_name: str | None = Field(default=None, description="The model that answered.")
    model_version: str | None = Field(
        default=None, description="Its version; absent for a model without versions."
    )
    parameters: Annotated[dict[str, Any], WithJsonSchema(_REPLY_PARAMETERS)] = {}
    outputs: Annotated[list[Tensor], Field(min_length=1, max_length=MAX_TENSORS)] | None = Field(
        default=None, description="The outputs, in the order the request named them."
    )
    error: str | None = Field(default=None, description="What went wrong, in one sentence.")


def describe(error: ValidationError) -> str:
    """Put the first finding of a validation into one sentence that names the member."""
    if error.error_count() > _MOST_FINDINGS:
        # Listing millions of them, to show one, would take gigabytes.
        return f"message: more than {_MOST_FINDINGS:,} members are wrong"
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    place = ""
    for step in first["loc"]:
        if isinstance(step, int):
            place += f"[{step}]"
        else:
            # A member's name may be somebody's joke.
            word = step if len(step) <= _LONGEST_STEP else step[: _LONGEST_STEP - 3] + "..."
            place += f".{word}" if place else word
    if first["type"] == "json_invalid":
        return f"not JSON: {first['msg'].removeprefix('Invalid JSON: ')}"
    place = place or "message"
    if first["type"] == "value_error":
        # A check of our own, whose sentence is whole.
        return f"{place}: {first['msg'].removeprefix('Value error, ')}"
    finding = first["msg"].replace(" after validation", "")
    return f"{place}: {finding[0].lower()}{finding[1:]}"
