"""Real workers in threads of the test, and small models for them to serve.

A model that waits does so at a gate that the test opens: requests are held in the queue without
a sleep.
"""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, Self

import numpy as np
import pytest
import redis

from inferq.contract.keys import Keys
from inferq.contract.tensors import Array
from inferq_worker import Model, TensorSpec
from inferq_worker.model import describe_model, model_name
from inferq_worker.settings import WorkerSettings
from inferq_worker.worker import Worker
from support.waiting import until

_PATIENCE_S = 30.0


class Echo(Model):
    """Gives each row back."""

    inputs = [TensorSpec("x", "FP32", [2])]
    outputs = [TensorSpec("y", "FP32", [2])]

    def predict(self, x: Array) -> Array:
        return x


class Doubler(Model):
    """Doubles numbers."""

    inputs = [TensorSpec("x", "INT64", [])]
    outputs = [TensorSpec("y", "INT64", [])]

    def predict(self, x: Array) -> Array:
        return x * 2


class Sums(Model):
    """Adds two tensors row by row, and counts the row's elements."""

    inputs = [TensorSpec("a", "INT64", [3]), TensorSpec("b", "INT64", [3])]
    outputs = [TensorSpec("sum", "INT64", [3]), TensorSpec("size", "INT32", [])]

    def predict(self, a: Array, b: Array) -> dict[str, Array]:
        return {"sum": a + b, "size": np.full(len(a), 3, np.int32)}


class Raiser(Model):
    """Doubles numbers, and raises on negative ones."""

    inputs = Doubler.inputs
    outputs = Doubler.outputs

    def predict(self, x: Array) -> Array:
        if (x < 0).any():
            raise ValueError("below zero")
        return x * 2


class Gate(Model):
    """Doubles numbers once the gate is open; notes what it was given and in which company.

    Attributes:
        seen: all rows, in the order in which the model got them.
        sizes: rows of each call.
        entered: released once by each call, before it waits.
        on_call: called by each call, before it waits.
    """

    inputs = Doubler.inputs
    outputs = Doubler.outputs

    def __init__(self, max_batch_size: int = 1) -> None:
        self.max_batch_size = max_batch_size
        self.seen: list[int] = []
        self.sizes: list[int] = []
        self.entered = threading.Semaphore(0)
        self.on_call: Callable[[], object] = lambda: None
        self._open = threading.Event()

    def predict(self, x: Array) -> Array:
        self.seen += x.tolist()
        self.sizes.append(len(x))
        self.on_call()
        self.entered.release()
        assert self._open.wait(_PATIENCE_S), "the test left its gate closed"
        return x * 2

    def open(self) -> None:
        """Let all calls pass from now on."""
        self._open.set()

    def close(self) -> None:
        """Hold the next calls."""
        self._open.clear()

    def wait_for_call(self) -> None:
        """Return when one more call has begun."""
        assert self.entered.acquire(timeout=_PATIENCE_S), "the model was not called"


class Workers:
    """Serves models on one server under one prefix, until the end of the ``with`` block."""

    def __init__(self, url: str, prefix: str) -> None:
        self._url = url
        self._prefix = prefix
        self._running: list[tuple[Worker, Model, Future[int]]] = []

    def keys(self, model: Model) -> Keys:
        return Keys(self._prefix, model_name(model))

    def publish(self, model: Model) -> None:
        """Make a model known as a worker would, without one."""
        settings = self._settings()
        name = model_name(model)
        described = describe_model(model, name=name, max_message_bytes=settings.max_message_bytes)
        with redis.Redis.from_url(self._url) as client:
            client.set(self.keys(model).description, described.to_json())
            client.sadd(f"{self._prefix}:models", name)

    def serve(self, model: Model, **settings: Any) -> Worker:
        """Start a worker and return when it has joined the others of its model."""
        worker = Worker(model, self._settings(**settings))
        keys = self.keys(model)
        with redis.Redis.from_url(self._url) as client:
            before = client.zcard(keys.workers)
            ended: Future[int] = Future()
            thread = threading.Thread(target=_run, args=(worker, ended), daemon=True)
            thread.start()
            self._running.append((worker, model, ended))
            until(lambda: ended.done() or client.zcard(keys.workers) > before)
        if ended.done():
            # Raised here, and so not once more by stop().
            self._running.pop()
            ended.result()
        return worker

    def stop(self) -> None:
        """Stop all workers, gates opened, and raise what one of them raised."""
        running, self._running = self._running, []
        for worker, model, _ in running:
            worker.stop()
            if isinstance(model, Gate):
                model.open()
        for _, _, ended in running:
            ended.result(_PATIENCE_S)

    def _settings(self, **settings: Any) -> WorkerSettings:
        return WorkerSettings(redis_url=self._url, prefix=self._prefix, **settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _run(worker: Worker, ended: Future[int]) -> None:
    try:
        ended.set_result(worker.run())
    except BaseException as error:  # noqa: BLE001 - raised again in the test's own thread
        ended.set_exception(error)


@pytest.fixture
def workers(redis_url: str, prefix: str) -> Iterator[Workers]:
    """Serve models on the run's server under the test's prefix."""
    with Workers(redis_url, prefix) as started:
        yield started
