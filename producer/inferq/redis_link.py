"""The one door to Redis: commands out, answers in, trouble translated.

A *flight* is a list of commands sent together and answered together, one round trip. Scripts go
by hash; one the server has forgotten goes again with its source, alone, never the whole flight: a
``BLMOVE`` beside it has already moved something.

:meth:`Link.once` sends a flight exactly once. :meth:`Link.run` repeats it until it is answered,
which is safe for reads and for every script of the contract (``docs/guarantees.md``).
"""

import asyncio
import math
import os
import random
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, TypeAlias, TypeVar

import redis.asyncio.connection
import redis.connection
from redis.exceptions import RedisError, ResponseError

from inferq.contract.errors import InferqError, NoReply, Unavailable
from inferq.contract.scripts import Script
from inferq.endpoint import Endpoint
from inferq.redis_faults import ScriptMissing, fault

T = TypeVar("T")
Word = str | bytes | int | float

_FIRST_PAUSE_S = 0.01
_LONGEST_PAUSE_S = 1.0
# How often a flight that may be abandoned asks whether it is. Not an answer's latency.
_LOOK_S = 0.2


class Command(NamedTuple):
    """One command as it is sent; ``source`` repeats it if the server has lost the script."""

    words: tuple[Word, ...]
    source: tuple[Word, ...] | None = None


Steps: TypeAlias = Generator[Sequence[Command], list[Any], T]
"""Several flights that make one whole: each is yielded, its answers are sent back (or its error is
thrown in), and in the end there is a value. So the same steps serve whoever blocks and whoever
awaits."""


def command(*words: Word) -> Command:
    """Build an ordinary command."""
    return Command(words)


def call(script: Script, keys: Sequence[str], args: Sequence[Word]) -> Command:
    """Build a script call by hash."""
    operands = (len(keys), *keys, *args)
    return Command(("EVALSHA", script.sha1, *operands), ("EVAL", script.source, *operands))


def call_by_source(script: Script, keys: Sequence[str], args: Sequence[Word]) -> Command:
    """Build a script call that cannot be refused for want of the script."""
    return Command(("EVAL", script.source, len(keys), *keys, *args))


def pauses() -> Iterator[float]:
    """Yield the seconds to wait before each further try: doubling, with full jitter."""
    longest = _FIRST_PAUSE_S
    while True:
        yield random.uniform(0, longest)  # noqa: S311 - spreads reconnects, guards nothing
        longest = min(_LONGEST_PAUSE_S, longest * 2)


class _Flight:
    """The pure half of a flight: what to send, what to send again, what the answers mean."""

    def __init__(self, commands: Sequence[Command], server: str) -> None:
        self._commands = commands
        self._server = server
        self.answers: list[Any] = []

    def words(self) -> list[tuple[Word, ...]]:
        return [sent.words for sent in self._commands]

    def translate(self, error: Exception) -> InferqError:
        return fault(error, self._server)

    def refused(self) -> list[int]:
        """Places of scripts that the server has lost."""
        return [
            place
            for place, answer in enumerate(self.answers)
            if isinstance(answer, ScriptMissing) and self._commands[place].source is not None
        ]

    @property
    def is_turned_away(self) -> bool:
        """Tell whether the server takes no work for now.

        One that became a replica stays one, and answers for ever: only a new connection finds the
        server that the address leads to by now.
        """
        return any(isinstance(answer, Unavailable) for answer in self.answers)

    def sources(self, places: Sequence[int]) -> list[tuple[Word, ...]]:
        return [self._commands[place].source or () for place in places]


def _raise_first(answers: Sequence[Any]) -> None:
    for answer in answers:
        if isinstance(answer, InferqError):
            raise answer


