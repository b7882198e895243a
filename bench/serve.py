"""The worker process of a scenario: ``python -m bench.serve URL``, until ``SIGTERM``."""

import signal
import sys

from bench.models import Matrix
from bench.stage import PREFIX

from inferq_worker import Worker
from inferq_worker.settings import WorkerSettings


def main(url: str) -> None:
    """Serve :class:`Matrix` from the server at ``url``."""
    worker = Worker(Matrix(), WorkerSettings(redis_url=url, prefix=PREFIX))
    signal.signal(signal.SIGTERM, lambda *_: worker.stop())
    worker.run()


if __name__ == "__main__":
    main(sys.argv[1])
