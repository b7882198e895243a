"""What only the asynchronous producer must keep: cancelled tasks, its reader, the event loop."""

import asyncio
import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
import redis

from inferq import (
    AsyncProducer,
    InvalidSetting,
    NoReply,
    NotFound,
    ServerUnfit,
    Unavailable,
    embedded,
)
from inferq.settings import ProducerSettings
from support.waiting import until
from support.workers import Doubler, Gate, Workers


@pytest.fixture
async def producer(redis_url: str, prefix: str) -> AsyncIterator[AsyncProducer]:
    """Yield a producer whose polls are too rare to help; nothing of it may outlive it."""
    settings = ProducerSettings(prefix=prefix, poll_s=3_600)
    async with AsyncProducer(redis_url, settings=settings) as connected:
        yield connected
    assert asyncio.all_tasks() == {asyncio.current_task()}


def reader_tasks() -> list[asyncio.Task[object]]:
    return [task for task in asyncio.all_tasks() if task.get_name() == "inferq-inbox"]


async def double(producer: AsyncProducer, number: int) -> None:
    reply = await producer.infer("doubler", number, timeout=30)
    assert reply["y"] == 2 * number


class TestCancelledTasks:
    async def test_every_later_reply_belongs_to_its_id(
        self, producer: AsyncProducer, workers: Workers
    ) -> None:
        """Tasks cancelled at any point, 1,000 times, never shift the replies of the others."""
        workers.serve(Doubler())
        others = [asyncio.create_task(self._ask(producer, first)) for first in range(4)]
        for number in range(1_000):
            task = asyncio.create_task(double(producer, number))
            # Cancelled after one more step of its way each time, up to its end.
            for _ in range(number % 23):
                await asyncio.sleep(0)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            await double(producer, -number)
        await asyncio.gather(*others)

    @staticmethod
    async def _ask(producer: AsyncProducer, first: int) -> None:
        for number in range(100):
            await double(producer, 1_000_000 * first + number)

    async def test_none_is_swallowed(self, redis_url: str, prefix: str, workers: Workers) -> None:
        """A cancelled call ends, at whatever step it was, from the first connection on."""
        workers.publish(Doubler())
        for steps in range(100):
            async with AsyncProducer(redis_url, settings=ProducerSettings(prefix=prefix)) as fresh:
                task = asyncio.create_task(fresh.infer("doubler", 1))
                for _ in range(steps):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.wait([task], timeout=0.5)
                assert task.cancelled(), f"cancelled after {steps} steps"

    async def test_others_go_on_waiting(
        self, producer: AsyncProducer, workers: Workers, client: redis.Redis
    ) -> None:
        """Whoever is cancelled leaves the connection to the others, unbroken."""
        gate = Gate(max_batch_size=8)
        workers.serve(gate)
        handles = await producer.submit_many("gate", range(8))
        waits = [asyncio.create_task(handle.result()) for handle in handles]
        await asyncio.to_thread(until, lambda: _blocked(client))
        opened = client.info("stats")["total_connections_received"]
        for wait in waits[:7]:
            wait.cancel()
        await asyncio.gather(*waits[:7], return_exceptions=True)
        gate.open()
        assert (await waits[7])["y"] == 14
        # Those that were cancelled can ask again.
        assert [(await handle.result())["y"] for handle in handles] == [
            2 * number for number in range(8)
        ]
        assert client.info("stats")["total_connections_received"] == opened

    async def test_a_cancelled_look(self, producer: AsyncProducer, workers: Workers) -> None:
        """A look that is cut short spoils neither its handle nor the connection."""
        workers.serve(Doubler())
        handle = await producer.submit("doubler", 1)
        for steps in range(20):
            look = asyncio.create_task(handle.done())
            for _ in range(steps):
                await asyncio.sleep(0)
            look.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await look
        assert (await handle.result(timeout=10))["y"] == 2


def _blocked(client: redis.Redis) -> bool:
    return any(each["cmd"] == "blmpop" for each in client.client_list())


class TestReader:
    async def test_one_for_all_and_only_while_awaited(
        self, producer: AsyncProducer, workers: Workers
    ) -> None:
        """One task reads for all that wait; with nobody waiting there is none."""
        gate = Gate(max_batch_size=64)
        workers.serve(gate)
        handles = await producer.submit_many("gate", range(50))
        assert reader_tasks() == []
        waits = [asyncio.create_task(handle.result(timeout=30)) for handle in handles]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        (reader,) = reader_tasks()
        gate.open()
        assert [reply["y"] for reply in await asyncio.gather(*waits)] == [
            2 * number for number in range(50)
        ]
        await asyncio.wait([reader], timeout=10)
        assert reader_tasks() == []

    async def test_thousands_of_tasks(
        self, producer: AsyncProducer, workers: Workers, client: redis.Redis
    ) -> None:
        """Thousands of tasks at once each get their own reply, over a handful of connections."""
        workers.serve(Doubler())
        opened = client.info("stats")["total_connections_received"]
        await asyncio.gather(*(double(producer, number) for number in range(2_000)))
        assert client.info("stats")["total_connections_received"] - opened <= 10

    async def test_its_failure_reaches_all(
        self, producer: AsyncProducer, workers: Workers, client: redis.Redis, prefix: str
    ) -> None:
        """What ends the reader is raised in every task that waits, and the next wait starts anew."""
        workers.serve(Doubler())
        first = await producer.submit("doubler", 1)
        await asyncio.to_thread(until, lambda: list(client.scan_iter(f"*{prefix}*:inbox:*")))
        workers.stop()
        (inbox,) = client.scan_iter(f"*{prefix}*:inbox:*")
        client.delete(inbox)
        client.set(inbox, "not ours")
        handles = [first, *await producer.submit_many("doubler", range(5))]
        failures = await asyncio.gather(
            *(handle.result() for handle in handles), return_exceptions=True
        )
        assert {type(failure) for failure in failures} == {ServerUnfit}
        client.delete(inbox)
        workers.serve(Doubler())
        assert (await handles[5].result(timeout=10))["y"] == 8

    async def test_close_ends_waits(self, producer: AsyncProducer, workers: Workers) -> None:
        """Closing ends the waits of other tasks; later calls are refused."""
        workers.publish(Doubler())
        handle = await producer.submit("doubler", 1)
        waiting = asyncio.create_task(handle.result())
        await asyncio.sleep(0)
        await producer.close()
        with pytest.raises(NoReply, match="closed"):
            await waiting
        with pytest.raises(Unavailable, match="closed"):
            await producer.infer("doubler", 1)


