"""A producer that was made before a fork works on both sides of it."""

import os
import threading
import traceback

from inferq import Producer
from inferq.settings import ProducerSettings
from support.workers import Doubler, Gate, Workers


def test_fork_while_a_thread_waits(redis_url: str, prefix: str, workers: Workers) -> None:
    """A child forked while a thread of its parent waits for a reply gets replies of its own."""
    gate = Gate()
    workers.serve(gate)
    workers.serve(Doubler())
    with Producer(redis_url, settings=ProducerSettings(prefix=prefix)) as producer:
        held = producer.submit("gate", 1)
        waiting = threading.Thread(target=held.result)
        waiting.start()
        assert producer.infer("doubler", 1, timeout=20)["y"] == 2
        child = os.fork()
        if child == 0:
            code = 1
            try:
                assert producer.infer("doubler", 4, timeout=20)["y"] == 8
                code = 0
            except BaseException:  # noqa: BLE001 - a forked child must not return into pytest
                traceback.print_exc()
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        gate.open()
        waiting.join()
    assert os.waitstatus_to_exitcode(status) == 0
