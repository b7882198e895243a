"""User code under mypy: what the annotations promise to those who build on them.

Never run; ``make lint`` checks it. A promise that breaks is an error here.
"""

from collections.abc import Iterator
from typing import Any, assert_type

import numpy as np
from numpy.typing import NDArray

from inferq import Handle, InferqError, Producer, QueueFull, Reply, TensorSpec
from inferq_worker import InferenceMetrics, Model, ModelServer, Worker, model


class Digits(Model):
    """A model as the README writes it: lists in the class body, predict by keyword."""

    inputs = [TensorSpec("pixels", "FP32", [64])]
    outputs = [TensorSpec("label", "INT64", [])]
    max_batch_size = 64

    def load(self) -> None:
        self.weights = np.zeros((64, 10), np.float32)

    def predict(self, pixels: NDArray[np.float32]) -> dict[str, NDArray[np.int64]]:
        return {"label": (pixels @ self.weights).argmax(axis=1)}


@model(inputs=[TensorSpec("x", "FP32", [])], outputs=[TensorSpec("y", "FP32", [])])
def double(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """A model as a decorated function."""
    return 2 * x


def ask(producer: Producer) -> None:
    """What a service does."""
    reply = producer.infer("digits", {"pixels": np.zeros(64)}, timeout=2.0, priority="high")
    assert_type(reply, Reply)
    assert_type(reply["label"], NDArray[Any])
    handle = producer.submit("digits", {"pixels": [0.0] * 64}, parameters={"top": 3})
    assert_type(handle, Handle)
    assert_type(handle.done(), bool)
    assert_type(handle.result(timeout=5), Reply)
    assert_type(handle.cancel(), bool)
    assert_type(producer.submit_many("digits", [{"pixels": 1}]), list[Handle])
    assert_type(producer.map("digits", [1, 2]), Iterator[Reply])
    both = producer.map("digits", [1, 2], return_errors=True)
    assert_type(both, Iterator[Reply | InferqError])
    assert_type(producer.result("digits", handle.id), Reply)


def wrong_options(producer: Producer) -> None:
    """An option that does not exist, or has another type, is found before it runs."""
    producer.infer("digits", 1, timeot=2)  # type: ignore[call-arg]
    producer.infer("digits", 1, timeout="2")  # type: ignore[arg-type]
    producer.infer("digits", 1, priority="urgent")  # type: ignore[arg-type]


def errors(error: QueueFull) -> None:
    """Errors carry what a caller acts on."""
    assert_type(error.retry_after_ms, int)
    assert_type(error.retryable, bool)


def serve() -> None:
    """A worker and a model server in a program of one's own."""
    assert_type(Worker(Digits(), name="digits").run(burst=True), int)
    Worker(double).stop()
    results, metrics = ModelServer("my-model", max_batch=16).predict(list(range(50)))
    assert_type(results, list[Any])
    assert_type(metrics, InferenceMetrics)
    assert_type(metrics.latency_ms, float)
