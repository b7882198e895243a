"""A proxy in front of a Redis server: it loses, delays, stalls, cuts and refuses on command.

It splits both streams, so it knows which reply answers which command: "lose the reply of the next
``claim``" is exact. A reply is lost as in life: the command has run, and the connection ends before
the answer arrives. Chance is drawn for each connection from the seed and the connection's number.
"""

import asyncio
import contextlib
import random
import threading
from collections import Counter, deque
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Self, TypeVar

from support.resp import end_of, kind_of

T = TypeVar("T")

_CHUNK = 256 * 1024
_PATIENCE_S = 10.0


class Loss:
    """A reply that is to be lost: the ``nth`` from now on of commands of its kind.

    Attributes:
        kind: a command or script, as :func:`support.resp.kind_of` calls it.
        happened: set when it is lost.
    """

    def __init__(self, kind: str, nth: int) -> None:
        self.kind = kind
        self.happened = threading.Event()
        self._left = nth

    def meets(self, kind: str) -> bool:
        """Count a reply; tell whether it is the one."""
        if kind != self.kind or self.happened.is_set():
            return False
        self._left -= 1
        if self._left == 0:
            self.happened.set()
        return self._left == 0


class Hold(threading.Event):
    """A connection that is to stand still at the ``nth`` command from now on; set when it does.

    Args:
        is_before: the command does not reach the server; otherwise its reply does not come back.
    """

    def __init__(self, nth: int, *, is_before: bool) -> None:
        super().__init__()
        self._is_before = is_before
        self._left = nth

    def meets(self, *, is_command: bool) -> bool:
        """Count a command or a reply; tell whether it is the one."""
        if is_command != self._is_before or self.is_set():
            return False
        self._left -= 1
        if self._left == 0:
            self.set()
        return self._left == 0


class Proxy:
    """Listens on 127.0.0.1 and speaks to a server's Unix socket, until the ``with`` block ends.

    Everything may be called from any thread, and has happened when it returns.

    Attributes:
        url: its address.
        replies: replies passed on, by kind of command.
        lost: replies lost, by kind of command.
    """

    def __init__(self, target: Path, *, seed: int = 0) -> None:
        self.replies: Counter[str] = Counter()
        self.lost: Counter[str] = Counter()
        self.url = ""
        self._target = target
        self._seed = seed
        self._port = 0
        self._opened = 0
        # All below is touched by the loop's thread only.
        self._connections: set[_Connection] = set()
        self._losses: list[Loss] = []
        self._holds: list[Hold] = []
        self._lost_share = 0.0
        self._delay_s = 0.0
        self._listener: asyncio.Server | None = None
        self._loop = asyncio.new_event_loop()
        # A bug in here would look like a fault that nobody asked for.
        self._complaints: list[str] = []
        self._loop.set_exception_handler(lambda _, context: self._complaints.append(str(context)))
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    # What goes wrong ----------------------------------------------------------------------------

    def lose_next(self, kind: str, nth: int = 1) -> Loss:
        """Lose one reply: the ``nth`` from now on of commands of this kind."""
        loss = Loss(kind, nth)
        self._do(lambda: self._losses.append(loss))
        return loss

    def hold_next(self, nth: int, *, is_before: bool) -> Hold:
        """Let a connection stand still at the ``nth`` command of all; see :class:`Hold`.

        It stands until :meth:`end_stalled`, and what was held is never passed on.
        """
        hold = Hold(nth, is_before=is_before)
        self._do(lambda: self._holds.append(hold))
        return hold

    def lose_share(self, share: float) -> None:
        """Lose this share of all replies from now on, 0 to 1."""
        self._do(lambda: setattr(self, "_lost_share", share))

    def delay(self, seconds: float) -> None:
        """Hold whatever arrives for so long from now on, in each direction."""
        self._do(lambda: setattr(self, "_delay_s", seconds))

    def cut(self) -> int:
        """End all connections; return how many there were."""
        return self._do(self._abort_all)

    def stall(self) -> int:
        """Pass nothing more on the connections that there are, and do not end them; count them.

        New ones work: the network lost the state of the old ones.
        """

        def stall() -> int:
            for connection in self._connections:
                connection.flowing.clear()
            return len(self._connections)

        return self._do(stall)

    def end_stalled(self) -> None:
        """End the connections that are stalled, for the server too."""

        def end() -> None:
            for connection in list(self._connections):
                if not connection.flowing.is_set():
                    connection.abort()

        self._do(end)

    def refuse(self) -> None:
        """End all connections and take no new ones."""

        def refuse() -> None:
            if self._listener is not None:
                self._listener.close()
                self._listener = None
            self._abort_all()

        self._do(refuse)

    def accept(self) -> None:
        """Take connections again, at the same address."""
        self._run(self._listen())

    def retarget(self, target: Path) -> None:
        """Lead new connections to another server, as a moved address does; old ones stay."""
        self._do(lambda: setattr(self, "_target", target))

    # How it works -------------------------------------------------------------------------------

    def is_lost(self, kind: str, chance: random.Random) -> bool:
        """Decide about one reply. For the connections."""
        # A list, since each must count the reply.
        chosen = [loss.meets(kind) for loss in self._losses]
        is_lost = any(chosen) or chance.random() < self._lost_share
        (self.lost if is_lost else self.replies)[kind] += 1
        return is_lost

    def is_held(self, *, is_command: bool) -> bool:
        """Decide about one command or reply. For the connections."""
        met = [hold.meets(is_command=is_command) for hold in self._holds]
        return any(met)

    async def pause(self) -> None:
        """Wait as long as anything that arrives is held. For the connections."""
        if self._delay_s:
            await asyncio.sleep(self._delay_s)

    def __enter__(self) -> Self:
        self._thread.start()
        self._run(self._listen())
        return self

    def __exit__(self, *_: object) -> None:
        self.refuse()
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_PATIENCE_S)
        self._loop.close()
        assert not self._complaints, self._complaints

    async def _listen(self) -> None:
        if self._listener is None:
            self._listener = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
            self._port = self._listener.sockets[0].getsockname()[1]
            self.url = f"redis://127.0.0.1:{self._port}"

    async def _serve(
        self, client_in: asyncio.StreamReader, client_out: asyncio.StreamWriter
    ) -> None:
        self._opened += 1
        chance = random.Random(f"{self._seed}:{self._opened}")
        try:
            server_in, server_out = await asyncio.open_unix_connection(self._target)
        except OSError:
            client_out.transport.abort()
            return
        connection = _Connection(self, chance, client_out, server_out)
        self._connections.add(connection)
        try:
            await connection.carry(client_in, server_in)
        finally:
            connection.abort()
            self._connections.discard(connection)

    async def _end(self) -> None:
        # Not cancelled: asyncio complains of a server's tasks that are.
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        await asyncio.gather(*tasks, return_exceptions=True)

    def _abort_all(self) -> int:
        connections = list(self._connections)
        for connection in connections:
            connection.abort()
        return len(connections)

    def _do(self, action: Callable[[], T]) -> T:
        async def act() -> T:
            return action()

        return self._run(act())

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(_PATIENCE_S)


