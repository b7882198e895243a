"""A model whose fate its input decides, for tests of what watches over it."""

import os
import threading

from inferq.contract.tensors import Array
from inferq_worker import Model, TensorSpec

HANG = -1.0
DIE = -2.0


class Perilous(Model):
    """Doubles numbers; hangs on :data:`HANG`, ends its process on :data:`DIE`."""

    name = "perilous"
    inputs = [TensorSpec("x", "FP32", [])]
    outputs = [TensorSpec("y", "FP32", [])]
    max_batch_size = 8

    def predict(self, x: Array) -> Array:
        if (x == DIE).any():
            os._exit(9)
        if (x == HANG).any():
            threading.Event().wait()
        return 2 * x


class Wider(Perilous):
    """The same under the same name, with other tensors."""

    inputs = [TensorSpec("x", "FP32", [2])]
    outputs = [TensorSpec("y", "FP32", [2])]


class Unloadable(Perilous):
    """Raises while it loads."""

    def load(self) -> None:
        raise OSError("no weights here")


class Doomed(Perilous):
    """Ends its process while it loads."""

    def load(self) -> None:
        os._exit(7)
