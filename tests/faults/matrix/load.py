"""Senders under fire: threads with real producers of both kinds, which write everything down."""

import random
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Self

from faults.matrix.ledger import Ledger
from inferq import InferqError, NoReply, NotFound, Producer, QueueFull, Unavailable
from inferq.contract.errors import Cancelled
from inferq.settings import ProducerSettings
from support.producers import AnyHandle, AnyProducer, BlockingProducer, LoopThread

MODEL = "echo"
_WAIT_S = 5.0
# Between submissions once enough is sent: for as long as the faults go on, something goes on.
_IDLING_S = 0.1
# Beyond the longest outage of any row; whoever waits longer waits for ever.
_GIVE_UP_S = 90.0


@dataclass(frozen=True)
class Habits:
    """How senders behave.

    Attributes:
        senders: threads; every second one has an ``AsyncProducer``.
        block: requests in one submission.
        window: requests each sender has under way.
        cancel_share: chance that a request is withdrawn right after it was submitted.
        pause_s: between two submissions.
        options: of every request, such as ``timeout``.
        patience_s: how long a submission is repeated while Redis is away.
    """

    senders: int = 2
    block: int = 20
    window: int = 200
    cancel_share: float = 0.0
    pause_s: float = 0.0
    options: dict[str, Any] = field(default_factory=dict)
    patience_s: float = 60.0


class Load:
    """Sends from the start of the ``with`` block to its end, and waits there for every reply.

    Args:
        at_least: the end of the block waits until so many requests were accepted.
    """

    def __init__(
        self, url: str, prefix: str, ledger: Ledger, habits: Habits, *, at_least: int, seed: int
    ) -> None:
        self._url = url
        self._prefix = prefix
        self._ledger = ledger
        self._habits = habits
        self._seed = seed
        self._target = len(ledger.accepted) + at_least
        self._enough = threading.Event()
        self._failures: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._run, args=(place,), name=f"sender-{place}", daemon=True)
            for place in range(habits.senders)
        ]

    @property
    def is_short(self) -> bool:
        """Tell whether more is to be sent."""
        return len(self._ledger.accepted) < self._target

    def __enter__(self) -> Self:
        self._ledger.longest_silence_s()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        while kind is None and self.is_short and not self._failures:
            time.sleep(0.01)
        self._enough.set()
        for thread in self._threads:
            thread.join(_GIVE_UP_S + 30)
        if kind is None:
            for failure in self._failures:
                raise failure
            stuck = [thread.name for thread in self._threads if thread.is_alive()]
            assert not stuck, f"still waiting: {stuck}"

    def _run(self, place: int) -> None:
        try:
            settings = ProducerSettings(
                redis_url=self._url, prefix=self._prefix, patience_s=self._habits.patience_s
            )
            sender = random.Random(f"{self._seed}:sender:{place}")
            if place % 2:
                with LoopThread() as loop:
                    producer = BlockingProducer(loop, self._url, settings)
                    self._send(producer, sender)
                    producer.close()
            else:
                with Producer(self._url, settings=settings) as own:
                    self._send(own, sender)  # type: ignore[arg-type]
        except BaseException as failure:  # noqa: BLE001 - raised again in the row's thread
            self._failures.append(failure)

    def _send(self, producer: AnyProducer, chance: random.Random) -> None:
        # With the time beyond which nobody waits.
        under_way: deque[tuple[AnyHandle, float]] = deque()
        while not self._enough.is_set():
            for handle in self._submit(producer, chance):
                under_way.append((handle, time.monotonic() + _GIVE_UP_S))
                if chance.random() < self._habits.cancel_share:
                    self._cancel(handle)
            while len(under_way) > self._habits.window:
                self._settle(*under_way.popleft())
            time.sleep(self._habits.pause_s if self.is_short else _IDLING_S)
        while under_way:
            self._settle(*under_way.popleft())

    def _submit(self, producer: AnyProducer, chance: random.Random) -> list[AnyHandle]:
        """Submit the next block and enter in the ledger what is known of it."""
        numbers = self._ledger.take(self._habits.block)
        lane = chance.choice(["high", "normal", "normal", "low"])
        options = {"priority": lane, **self._habits.options}
        try:
            handles = producer.submit_many(MODEL, numbers, **options)
        except QueueFull as error:
            handles = list(error.accepted)
            self._ledger.refuse(numbers[len(handles) :])
            time.sleep(0.05)
        except Unavailable:
            self._ledger.doubt(numbers)
            return []
        for handle, number in zip(handles, numbers, strict=False):
            self._ledger.accept(handle.id, number)
        return handles

    def _cancel(self, handle: AnyHandle) -> None:
        number = self._ledger.accepted[handle.id]
        usual = self._ledger.deserved(handle.id, number)
        cancelled = {str(Cancelled.code)}
        # Until it is told otherwise it may be either.
        self._ledger.expect(handle.id, usual | cancelled)
        try:
            was_in_time = handle.cancel()
        except (Unavailable, NotFound):
            return
        self._ledger.expect(handle.id, cancelled if was_in_time else usual)

    def _settle(self, handle: AnyHandle, give_up_s: float) -> None:
        """Wait for a reply, however often the server goes away meanwhile."""
        while True:
            left_s = give_up_s - time.monotonic()
            try:
                self._ledger.saw(handle.id, handle.result(max(0.05, min(_WAIT_S, left_s))))
            except (NoReply, Unavailable):
                if left_s <= 0:
                    self._ledger.silent.add(handle.id)
                    return
            except NotFound:
                self._ledger.forgotten.add(handle.id)
                return
            except InferqError as error:
                self._ledger.saw(handle.id, error)
                return
            else:
                return