class TestMap:
    async def test_an_asynchronous_source(self, producer: AsyncProducer, workers: Workers) -> None:
        """Inputs may come from an asynchronous iterable, no further ahead than the window."""
        workers.serve(Doubler())
        taken = 0

        async def numbers() -> AsyncIterator[int]:
            nonlocal taken
            for number in range(500):
                taken += 1
                await asyncio.sleep(0)
                yield number

        seen = 0
        async for reply in producer.map("doubler", numbers(), window=16):
            assert reply["y"] == 2 * seen
            seen += 1
            assert taken <= seen + 16
        assert seen == 500

    async def test_cancelled(self, producer: AsyncProducer, workers: Workers) -> None:
        """A map that is cancelled leaves the producer usable."""
        gate = Gate()
        workers.serve(gate)

        async def run() -> None:
            async for _ in producer.map("gate", range(10), window=4):
                pass

        running = asyncio.create_task(run())
        await asyncio.to_thread(gate.wait_for_call)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        gate.open()
        assert (await producer.infer("gate", 21, timeout=10))["y"] == 42


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Make the folder of a private server of the test's own."""
    runtime = Path(tempfile.mkdtemp(prefix="inferq-aio-"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    folder = runtime / "inferq"
    folder.mkdir(mode=0o700)
    yield folder
    shutil.rmtree(runtime)


@pytest.fixture
def release_turn(folder: Path) -> Callable[[], None]:
    """Keep everybody from joining the private server until this is called."""
    turn = os.open(folder / "turn.lock", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(turn, fcntl.LOCK_EX)
    return lambda: os.close(turn)


@pytest.fixture
def long_path(tmp_path: Path) -> Path:
    """Make a folder whose path is too long for a socket in it."""
    path = tmp_path / ("long" * 25)
    path.mkdir()
    return path


class TestEmbedded:
    async def test_from_the_first_call_to_close(self, folder: Path) -> None:
        """The server of ``embedded`` runs from the first call to ``close``, shared by all calls."""
        producer = AsyncProducer("embedded")
        assert not embedded.answers(folder / "server.sock")
        calls = (producer.cancel("doubler", "nobody") for _ in range(10))
        failures = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(failure) for failure in failures} == {NotFound}
        assert embedded.answers(folder / "server.sock")
        await producer.close()
        assert not embedded.answers(folder / "server.sock")

    async def test_the_loop_goes_on_meanwhile(
        self, folder: Path, release_turn: Callable[[], None]
    ) -> None:
        """While a start takes its time, other tasks run; a cancelled caller leaves no server."""
        producer = AsyncProducer("embedded")
        first = asyncio.create_task(producer.cancel("doubler", "nobody"))
        second = asyncio.create_task(producer.cancel("doubler", "nobody"))
        for _ in range(100):
            await asyncio.sleep(0)
        assert not first.done()
        first.cancel()
        release_turn()
        with pytest.raises(NotFound):
            await second
        await producer.close()
        assert first.cancelled()
        assert not embedded.answers(folder / "server.sock")

    async def test_closed_while_it_starts(
        self, folder: Path, release_turn: Callable[[], None]
    ) -> None:
        """Closing waits for a start that is under way, and stops what it started."""
        producer = AsyncProducer("embedded")
        calling = asyncio.create_task(producer.cancel("doubler", "nobody"))
        await asyncio.sleep(0)
        closing = asyncio.create_task(producer.close())
        await asyncio.sleep(0)
        release_turn()
        await closing
        await asyncio.wait([calling])
        assert not embedded.answers(folder / "server.sock")

    async def test_a_failed_start_is_tried_again(
        self, folder: Path, long_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A server that could not be started is started by the next call."""
        async with AsyncProducer("embedded") as producer:
            with monkeypatch.context() as wrong:
                wrong.setenv("XDG_RUNTIME_DIR", str(long_path))
                with pytest.raises(InvalidSetting):
                    await producer.cancel("doubler", "nobody")
            with pytest.raises(NotFound):
                await producer.cancel("doubler", "nobody")
            assert embedded.answers(folder / "server.sock")
