"""Train the demo's digit model and write what ``inferq_worker.demo`` ships.

The split comes first and from a seed alone, so that no result can move an image from one part to
the other. Nothing is written unless the model reads the held-out part well enough.
"""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inferq_worker.demo.digits import Layer, labels_of

IMAGES = 1_797
TRAINING_IMAGES = 1_000
SPLIT_SEED = 1_797
MINIMUM_ACCURACY = 0.97
INK = 16.0
"""The darkest pixel."""
# How far a shifted copy moves, in pixels. A whole pixel is an eighth of the digit: too far.
SHIFT = 0.3
NEIGHBOURS = ((-1, 0), (1, 0), (0, -1), (0, 1))
"""Where to, as (down, right)."""
REPOSITORY = Path(__file__).resolve().parents[2]
DEMO = Path("worker/inferq_worker/demo")

Pixels = NDArray[np.float64]
Labels = NDArray[np.int64]
Positions = NDArray[np.int64]


def split() -> tuple[Positions, Positions]:
    """Return the positions of the training images and of the held-out ones, in the data's order.

    The legacy generator: its stream is frozen for ever, that of its successor may change with any
    numpy, and would then move images between the parts.
    """
    order = np.random.RandomState(SPLIT_SEED).permutation(IMAGES)
    return np.sort(order[:TRAINING_IMAGES]), np.sort(order[TRAINING_IMAGES:])


def images() -> tuple[Pixels, Labels]:
    """Return all images ``[1797, 64]``, ink from 0 to 16, and their labels ``[1797]``."""
    # Here and in train(), so that a test can read the split without scikit-learn.
    from sklearn.datasets import load_digits  # noqa: PLC0415

    data = load_digits()
    return data.data, data.target.astype(np.int64)


def with_shifted(pixels: Pixels) -> Pixels:
    """Return the images and four copies of each, moved by part of a pixel: ``[5N, 64]``."""
    squares = pixels.reshape(-1, 8, 8)
    framed = np.pad(squares, ((0, 0), (1, 1), (1, 1)))
    moved = [framed[:, 1 + down : 9 + down, 1 + right : 9 + right] for down, right in NEIGHBOURS]
    copies = [squares, *((1 - SHIFT) * squares + SHIFT * neighbour for neighbour in moved)]
    return np.concatenate(copies).reshape(-1, 64)


def train(pixels: Pixels, labels: Labels) -> list[Layer]:
    """Train a 64-128-128-10 network and return its layers in float32, for ink from 0 to 16."""
    from sklearn.exceptions import ConvergenceWarning  # noqa: PLC0415
    from sklearn.neural_network import MLPClassifier  # noqa: PLC0415

    network = MLPClassifier(hidden_layer_sizes=(128, 128), alpha=0.1, max_iter=60, random_state=0)
    with warnings.catch_warnings():
        # Stopping after 60 rounds is the plan, not an accident.
        warnings.simplefilter("ignore", ConvergenceWarning)
        network.fit(with_shifted(pixels) / INK, np.tile(labels, 1 + len(NEIGHBOURS)))
    # The scale goes into the weights: the model takes pixels as they come.
    network.coefs_[0] /= INK
    return [
        (weights.astype(np.float32), bias.astype(np.float32))
        for weights, bias in zip(network.coefs_, network.intercepts_, strict=True)
    ]


def write(layers: list[Layer], pixels: Pixels, labels: Labels, positions: Positions) -> None:
    """Write the weights and the held-out images where the package expects them."""
    # numpy's stub takes ** for the next keyword, a bool, unless the values are Any.
    arrays: dict[str, Any] = {}
    for number, (weights, bias) in enumerate(layers):
        arrays[f"weights_{number}"] = weights
        arrays[f"bias_{number}"] = bias
    np.savez_compressed(REPOSITORY / DEMO / "digits_weights.npz", **arrays)
    np.savez_compressed(
        REPOSITORY / DEMO / "digits_heldout.npz",
        pixels=pixels.astype(np.uint8),
        labels=labels,
        positions=positions,
    )


def main() -> None:
    """Split, train, measure on the held-out part, and write if the model is good enough."""
    training, held_out = split()
    pixels, labels = images()
    layers = train(pixels[training], labels[training])
    answers = labels_of(pixels[held_out].astype(np.float32), layers)
    right = int((answers == labels[held_out]).sum())
    accuracy = right / len(held_out)
    print(f"held-out accuracy {accuracy:.2%}: {right} of {len(held_out)} images")
    if accuracy < MINIMUM_ACCURACY:
        raise SystemExit(f"below {MINIMUM_ACCURACY:.0%}: nothing written")
    write(layers, pixels[held_out], labels[held_out], held_out)
    print(f"wrote digits_weights.npz and digits_heldout.npz into {DEMO}")


if __name__ == "__main__":
    main()