class Link:
    """A handful of connections to one server, shared by the threads of one process.

    Args:
        endpoint: where the server is.
        socket_timeout_s: how long to wait for an answer; longer than any block it carries.

    Attributes:
        endpoint: where the server is.
        opened: connections made so far. It grows when one was lost, and so tells that the server
            behind the address may be another.
    """

    def __init__(self, endpoint: Endpoint, *, socket_timeout_s: float = 5.0) -> None:
        self.endpoint = endpoint
        self.opened = 0
        self._socket_timeout_s = socket_timeout_s
        # Idle connections; taken and put back by any thread, both ends being atomic.
        self._idle: deque[redis.connection.AbstractConnection] = deque()
        self._closed = False

    def once(
        self,
        commands: Sequence[Command],
        *,
        wait_s: float = math.inf,
        abandon: Callable[[], bool] | None = None,
    ) -> list[Any]:
        """Send the commands in one flight and return an answer each, in order.

        An error reply stands in its place as an :class:`InferqError`; the others are valid.

        Args:
            commands: what to send.
            wait_s: give up when the answers are not there after so many seconds (an exact bound,
                unlike a server's block time); the connection is dropped then.
            abandon: asked a few times a second while an answer is out; true gives up.

        Raises:
            Unavailable: the server cannot be reached, or the connection broke: it is not known
                which of the commands ran.
            NoReply: ``wait_s`` is over, or the flight was abandoned.
        """
        flight = _Flight(commands, self.endpoint.shown)
        give_up_s = time.monotonic() + wait_s
        with self._connection(flight) as connection:
            connection.send_packed_command(connection.pack_commands(flight.words()))
            for _ in commands:
                if abandon is not None or wait_s < math.inf:
                    self._await_answer(connection, give_up_s, abandon)
                flight.answers.append(_read(connection, flight))
            refused = flight.refused()
            if refused:
                connection.send_packed_command(connection.pack_commands(flight.sources(refused)))
                for place in refused:
                    flight.answers[place] = _read(connection, flight)
        return flight.answers

    def run(
        self, *commands: Command, patience_s: float = 0.0, wait_s: float = math.inf
    ) -> list[Any]:
        """Send a flight that may safely be repeated, until it is answered without error.

        Raises:
            Unavailable: no answer within ``patience_s`` seconds.
            NoReply: one try took longer than ``wait_s`` seconds.
            InferqError: the server refused one of the commands; repeating would not help.
        """
        give_up = time.monotonic() + patience_s
        for pause_s in pauses():
            try:
                answers = self.once(commands, wait_s=wait_s)
                _raise_first(answers)
            except Unavailable:
                if self._closed or time.monotonic() + pause_s >= give_up:
                    raise
                time.sleep(pause_s)
            else:
                return answers
        raise AssertionError("pauses() never ends")

    def close(self) -> None:
        """Close the idle connections, and those in use when their flights end.

        The link stays usable, but keeps no connection from now on, and has no patience.
        """
        self._closed = True
        self._drop_idle()

    def _drop_idle(self) -> None:
        while self._idle:
            with suppress(IndexError):  # another thread took the last one
                self._idle.pop().disconnect()

    @contextmanager
    def _connection(self, flight: _Flight) -> Iterator[redis.connection.AbstractConnection]:
        connection = self._take()
        try:
            yield connection
        except NoReply:
            # Ours, but an OSError as well, being a TimeoutError.
            connection.disconnect()
            raise
        except (RedisError, OSError) as error:
            connection.disconnect()
            raise flight.translate(error) from None
        except BaseException:
            # A flight that was cut short leaves answers behind that belong to nobody.
            connection.disconnect()
            raise
        self._idle.append(connection)
        if flight.is_turned_away:
            self._drop_idle()
        if self._closed:
            self.close()

    def _take(self) -> redis.connection.AbstractConnection:
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:
                break
            # A connection inherited through fork belongs to the parent.
            if connection.pid == os.getpid():
                return connection
        self.opened += 1
        return self.endpoint.connection(self._socket_timeout_s)

    def _await_answer(
        self,
        connection: redis.connection.AbstractConnection,
        give_up_s: float,
        abandon: Callable[[], bool] | None,
    ) -> None:
        """Return when there is something to read, sooner than the socket's own timeout asks."""
        silent_s = time.monotonic() + self._socket_timeout_s
        while True:
            now_s = time.monotonic()
            left_s = max(0.0, min(give_up_s, silent_s) - now_s)
            if connection.can_read(timeout=left_s if abandon is None else min(left_s, _LOOK_S)):
                return
            now_s = time.monotonic()
            if now_s >= give_up_s or (abandon is not None and abandon()):
                raise NoReply(f"no answer from Redis at {self.endpoint.shown} in time")
            if now_s >= silent_s:
                # Half open: a blocked command would have answered by now.
                raise TimeoutError(f"silent for {self._socket_timeout_s:g} s")


