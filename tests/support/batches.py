"""Requests as a worker holds them, made from arrays, and what a runner made of them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from inferq.contract.errors import InferqError
from inferq.contract.requests import Request, RequestReader, RequestWriter
from inferq.contract.tensors import dtype_of
from inferq_worker import Model, TensorSpec
from inferq_worker.model import describe_model
from inferq_worker.runner import Answer, ModelCall, Outcome, Runner

MAX_MESSAGE_BYTES = 1024**2

_WRITER = RequestWriter()
# One for all, as in a worker: requests of equal tensors share a layout.
_READER = RequestReader(MAX_MESSAGE_BYTES)

Tensor = tuple[str, str, object]


def message(
    request_id: str,
    *tensors: Tensor,
    parameters: Mapping[str, bool | int | float | str] | None = None,
    outputs: Sequence[str] | None = None,
) -> bytes:
    """Write the frame of a request; a tensor is (name, datatype, rows)."""
    arrays = [
        (name, datatype, np.asarray(rows, dtype=dtype_of(datatype)))
        for name, datatype, rows in tensors
    ]
    return _WRITER.write(request_id, arrays, parameters or {}, outputs)


def request(
    request_id: str,
    *tensors: Tensor,
    parameters: Mapping[str, bool | int | float | str] | None = None,
    outputs: Sequence[str] | None = None,
) -> Request:
    """Build a request as a worker reads it; see :func:`message`."""
    return read(message(request_id, *tensors, parameters=parameters, outputs=outputs))


def read(text: bytes) -> Request:
    """Read a message that is a request."""
    found = _READER.read(text)
    assert isinstance(found, Request), found
    return found


def run(
    model: Model, requests: Sequence[Request], *, max_batch_size: int | None = None
) -> tuple[list[Outcome], list[ModelCall]]:
    """Run checked requests through a model."""
    if max_batch_size is not None:
        model.max_batch_size = max_batch_size
    description = describe_model(model, name="m", max_message_bytes=MAX_MESSAGE_BYTES)
    for each in requests:
        description.check(each.layout)
    return Runner(model, description).run(requests)


def arrays(outcome: Outcome) -> dict[str, Any]:
    """Return the outputs of a request that was answered."""
    assert isinstance(outcome.result, Answer), outcome.result
    return outcome.result.layout.arrays(b"".join(outcome.result.body))


def error(outcome: Outcome) -> InferqError:
    """Return the error of a request that was not."""
    assert isinstance(outcome.result, InferqError), outcome.result
    return outcome.result


class Echo(Model):
    """Answers each row with itself, and notes what it was called with."""

    inputs = [TensorSpec("x", "FP32", [2])]
    outputs = [TensorSpec("y", "FP32", [2])]
    max_batch_size = 64

    def __init__(self) -> None:
        self.calls: list[list[Any]] = []

    def predict(self, x: Any) -> Any:
        self.calls.append(x.tolist())
        return {"y": x}


def row(value: float, rows: int = 1) -> Request:
    """Build a request to :class:`Echo` of equal rows, ``value`` and half more."""
    return request(f"r{value}", ("x", "FP32", np.tile([value, value + 0.5], (rows, 1))))
