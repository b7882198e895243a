"""Models for the fault matrix: each answers a number with itself and its double.

A request is told from all others by its number, so whoever asked can tell whether the reply is its
own. Negative numbers are marked: what they do depends on the model. ``FAULTS_PAUSE_MS`` is how long
a call takes; ``FAULTS_CRASHES`` names a file that grows by a byte with each crash.
"""

import ctypes
import os
import time

from inferq.contract.tensors import Array
from inferq_worker import Model, TensorSpec


class Echo(Model):
    """Answers after a pause in which other threads can run."""

    name = "echo"
    inputs = [TensorSpec("number", "INT64", [])]
    outputs = [TensorSpec("number", "INT64", []), TensorSpec("double", "INT64", [])]
    max_batch_size = 16

    def load(self) -> None:
        self.pause_s = float(os.environ.get("FAULTS_PAUSE_MS", "0")) / 1000

    def predict(self, number: Array) -> dict[str, Array]:
        self.work()
        if (number < 0).any():
            self.meet_a_mark()
        return {"number": number, "double": number * 2}

    def work(self) -> None:
        # Not even for no time: under faketime a sleep fails.
        if self.pause_s:
            time.sleep(self.pause_s)

    def meet_a_mark(self) -> None:
        """Answer marked numbers like any other."""


class Poison(Echo):
    """Dies of marked numbers, the whole interpreter with it."""

    def meet_a_mark(self) -> None:
        note_crash()
        os._exit(9)


class Raiser(Echo):
    """Raises on marked numbers."""

    def meet_a_mark(self) -> None:
        raise ValueError("a marked number")


class Hanger(Echo):
    """Never comes back from marked numbers."""

    def meet_a_mark(self) -> None:
        note_crash()
        time.sleep(3_600)


class Holder(Echo):
    """Holds the interpreter for the whole pause, as a call into careless C code does."""

    def work(self) -> None:
        ctypes.PyDLL(None).usleep(int(self.pause_s * 1e6))


def note_crash() -> None:
    descriptor = os.open(os.environ["FAULTS_CRASHES"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(descriptor, b".")
    os.close(descriptor)
