"""Images of handwritten digits that the demo's model has never seen, with their labels.

Apart from the model, so that whoever sends them need not load a model.
"""

from importlib.resources import files

import numpy as np
from numpy.typing import NDArray


def held_out() -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return the held-out images and their labels, always in the same order.

    Pixels are float32 ``[N, 64]``: 8x8 images row by row, ink from 0 to 16. Labels are int64
    ``[N]``, 0 to 9.
    """
    path = files("inferq_worker.demo") / "digits_heldout.npz"
    with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
        return archive["pixels"].astype(np.float32), archive["labels"]