def _read(connection: redis.connection.AbstractConnection, flight: _Flight) -> Any:
    try:
        return connection.read_response()
    except ResponseError as error:
        return flight.translate(error)


class AsyncLink:
    """:class:`Link` for one event loop.

    Threads are few; tasks are not. So flights that find ``most`` under way wait for their turn
    instead of opening a connection each.
    """

    def __init__(self, endpoint: Endpoint, *, socket_timeout_s: float = 5.0, most: int = 8) -> None:
        self.endpoint = endpoint
        self._socket_timeout_s = socket_timeout_s
        self._turns = asyncio.Semaphore(most)
        self._idle: deque[redis.asyncio.connection.AbstractConnection] = deque()
        self._closed = False

    async def once(self, commands: Sequence[Command]) -> list[Any]:
        """See :meth:`Link.once`. A cancelled flight drops its connection."""
        async with self._turns:
            return await self._once(_Flight(commands, self.endpoint.shown))

    async def _once(self, flight: _Flight) -> list[Any]:
        connection = self._take()
        try:
            words = flight.words()
            await self._send(connection, words)
            flight.answers = [await self._read(connection, flight) for _ in words]
            refused = flight.refused()
            if refused:
                await self._send(connection, flight.sources(refused))
                for place in refused:
                    flight.answers[place] = await self._read(connection, flight)
        except (RedisError, OSError) as error:
            await connection.disconnect(nowait=True)
            raise flight.translate(error) from None
        except BaseException:
            # Without this a later flight would read this one's answers.
            await connection.disconnect(nowait=True)
            raise
        self._idle.append(connection)
        if flight.is_turned_away:
            await self._drop_idle()
        if self._closed:
            await self.close()
        return flight.answers

    async def run(self, *commands: Command, patience_s: float = 0.0) -> list[Any]:
        """See :meth:`Link.run`."""
        give_up = time.monotonic() + patience_s
        for pause_s in pauses():
            try:
                answers = await self.once(commands)
                _raise_first(answers)
            except Unavailable:
                if self._closed or time.monotonic() + pause_s >= give_up:
                    raise
                await asyncio.sleep(pause_s)
            else:
                return answers
        raise AssertionError("pauses() never ends")

    async def close(self) -> None:
        """See :meth:`Link.close`."""
        self._closed = True
        await self._drop_idle()

    async def _drop_idle(self) -> None:
        while self._idle:
            await self._idle.pop().disconnect()

    def _take(self) -> redis.asyncio.connection.AbstractConnection:
        if self._idle:
            return self._idle.pop()
        connection = self.endpoint.async_connection(self._socket_timeout_s)
        # The timeouts below do that. redis-py's own is asyncio.wait_for, which on Python 3.11 takes
        # the end of what it waits for over a cancellation, and the task would go on.
        connection.socket_timeout = None
        return connection

    async def _send(
        self,
        connection: redis.asyncio.connection.AbstractConnection,
        words: Sequence[tuple[Word, ...]],
    ) -> None:
        async with asyncio.timeout(self._socket_timeout_s):
            await connection.send_packed_command(connection.pack_commands(words))

    async def _read(
        self, connection: redis.asyncio.connection.AbstractConnection, flight: _Flight
    ) -> Any:
        try:
            async with asyncio.timeout(self._socket_timeout_s):
                return await connection.read_response()
        except TimeoutError:
            raise TimeoutError(f"silent for {self._socket_timeout_s:g} s") from None
        except ResponseError as error:
            return flight.translate(error)
