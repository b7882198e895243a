"""The demo's model: which digit is on an 8x8 image of handwriting.

An ordinary model, served from any folder by ``inferq worker inferq_worker.demo.digits:Digits``.
"""

from collections.abc import Sequence
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

from inferq_worker import Model, TensorSpec

Layer = tuple[NDArray[np.float32], NDArray[np.float32]]
"""Weights ``[inputs, outputs]`` and bias ``[outputs]`` of one layer."""


class Digits(Model):
    """A small network: per batch three matrix products, whatever the number of images."""

    inputs = [TensorSpec("pixels", "FP32", [64])]
    outputs = [TensorSpec("label", "INT64", [])]
    max_batch_size = 64

    def load(self) -> None:
        """Read the weights, from wherever the package is installed."""
        self._layers = read_layers()

    def predict(self, pixels: NDArray[np.float32]) -> dict[str, NDArray[np.int64]]:
        """Return ``label`` int64 ``[N]`` for ``pixels`` ``[N, 64]`` with ink from 0 to 16."""
        return {"label": labels_of(pixels, self._layers)}


def read_layers() -> list[Layer]:
    """Read the trained layers, first to last."""
    path = files("inferq_worker.demo") / "digits_weights.npz"
    with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
        count = len(archive.files) // 2
        return [(archive[f"weights_{n}"], archive[f"bias_{n}"]) for n in range(count)]


def labels_of(pixels: NDArray[np.float32], layers: Sequence[Layer]) -> NDArray[np.int64]:
    """Run ``pixels`` ``[N, 64]`` through the layers and return the likeliest digits, int64 ``[N]``.

    A function of its own, so that training measures the very arithmetic that is served.
    """
    signal = pixels
    for weights, bias in layers[:-1]:
        signal = np.maximum(signal @ weights + bias, 0)
    weights, bias = layers[-1]
    labels: NDArray[np.int64] = np.argmax(signal @ weights + bias, axis=1).astype(np.int64)
    return labels
