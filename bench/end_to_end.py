"""Scenario *end to end*: one producer process, one worker process, every reply checked.

``Producer.map`` with 1,024 requests under way, each one row; every reply is turned into an array
and compared with the right one before the next is taken. Timed is the whole of that loop, the
producer's first look at the model included. Outside the timed part: starting the server and the
worker, loading the model, and making the inputs.
"""

import time
from itertools import cycle, islice

from bench import models
from bench.stage import PREFIX, Failed, private_server, time_limit, worker

from inferq import Producer
from inferq.settings import ProducerSettings

WINDOW = 1_024


def measure(requests: int) -> float:
    """Send so many requests and check their replies; return requests per second.

    Raises:
        Failed: the worker died or stopped, or a reply is missing or wrong.
    """
    rows = list(models.inputs())
    answers = models.answers()
    with (
        private_server() as url,
        worker(url),
        Producer(url, settings=ProducerSettings(prefix=PREFIX)) as producer,
    ):
        right = 0
        started_s = time.perf_counter()
        replies = producer.map("matrix", islice(cycle(rows), requests), window=WINDOW)
        with time_limit(requests):
            for reply, answer in zip(replies, cycle(answers), strict=False):
                right += reply["product"].tobytes() == answer
        elapsed_s = time.perf_counter() - started_s
    if right < requests:
        raise Failed(f"end to end: {requests - right} of {requests} replies are missing or wrong")
    return requests / elapsed_s
