"""publish.lua: one model, one set of tensors, as long as a worker lives by it."""

import json

import pytest

from support.queue_state import Queue
from support.script_calls import Call


def text(shape: list[int], most: int = 8) -> str:
    tensor = {"name": "x", "datatype": "FP32", "shape": [-1, *shape]}
    return json.dumps(
        {"metadata": {"name": "m", "inputs": [tensor], "outputs": [tensor]},
         "limits": {"max_batch_size": most}}
    )  # fmt: skip


def publish(queue: Queue, description: str, worker: str = "w") -> Call:
    return Call("publish", [queue.keys.description, queue.keys.workers], [description, worker])


@pytest.mark.parametrize("before", [None, "junk", "[]", '{"metadata": 1}', text([2], most=4)])
def test_published(queue: Queue, before: str | None) -> None:
    """Beside a live worker, what promises the same tensors, or nothing readable, is replaced."""
    queue.put({"workers": {"other": "alive"}} | ({"model": before} if before else {}))
    assert queue.run(publish(queue, text([2]))) == 1
    assert queue.state()["model"] == text([2])


def test_refused(queue: Queue) -> None:
    """Other tensors are refused while a worker lives by the present ones, which is named."""
    queue.put({"workers": {"gone": "lapsed", "other": "alive", "w": "alive"}, "model": text([3])})
    assert queue.run(publish(queue, text([2]))) == "other"
    assert queue.state()["model"] == text([3])


@pytest.mark.parametrize("workers", [{}, {"gone": "lapsed"}, {"w": "alive"}])
def test_replaced(queue: Queue, workers: dict[str, str]) -> None:
    """With no other worker alive the description gives way to new tensors."""
    queue.put({"model": text([3])} | ({"workers": workers} if workers else {}))
    assert queue.run(publish(queue, text([2]))) == 1
    assert queue.state()["model"] == text([2])


def test_twice(queue: Queue) -> None:
    """A publication that is sent again changes nothing."""
    call = publish(queue, text([2]))
    assert queue.run(call) == 1
    before = queue.state()
    assert queue.run(call) == 1
    assert queue.state() == before
