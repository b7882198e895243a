"""The course's model server, on the worker's own batching."""

from typing import Any

import numpy as np
import pytest

from inferq.contract.errors import (
    InferqError,
    InvalidRequest,
    InvalidSetting,
    ModelError,
    ModelUnfit,
)
from inferq_worker import InferenceMetrics, Model, ModelServer, TensorSpec, model
from support.batches import Echo


def test_course_example(capsys: pytest.CaptureFixture[str]) -> None:
    """The example of the course runs as it is written there, and prints its three lines."""
    server = ModelServer("my-model", max_batch=16)
    inputs = list(range(50))
    results, metrics = server.predict(inputs)
    print(f"Processed {len(results)} predictions")  # noqa: T201 - the course prints
    print(f"Latency: {metrics.latency_ms:.1f}ms/request")  # noqa: T201
    print(f"Throughput: {metrics.throughput_rps:.0f} req/s")  # noqa: T201
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Processed 50 predictions"
    assert [line.split(":")[0] for line in lines[1:]] == ["Latency", "Throughput"]
    assert results == [f"pred_{x}" for x in range(50)]
    assert metrics.batch_size == 16
    assert metrics.throughput_rps == pytest.approx(1000 / metrics.latency_ms)
    # Four calls of ten milliseconds; a sleep never ends early.
    assert metrics.latency_ms * 50 >= 40


def test_batches() -> None:
    """Fifty rows at 16 a batch are four calls, filled in order."""
    echo = Echo()
    server = ModelServer("my-model", 16, echo)
    _, metrics = server.predict([[n, n] for n in range(50)])
    assert [len(call) for call in echo.calls] == [16, 16, 16, 2]
    assert [row[0] for call in echo.calls for row in call] == list(range(50))
    assert metrics.batch_size == 16


def test_batch_size_of_few_rows() -> None:
    """The batch size reported is that of the largest call, not the limit."""
    _, metrics = ModelServer("m", 16, Echo()).predict([[1, 2]] * 3)
    assert metrics.batch_size == 3


def test_empty_input() -> None:
    """No rows give no results and metrics of zeros, without a model call."""
    echo = Echo()
    server = ModelServer("m", 16, echo)
    assert server.predict([]) == ([], InferenceMetrics(0.0, 0.0, 0))
    assert server.predict(()) == ([], InferenceMetrics(0.0, 0.0, 0))
    assert echo.calls == []
    assert server.request_count == 0


@pytest.mark.parametrize("max_batch", [0, -1, True, "16", 1.5, None])
def test_max_batch_that_is_none(max_batch: Any) -> None:
    """A maximum that is no whole number from 1 is a ValueError that shows it, at once."""
    with pytest.raises(ValueError, match="max_batch must be a whole number from 1") as caught:
        ModelServer("m", max_batch=max_batch)
    assert isinstance(caught.value, InvalidSetting)
    assert repr(max_batch) in str(caught.value)


@pytest.mark.parametrize("inputs", ["text", {"x": 1}, np.zeros((2, 2)), 5, None, iter([])])
def test_inputs_that_are_no_list(inputs: Any) -> None:
    """Anything but a list or tuple of rows is a TypeError that names what came."""
    with pytest.raises(TypeError, match=f"list of rows, got {type(inputs).__name__}"):
        ModelServer("m", 16, Echo()).predict(inputs)


def test_name_that_is_not_allowed() -> None:
    """A model server takes no name that a worker would refuse."""
    with pytest.raises(ValueError, match="model name 'my model' is not allowed"):
        ModelServer("my model")


def test_rows_of_several_tensors() -> None:
    """Rows of a model with several tensors are mappings; each result is one too, without a batch."""

    @model(
        inputs=[TensorSpec("a", "FP32", []), TensorSpec("words", "BYTES", [2])],
        outputs=[TensorSpec("twice", "FP32", []), TensorSpec("first", "BYTES", [])],
    )
    def split(a: Any, words: Any) -> Any:
        return {"first": words[:, 0], "twice": a * 2}

    results, _ = ModelServer("m", 8, split).predict(
        [{"a": 1.5, "words": ["p", "q"]}, {"words": [b"r", b"s"], "a": 2}]
    )
    assert results == [{"twice": 3.0, "first": b"p"}, {"twice": 4.0, "first": b"r"}]


