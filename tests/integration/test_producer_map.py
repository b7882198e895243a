"""``map`` of both producers: order, the window, errors in place, a full queue."""

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

from inferq import InferqError, InvalidRequest, ModelError, NotFound, QueueFull, TooLarge
from support.producers import AnyProducer, Connect
from support.waiting import until
from support.workers import Doubler, Gate, Raiser, Workers


class Counted:
    """Numbers from 0, and how many of them were taken."""

    def __init__(self, end: int) -> None:
        self.taken = 0
        self._end = end

    def __iter__(self) -> Iterator[int]:
        for number in range(self._end):
            self.taken += 1
            yield number


def test_replies_come_in_order(producer: AnyProducer, workers: Workers) -> None:
    """Replies follow their requests, over many windows, from any iterable."""
    workers.serve(Doubler())
    replies = producer.map("doubler", iter(range(1_000)), window=7)
    assert [reply["y"] for reply in replies] == [2 * number for number in range(1_000)]


def test_nothing_gives_nothing(producer: AnyProducer, workers: Workers) -> None:
    """An empty source ends at once, without a request."""
    workers.publish(Doubler())
    assert list(producer.map("doubler", [])) == []


def test_a_window_of_one(producer: AnyProducer, workers: Workers) -> None:
    """With a window of one, requests go one after the other."""
    gate = Gate(max_batch_size=8)
    gate.open()
    workers.serve(gate)
    assert [reply["y"] for reply in producer.map("gate", range(5), window=1)] == [0, 2, 4, 6, 8]
    assert gate.sizes == [1] * 5


def test_the_window_bounds_what_is_under_way(
    producer: AnyProducer, workers: Workers, client: redis.Redis
) -> None:
    """Never more than the window is submitted, nor taken from the source, ahead of the replies."""
    gate = Gate(max_batch_size=4)
    keys = workers.keys(gate)
    under_way: list[int] = []

    def note() -> None:
        under_way.append(client.llen(keys.normal) + gate.sizes[-1])

    gate.on_call = note
    workers.serve(gate)
    source = Counted(100)
    with ThreadPoolExecutor(1) as threads:
        replies = threads.submit(lambda: list(producer.map("gate", source, window=10)))
        gate.wait_for_call()
        until(lambda: client.llen(keys.normal) == 10 - gate.sizes[0])
        assert source.taken == 10
        gate.open()
        assert [reply["y"] for reply in replies.result(30)] == [2 * row for row in range(100)]
    assert max(under_way) <= 10


def test_a_failed_request_ends_it(producer: AnyProducer, workers: Workers) -> None:
    """By default a request's error is raised when its turn comes, not before."""
    workers.serve(Raiser())
    replies = producer.map("raiser", [1, 2, -3, 4])
    assert [next(replies)["y"], next(replies)["y"]] == [2, 4]
    with pytest.raises(ModelError, match="below zero"):
        next(replies)


def test_a_wrong_input_ends_it(producer: AnyProducer, workers: Workers) -> None:
    """An input that does not fit the model is raised in its turn as well."""
    workers.serve(Raiser())
    replies = producer.map("raiser", [1, "two", 3])
    assert next(replies)["y"] == 2
    with pytest.raises(InvalidRequest):
        next(replies)


def test_errors_in_place(producer: AnyProducer, workers: Workers) -> None:
    """``return_errors`` gives each request's error in its place, whoever found it, and goes on."""
    workers.serve(Raiser(), max_message_bytes=1_000)
    inputs = ["one", 1, -1, [0] * 1_000, 2, "three", 3]
    results = list(producer.map("raiser", inputs, window=3, return_errors=True))
    assert [
        type(result) if isinstance(result, InferqError) else result["y"].tolist()
        for result in results
    ] == [InvalidRequest, 2, ModelError, TooLarge, 4, InvalidRequest, 6]


def test_a_queue_limit_slows_it(connect: Connect, workers: Workers, client: redis.Redis) -> None:
    """A queue limit far below the window is kept, and fails nothing."""
    gate = Gate(max_batch_size=4)
    keys = workers.keys(gate)
    lengths: list[int] = []
    gate.on_call = lambda: lengths.append(client.llen(keys.normal))
    gate.open()
    workers.serve(gate)
    producer = connect(queue_limit=5)
    replies = producer.map("gate", range(200), window=64)
    assert [reply["y"] for reply in replies] == [2 * number for number in range(200)]
    assert max(lengths) <= 5


def test_a_queue_that_others_filled(connect: Connect, workers: Workers) -> None:
    """With no room for even one request it waits for room, and then goes on."""
    gate = Gate()
    workers.serve(gate)
    other = connect()
    others = other.submit_many("gate", range(4))
    gate.wait_for_call()
    limited = connect(queue_limit=3)
    with pytest.raises(QueueFull):
        limited.submit("gate", 0)
    with ThreadPoolExecutor(1) as threads:
        replies = threads.submit(lambda: list(limited.map("gate", [10, 11], window=8)))
        gate.open()
        assert [reply["y"] for reply in replies.result(30)] == [20, 22]
    assert [handle.result(timeout=10)["y"] for handle in others] == [0, 2, 4, 6]


def test_closed_early(producer: AnyProducer, workers: Workers) -> None:
    """A caller that stops early takes no more than a window, and leaves the producer usable."""
    workers.serve(Doubler())
    source = Counted(10_000)
    replies = producer.map("doubler", source, window=16)
    assert [reply["y"] for reply in itertools.islice(replies, 3)] == [0, 2, 4]
    replies.close()
    assert source.taken <= 3 + 16
    assert producer.infer("doubler", 21, timeout=10)["y"] == 42


def test_two_at_once(producer: AnyProducer, workers: Workers) -> None:
    """Two maps over one producer each get their own replies."""
    workers.serve(Doubler())

    def run(first: int) -> list[int]:
        numbers = range(first, first + 500)
        return [int(reply["y"]) for reply in producer.map("doubler", numbers, window=32)]

    with ThreadPoolExecutor(2) as threads:
        low, high = threads.map(run, (0, 1_000))
    assert low == [2 * number for number in range(500)]
    assert high == [2 * number for number in range(1_000, 1_500)]


def test_what_it_refuses(producer: AnyProducer, workers: Workers) -> None:
    """A window below one, an id for all requests and an unknown model are refused."""
    workers.publish(Doubler())
    for options in ({"window": 0}, {"window": True}, {"request_id": "same"}, {"timeout": -1}):
        with pytest.raises(InvalidRequest):
            next(producer.map("doubler", [1], **options))
    with pytest.raises(TypeError, match="'timout'"):
        next(producer.map("doubler", [1], timout=1))
    with pytest.raises(NotFound):
        next(producer.map("dubler", [1]))
