"""A worker that nobody supervises, as a program of its own: ``lone_worker.py MODULE:OBJECT``."""

import logging
import signal
import sys
from pathlib import Path

from inferq_worker import Worker
from inferq_worker.model import import_model


def main(target: str) -> None:
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s %(message)s")
    # Not this file's folder, which Python put there: models are faults.models, as for the others.
    sys.path[0] = str(Path.cwd())
    worker = Worker(import_model(target))
    signal.signal(signal.SIGTERM, lambda *_: worker.stop())
    worker.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
