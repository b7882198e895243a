"""Model serving with batching in one process: inputs in, batches through the model, results out.

The smallest thing that shows what batching does, and what the course this project grew from calls
a model server. It batches with the worker's own code: the same rows make the same model calls.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from inferq.contract.errors import InferqError, InvalidRequest, InvalidSetting, ModelError
from inferq.contract.keys import check_model
from inferq.contract.layouts import LayoutMemo, TensorHead
from inferq.contract.requests import Parameters, Request
from inferq.contract.tensors import Array, TensorSpec, pack
from inferq_worker.model import Model, describe_model, load_model
from inferq_worker.runner import Answer, Runner
from inferq_worker.settings import MAX_MESSAGE_BYTES

_SIMULATED_S = 0.01


@dataclass(frozen=True)
class InferenceMetrics:
    """What one call of :meth:`ModelServer.predict` cost.

    Attributes:
        latency_ms: duration of the call divided by its rows, in ms.
        throughput_rps: rows per second.
        batch_size: rows in the largest model call.
    """

    latency_ms: float
    throughput_rps: float
    batch_size: int


class SimulatedModel(Model):
    """Ten milliseconds for a batch of any size, and ``pred_`` before each input."""

    inputs = [TensorSpec("x", "BYTES", [])]
    outputs = [TensorSpec("prediction", "BYTES", [])]

    def predict(self, x: Array) -> dict[str, Array]:
        """Take as long as a small model would."""
        time.sleep(_SIMULATED_S)
        return {"prediction": np.array([b"pred_" + each for each in x], dtype=object)}


class ModelServer:
    """Serves one model to its own process, in batches of at most ``max_batch`` rows.

    Args:
        model_name: the model's name.
        max_batch: rows in one model call, at least 1.
        model: a :class:`Model` instance or a decorated function; it is loaded here. Without one a
            :class:`SimulatedModel` answers ``pred_{x}`` for any ``x``.

    Attributes:
        model_name, max_batch: as given.
        request_count: rows answered so far.

    Raises:
        InvalidSetting: ``max_batch`` is not a whole number from 1 (a ``ValueError``).
        InvalidRequest: the name is not allowed (a ``ValueError``).
        ModelUnfit: the model is unsound or does not load.
    """

    def __init__(self, model_name: str, max_batch: int = 32, model: Model | None = None) -> None:
        if isinstance(max_batch, bool) or not isinstance(max_batch, int) or max_batch < 1:
            raise InvalidSetting(f"max_batch must be a whole number from 1, got {max_batch!r}")
        self.model_name = check_model(model_name)
        self.max_batch = max_batch
        self.request_count = 0
        self._is_simulated = model is None
        served = SimulatedModel() if model is None else model
        self._description = replace(
            describe_model(served, name=model_name, max_message_bytes=MAX_MESSAGE_BYTES),
            max_batch_size=max_batch,
        )
        load_model(served)
        self._runner = Runner(served, self._description)
        self._layouts = LayoutMemo()

    def predict(self, inputs: Sequence[Any]) -> tuple[list[Any], InferenceMetrics]:
        """Answer rows in batches; return one result per row, in order, and what it cost.

        Args:
            inputs: a list or tuple of rows: for a model, arrays (or mappings of tensor name to
                array) without a batch dimension, each answered by a dict of arrays; for the
                simulated model, anything, answered by a string. No rows give no results, and no
                model call.

        Raises:
            TypeError: ``inputs`` is no list or tuple.
            InvalidRequest: a row does not fit the model; the message says which.
            ModelError: the model failed; ``row`` is the index of the row at fault.
        """
        if not isinstance(inputs, list | tuple):
            raise TypeError(f"inputs must be a list of rows, got {type(inputs).__name__}")
        if not inputs:
            return [], InferenceMetrics(0.0, 0.0, 0)
        started_s = time.perf_counter()
        outcomes, calls = self._runner.run([self._request(*each) for each in enumerate(inputs)])
        results = [self._result(row, outcome.result) for row, outcome in enumerate(outcomes)]
        elapsed_s = time.perf_counter() - started_s
        self.request_count += len(inputs)
        return results, InferenceMetrics(
            latency_ms=elapsed_s * 1000 / len(inputs),
            throughput_rps=len(inputs) / elapsed_s,
            batch_size=max(call.rows for call in calls),
        )

    def _request(self, row: int, value: Any) -> Request:
        """Bring one row into the form that a worker gets it in."""
        try:
            bound = self._description.bind(str(value) if self._is_simulated else value)
        except InvalidRequest as error:
            raise InvalidRequest(f"row {row}: {error}") from None
        if not bound.single:
            raise InvalidRequest(f"row {row}: expected one row, got a batch of {bound.rows}")
        body = [pack(array, datatype) for _, datatype, array in bound.tensors]
        layout = self._layouts.layout(
            [
                TensorHead(name, datatype, array.shape, len(piece))
                for (name, datatype, array), piece in zip(bound.tensors, body, strict=True)
            ]
        )
        raw = memoryview(b"".join(body))
        return Request(str(row), Parameters(), layout, raw, outputs=None, binary=True)

    def _result(self, row: int, result: Answer | InferqError) -> Any:
        if isinstance(result, InferqError):
            raise ModelError(f"row {row}: {result}", row=row) from result.__cause__
        arrays = result.layout.arrays(b"".join(result.body))
        outputs = {name: array[0] for name, array in arrays.items()}
        return outputs["prediction"].decode() if self._is_simulated else outputs
