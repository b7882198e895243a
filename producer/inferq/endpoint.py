"""Where Redis is: an address, taken apart once, with its secrets kept out of every message."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import redis.asyncio.connection
import redis.connection

from inferq.contract.errors import InvalidSetting

EMBEDDED = "embedded"
"""The address that stands for a private server; see :mod:`inferq.embedded`."""

_SECRET_QUERIES = frozenset({"password", "ssl_password"})


def masked(url: str) -> str:
    """Return the address as it may be shown: any password replaced by ``***``."""
    if "://" not in url:
        # No address, but perhaps one whose scheme was forgotten.
        return url if "@" not in url else "***@" + url.rpartition("@")[2]
    try:
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
    except ValueError:
        return url.partition(":")[0] + "://***"
    user = "" if parts.username is None else parts.username
    login = f"{user}:***@" if parts.password is not None else f"{user}@" if user else ""
    query = urlencode(
        [
            (name, "***" if name in _SECRET_QUERIES else value)
            for name, value in parse_qsl(parts.query, keep_blank_values=True)
        ],
        safe="*/",
    )
    return f"{parts.scheme}://{login}{host}{parts.path}" + (f"?{query}" if query else "")


@dataclass(frozen=True)
class Endpoint:
    """A server's address as connection arguments.

    Attributes:
        shown: the address without secrets, for messages and logs.
    """

    shown: str
    _url: str = field(repr=False)

    @staticmethod
    def parse(url: str) -> "Endpoint":
        """Take ``redis://``, ``rediss://`` or ``unix://`` apart.

        Raises:
            InvalidSetting: another scheme, an argument redis-py does not know, or no path or port
                that could be meant.
        """
        endpoint = Endpoint(masked(url), url)
        try:
            endpoint.connection(socket_timeout_s=1)
        except (ValueError, TypeError) as error:
            # TypeError: a query argument that no connection takes. Its text names only that.
            detail = str(error).rpartition(") ")[2].replace(url, endpoint.shown)
            raise InvalidSetting(
                f"Redis address {endpoint.shown!r}: expected redis://HOST:PORT/DB, rediss://..., "
                f"unix:///PATH or '{EMBEDDED}' ({detail})"
            ) from None
        return endpoint

    def connection(self, socket_timeout_s: float) -> redis.connection.AbstractConnection:
        """Make a blocking connection, not yet opened, that never retries by itself.

        redis-py would send a command again whose reply was lost; only the caller knows whether
        that is safe.
        """
        made: redis.connection.AbstractConnection = _make(
            redis.connection.parse_url, redis.connection.Connection, self._url, socket_timeout_s
        )
        return made

    def async_connection(
        self, socket_timeout_s: float
    ) -> redis.asyncio.connection.AbstractConnection:
        """Make the same for asyncio."""
        made: redis.asyncio.connection.AbstractConnection = _make(
            redis.asyncio.connection.parse_url,
            redis.asyncio.connection.Connection,
            self._url,
            socket_timeout_s,
        )
        return made


@contextmanager
def open_endpoint(url: str) -> Iterator[Endpoint]:
    """Yield the endpoint of an address; ``embedded`` holds a private server meanwhile.

    Raises:
        InvalidSetting: see :meth:`Endpoint.parse`.
        ServerUnfit: no server program is found for ``embedded``, or it does not start.
    """
    if url != EMBEDDED:
        yield Endpoint.parse(url)
        return
    # Imported here: it is for POSIX only, and most addresses do not need it.
    from inferq import embedded  # noqa: PLC0415

    with embedded.start() as server:
        yield Endpoint.parse(server.url)


def _make(
    parse: Callable[[str], Mapping[str, Any]], default: type[Any], url: str, socket_timeout_s: float
) -> Any:
    given = dict(parse(url))
    kind = given.pop("connection_class", default)
    ours = {
        "socket_timeout": socket_timeout_s,
        "socket_connect_timeout": min(socket_timeout_s, 5.0),
        # Answers stay lists of bytes whatever the library's default protocol becomes.
        "protocol": 2,
    }
    return kind(**{**given, **ours})