class _Connection:
    """One client's connection and its twin to the server."""

    def __init__(
        self,
        proxy: Proxy,
        chance: random.Random,
        client: asyncio.StreamWriter,
        server: asyncio.StreamWriter,
    ) -> None:
        self.flowing = asyncio.Event()
        self.flowing.set()
        self._proxy = proxy
        self._chance = chance
        self._client = client
        self._server = server
        # Kinds of the commands that are not answered yet.
        self._asked: deque[str] = deque()
        self._ended = asyncio.Event()

    async def carry(self, from_client: asyncio.StreamReader, server: asyncio.StreamReader) -> None:
        """Carry both ways until either end closes, or a reply is lost."""
        ways: list[asyncio.Future[object]] = [
            asyncio.ensure_future(self._carry(from_client, is_command=True)),
            asyncio.ensure_future(self._carry(server, is_command=False)),
            asyncio.ensure_future(self._ended.wait()),
        ]
        try:
            done, _ = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for way in done:
                way.result()
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

    def abort(self) -> None:
        """End both ends at once."""
        self._ended.set()
        self._client.transport.abort()
        self._server.transport.abort()

    async def _carry(self, source: asyncio.StreamReader, *, is_command: bool) -> None:
        forward = self._pass_command if is_command else self._pass_reply
        stream = bytearray()
        with contextlib.suppress(ConnectionError):
            while chunk := await source.read(_CHUNK):
                await self._proxy.pause()
                stream += chunk
                start = 0
                while (end := end_of(stream, start)) is not None:
                    if self._proxy.is_held(is_command=is_command):
                        self.flowing.clear()
                    await self.flowing.wait()
                    writer = forward(bytes(stream[start:end]))
                    if writer is None:
                        return
                    start = end
                    await writer.drain()
                del stream[:start]

    def _pass_command(self, command: bytes) -> asyncio.StreamWriter | None:
        self._asked.append(kind_of(command))
        self._server.write(command)
        return self._server

    def _pass_reply(self, reply: bytes) -> asyncio.StreamWriter | None:
        if self._proxy.is_lost(self._asked.popleft(), self._chance):
            return None
        self._client.write(reply)
        return self._client
