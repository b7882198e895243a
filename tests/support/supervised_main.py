"""Starts workers without the command line: ``supervised_main.py TARGET [PROCESSES | alone]``.

With a number of processes under a supervisor; ``alone`` is one worker that nobody watches.
Settings come from the environment.
"""

import logging
import signal
import sys

from inferq.contract.errors import InferqError
from inferq_worker.child import Assignment, run
from inferq_worker.model import import_model
from inferq_worker.settings import WorkerSettings
from inferq_worker.supervisor import Supervisor
from inferq_worker.worker import Worker


def supervise(target: str, processes: int) -> int:
    command = [sys.executable, __file__, "child"]
    assignment = Assignment(target, None, {}, -1, -1)
    return Supervisor(command, assignment, WorkerSettings(), processes=processes).run()


def work_alone(target: str) -> int:
    worker = Worker(import_model(target))
    signal.signal(signal.SIGTERM, lambda *_: worker.stop())
    worker.run()
    return 0


def main(arguments: list[str]) -> int:
    logging.basicConfig(level="INFO", format="%(process)d %(name)s %(message)s")
    if arguments == ["child"]:
        return run(Assignment.from_line(sys.stdin.buffer.readline()))
    target, how = arguments
    try:
        return work_alone(target) if how == "alone" else supervise(target, int(how))
    except InferqError as error:
        sys.stderr.write(f"{error}\n")
        return 78


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
