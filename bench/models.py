"""The model that scenarios serve: one small matrix product a batch, so that the queue is timed."""

import numpy as np
from numpy.typing import NDArray

from inferq_worker import Model, TensorSpec

FEATURES = 64


class Matrix(Model):
    """Multiplies rows by a fixed matrix, ``x`` FP32 [64] to ``product`` FP32 [64]."""

    inputs = [TensorSpec("x", "FP32", [FEATURES])]
    outputs = [TensorSpec("product", "FP32", [FEATURES])]
    max_batch_size = 64

    def load(self) -> None:
        """Make the matrix."""
        self._weights = weights()

    def predict(self, x: NDArray[np.float32]) -> dict[str, NDArray[np.float32]]:
        """Return ``product`` float32 ``[N, 64]`` for ``x`` ``[N, 64]``."""
        return {"product": x @ self._weights}


def weights() -> NDArray[np.float32]:
    """Return the matrix, float32 ``[64, 64]``, always the same.

    Whole numbers, small enough that every sum is exact: a row's product has the same bytes
    whatever batch it was in, and a reply can be compared with them.
    """
    return _whole_numbers(seed=1, rows=FEATURES)


def inputs() -> NDArray[np.float32]:
    """Return the rows that scenarios send over and over, float32 ``[1000, 64]``, always the same."""
    return _whole_numbers(seed=2, rows=1_000)


def answers() -> list[bytes]:
    """Return the raw bytes of the right product for each row of :func:`inputs`."""
    return [row.tobytes() for row in inputs() @ weights()]


def _whole_numbers(*, seed: int, rows: int) -> NDArray[np.float32]:
    drawn = np.random.default_rng(seed).integers(-8, 9, size=(rows, FEATURES))
    return drawn.astype(np.float32)
