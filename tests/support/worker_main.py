"""A worker as a program: serves a model of this folder until SIGTERM, and logs to standard error.

    python worker_main.py MODEL [burst]

MODEL is a class below; everything else comes from ``INFERQ_*``. Its last line on standard output
is how many requests it answered.
"""

import logging
import os
import signal
import sys

import redis

from inferq.contract.tensors import Array
from inferq_worker import Model, TensorSpec, Worker
from inferq_worker.settings import WorkerSettings


class Doubler(Model):
    """Doubles numbers, and -1 kills the process."""

    name = "doubler"
    inputs = [TensorSpec("x", "INT64", [])]
    outputs = [TensorSpec("y", "INT64", [])]
    max_batch_size = 8

    def predict(self, x: Array) -> Array:
        if (x == -1).any():
            os.kill(os.getpid(), signal.SIGKILL)
        return x * 2


class Gated(Doubler):
    """Tells each call by its values, on the list ``entered``, and waits for a token on ``gate``."""

    def load(self) -> None:
        settings = WorkerSettings()
        self._client = redis.Redis.from_url(settings.redis_url)
        self._prefix = settings.prefix

    def predict(self, x: Array) -> Array:
        self._client.rpush(f"{self._prefix}:entered", ",".join(map(str, x.tolist())))
        assert self._client.blpop([f"{self._prefix}:gate"], timeout=30), "no token came"
        return super().predict(x)


def main(model: str, burst: str = "") -> None:
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s %(message)s")
    served: Model = {"Doubler": Doubler, "Gated": Gated}[model]()
    worker = Worker(served)
    signal.signal(signal.SIGTERM, lambda *_: worker.stop())
    answered = worker.run(burst=bool(burst))
    sys.stdout.write(f"{answered}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
