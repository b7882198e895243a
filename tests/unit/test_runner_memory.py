"""Out of memory: batches are cut until they fit, and stay cut."""

from typing import Any

import numpy as np
import pytest

from inferq.contract.errors import ModelError
from inferq_worker import Model, TensorSpec
from inferq_worker.model import describe_model
from inferq_worker.runner import Runner, is_out_of_memory
from support.batches import MAX_MESSAGE_BYTES, arrays, error, request


class Small(Model):
    """Doubles; its memory holds ``fits`` rows, and what it says beyond is ``complaint``."""

    inputs = [TensorSpec("x", "FP32", [])]
    outputs = [TensorSpec("y", "FP32", [])]
    max_batch_size = 16

    def __init__(self, fits: int, complaint: BaseException) -> None:
        self.fits = fits
        self.complaint = complaint
        self.sizes: list[int] = []

    def predict(self, x: Any) -> Any:
        self.sizes.append(len(x))
        if len(x) > self.fits:
            raise self.complaint
        return 2 * x


class OutOfMemoryError(RuntimeError):
    """As PyTorch's is called."""


def runner(model: Model) -> Runner:
    return Runner(model, describe_model(model, name="m", max_message_bytes=MAX_MESSAGE_BYTES))


@pytest.mark.parametrize(
    "complaint",
    [MemoryError(), OutOfMemoryError("x"), RuntimeError("CUDA error: Out of Memory")],
    ids=repr,
)
def test_cut_and_remembered(complaint: BaseException) -> None:
    """A batch that does not fit is halved until it does, all are answered, later ones start cut."""
    model = Small(4, complaint)
    running = runner(model)
    requests = [request(f"r{n}", ("x", "FP32", [n])) for n in range(16)]
    outcomes, _ = running.run(requests)
    assert [arrays(each)["y"].tolist() for each in outcomes] == [[2 * n] for n in range(16)]
    assert model.sizes == [16, 8, 4, 4, 4, 4]
    model.sizes.clear()
    running.run(requests)
    assert model.sizes == [4, 4, 4, 4]


def test_rows_of_one_request_are_cut() -> None:
    """One request that alone is too large is run in pieces and joined again, in order."""
    model = Small(3, MemoryError())
    (outcome,), _ = runner(model).run([request("r", ("x", "FP32", list(range(16))))])
    assert np.array_equal(arrays(outcome)["y"], 2 * np.arange(16, dtype=np.float32))


def test_one_row_that_does_not_fit() -> None:
    """A single row that does not fit is an error of its request, and ends the cutting."""
    model = Small(0, MemoryError("no"))
    outcomes, _ = runner(model).run([request(f"r{n}", ("x", "FP32", [n])) for n in range(2)])
    for outcome in outcomes:
        assert isinstance(error(outcome), ModelError)
        assert "MemoryError: no" in str(error(outcome))


def test_other_errors_are_not_about_memory() -> None:
    """An ordinary exception, or none, does not lower the cap."""
    assert not is_out_of_memory(ValueError("memory of a goldfish"))
    assert not is_out_of_memory(None)


def test_poison_teaches_nothing() -> None:
    """A row that fails alone, whatever it says of memory, does not make later batches smaller."""
    model = Poisoned(16, MemoryError("I say so"))
    running = runner(model)
    requests = [request(f"r{n}", ("x", "FP32", [n])) for n in range(16)]
    outcomes, _ = running.run(requests)
    assert isinstance(error(outcomes[5]), ModelError)
    assert all(arrays(outcomes[n])["y"] for n in range(1, 16) if n != 5)
    model.sizes.clear()
    running.run([each for n, each in enumerate(requests) if n != 5])
    assert model.sizes == [15]


class Poisoned(Small):
    """Has memory for all, but for the row 5."""

    def predict(self, x: Any) -> Any:
        self.sizes.append(len(x))
        if (x == 5).any():
            raise self.complaint
        return 2 * x


def test_words_of_a_request_are_not_believed() -> None:
    """An exception whose text may quote a request is no sign of full memory."""
    assert not is_out_of_memory(ValueError("cannot parse 'out of memory'"))