def test_rows_of_different_shapes() -> None:
    """Rows whose variable dimensions differ run in calls of their own and come back in order."""
    ragged = Echo()
    ragged.inputs = [TensorSpec("x", "FP32", [-1])]
    ragged.outputs = [TensorSpec("y", "FP32", [-1])]
    results, _ = ModelServer("m", 8, ragged).predict([[1], [2, 2], [3]])
    assert [result["y"].tolist() for result in results] == [[1], [2, 2], [3]]
    assert ragged.calls == [[[1], [3]], [[2, 2]]]


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ([1, 2, 3], "row 2: tensor 'x': expected shape"),
        ("text", "row 2: tensor 'x': FP32 cannot be made from"),
        ([[1, 2], [3, 4]], "row 2: expected one row, got a batch of 2"),
        ({"y": [1, 2]}, "row 2: unknown tensor 'y'"),
        ([1e300, 0], "row 2: tensor 'x': a number is out of the range of FP32"),
    ],
)
def test_row_that_does_not_fit(value: Any, sentence: str) -> None:
    """A row that does not fit the model is refused with its index before anything runs."""
    echo = Echo()
    with pytest.raises(InvalidRequest) as caught:
        ModelServer("m", 16, echo).predict([[1, 2], [1, 2], value])
    assert str(caught.value).startswith(sentence)
    assert echo.calls == []


def test_model_that_raises() -> None:
    """What the model raises becomes a ModelError with the index of the row and the cause."""

    class Picky(Echo):
        def predict(self, x: Any) -> Any:
            if (x[:, 0] == 37).any():
                raise RuntimeError("not 37")
            return super().predict(x)

    server = ModelServer("m", 16, Picky())
    with pytest.raises(ModelError, match="row 37: the model raised RuntimeError: not 37") as caught:
        server.predict([[n, n] for n in range(50)])
    assert caught.value.row == 37
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert server.request_count == 0


def test_wrong_row_count() -> None:
    """A model that returns another number of rows raises, and no row gets another's result."""

    class Short(Echo):
        def predict(self, x: Any) -> Any:
            return {"y": x[1:]}

    with pytest.raises(ModelError, match=r"row 0: .* returned 0 rows for a batch of 1"):
        ModelServer("m", 16, Short()).predict([[1, 2], [3, 4]])


def test_request_count() -> None:
    """The server counts the rows it has answered, over all calls."""
    server = ModelServer("m", 4, Echo())
    server.predict([[1, 2]] * 5)
    server.predict([[1, 2]] * 2)
    assert server.request_count == 7


def test_model_is_loaded_once() -> None:
    """The model is loaded by the constructor, and not again by each call."""

    class Loading(Echo):
        loads = 0

        def load(self) -> None:
            self.loads += 1

    loading = Loading()
    server = ModelServer("m", 4, loading)
    server.predict([[1, 2]])
    server.predict([[1, 2]])
    assert loading.loads == 1


def test_model_that_does_not_load() -> None:
    """A model that cannot be loaded is refused with a sentence by the constructor."""

    class Broken(Echo):
        def load(self) -> None:
            raise FileNotFoundError("weights.npy")

    with pytest.raises(ModelUnfit, match="model Broken does not load: FileNotFoundError: weights"):
        ModelServer("m", 4, Broken())


def test_model_without_tensors() -> None:
    """A model that declares nothing is refused by the constructor."""
    with pytest.raises(ModelUnfit, match="inputs lists no tensor"):
        ModelServer("m", 4, Model())


def test_errors_are_inferq_errors() -> None:
    """Whatever is wrong with a call but its type can be caught as one class."""
    with pytest.raises(InferqError):
        ModelServer("m", 4, Echo()).predict([None])
