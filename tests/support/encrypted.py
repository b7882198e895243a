"""TLS in front of a server that knows none: a proxy that ends the encryption.

The certificate is for localhost and made for these tests only::

    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 36500 \
        -keyout key.pem -out certificate.pem -subj /CN=localhost \
        -addext "subjectAltName=DNS:localhost,IP:127.0.0.1"
"""

import asyncio
import contextlib
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

CERTIFICATE = Path(__file__).with_name("tls") / "certificate.pem"
_KEY = CERTIFICATE.with_name("key.pem")


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    try:
        with contextlib.suppress(OSError):
            while data := await source.read(65_536):
                sink.write(data)
                await sink.drain()
    finally:
        # Also when it is cancelled: a stream left open is complained about by a later test.
        sink.close()


@contextlib.contextmanager
def encrypted(socket_path: str) -> Iterator[int]:
    """Yield the port on 127.0.0.1 where TLS leads to a server's Unix socket."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(CERTIFICATE, _KEY)
    loop = asyncio.new_event_loop()

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer):
            up_reader, up_writer = await asyncio.open_unix_connection(socket_path)
            await asyncio.gather(_copy(reader, up_writer), _copy(up_reader, writer))

    server = loop.run_until_complete(asyncio.start_server(connect, "127.0.0.1", 0, ssl=context))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        asyncio.run_coroutine_threadsafe(_end(server), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _end(server: asyncio.Server) -> None:
    server.close()
    tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
