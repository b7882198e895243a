"""Scenario *drain*: how fast one worker process empties a queue that is full already.

The requests are prepared on a list beside the queue, in the binary form, each with an id and a
time stamp; none but the last asks to be told, as in a batch job whose replies are read later.
Timed is what lies between the renaming of that list, which wakes the idle worker, and the hint
that the last reply is written. Outside the timed part: starting the server and the worker, loading
the model, preparing the requests, and reading every reply afterwards to compare it with the right
one.
"""

import time
from collections.abc import Iterator, Sequence

import redis
from bench import models
from bench.stage import KEYS, Failed, connected, private_server, time_limit, worker

from inferq.contract.replies import Reply, ReplyReader
from inferq.contract.requests import RequestWriter
from inferq.ids import new_request_id

_BOX = "last"
_PREPARED = "prepared"
_AT_ONCE = 1_000


def measure(requests: int) -> float:
    """Drain so many requests; return requests per second.

    Raises:
        Failed: the worker died or stopped, or a reply is missing or wrong.
    """
    ids = [new_request_id() for _ in range(requests)]
    with private_server() as url, worker(url), connected(url) as client:
        _prepare(client, ids)
        started_s = time.perf_counter()
        client.rename(_PREPARED, KEYS.normal)
        with time_limit(requests):
            client.blpop([KEYS.inbox(_BOX)])
        elapsed_s = time.perf_counter() - started_s
        wrong = requests - _count_right(client, ids)
    if wrong:
        raise Failed(f"drain: {wrong} of {requests} replies are missing or wrong")
    return requests / elapsed_s


def messages(ids: Sequence[str], submitted_ms: int) -> Iterator[bytes]:
    """Yield the request of each id as a frame; the rows come round again and again."""
    writer = RequestWriter()
    rows = models.inputs()[:, None]
    for place, request_id in enumerate(ids):
        parameters: dict[str, bool | int | float | str] = {"submitted_ms": submitted_ms}
        if place == len(ids) - 1:
            parameters["reply_to"] = _BOX
        yield writer.write(request_id, [("x", "FP32", rows[place % len(rows)])], parameters)


def _prepare(client: redis.Redis, ids: Sequence[str]) -> None:
    seconds, _ = client.time()
    prepared = list(messages(ids, int(seconds) * 1000))
    for start in range(0, len(prepared), _AT_ONCE):
        client.rpush(_PREPARED, *prepared[start : start + _AT_ONCE])


def _count_right(client: redis.Redis, ids: Sequence[str]) -> int:
    reader = ReplyReader()
    answers = models.answers()
    right = 0
    for start in range(0, len(ids), _AT_ONCE):
        part = ids[start : start + _AT_ONCE]
        for place, value in enumerate(client.mget([KEYS.reply(each) for each in part]), start):
            reply = reader.read(value) if isinstance(value, bytes) and value else None
            if isinstance(reply, Reply) and reply.id == ids[place]:
                right += reply["product"].tobytes() == answers[place % len(answers)]
    return right
