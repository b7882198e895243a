"""Where Redis is: an address, taken apart once, with its secrets kept out of every message."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit

import redis.asyncio.connection
import redis.connection

from inferq.contract.errors import InvalidSetting

EMBEDDED = "embedded"
"""The address that stands for a private server; see :mod:`inferq.embedded`."""


def masked(url: str) -> str:
    """Return the address as it may be shown: any password replaced by ``***``.

    So is whatever could be one in an address that is written wrong.
    """
    scheme, separator, rest = url.partition("://")
    if not separator:
        # No address, but perhaps one whose scheme was forgotten.
        return url if "@" not in url else "***@" + url.rpartition("@")[2]
    hidden = f"{scheme}://***"
    try:
        parts = urlsplit(url)
    except ValueError:
        return hidden
    login, at, host = parts.netloc.rpartition("@")
    if "@" in rest.replace(parts.netloc, "", 1) or parts.fragment:
        # Where a password is not escaped, it ends somewhere behind what looks like the host.
        return hidden
    if not _has_port(parts):
        # Without an "@" the port may be the password of an address that lacks its host.
        return hidden if at else f"{scheme}://{host.partition(':')[0]}:***"
    user, colon, _ = login.partition(":")
    # A name alone is nothing Redis could check: more likely it is a password in the wrong place.
    shown_login = f"{user}:***@" if colon else "***@" if at else ""
    query = _without_secrets(parts.query)
    return f"{parts.scheme}://{shown_login}{host}{parts.path}" + (f"?{query}" if query else "")


def _without_secrets(query: str) -> str:
    """Cut a query at its first password: an "&" behind it may be a part of it."""
    shown = []
    for name, value in parse_qsl(query, keep_blank_values=True):
        if "pass" in name.lower():
            shown.append((name, "***"))
            break
        shown.append((name, value))
    return urlencode(shown, safe="*/")


def _has_port(parts: SplitResult) -> bool:
    """Tell whether the port is one, or absent."""
    try:
        return parts.port is None or parts.port >= 0
    except ValueError:
        return False


def _misplaced(url: str) -> str:
    """Say what is wrong with the place an address names; redis-py passes over some of it."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "this is no URL"
    if not url.startswith(("redis://", "rediss://", "unix://")):
        return "the scheme is another"
    if not _has_port(parts):
        return "the port must be a number from 0 to 65535"
    if parts.scheme == "unix":
        return "" if parts.path else "the path of the socket is missing"
    database = parts.path.strip("/")
    return "" if not database or database.isdecimal() else "the database must be a number"


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
        wrong = _misplaced(url)
        if not wrong:
            try:
                endpoint.connection(socket_timeout_s=1)
            except Exception as error:  # noqa: BLE001 - a wrong argument may break anything in there
                # "__init__() got an unexpected ...": whose argument it is says nothing to a user.
                # What quotes an argument may quote a password that is not escaped.
                said = str(error).rpartition("() ")[2]
                wrong = "an argument is unknown or wrong" if "***" in endpoint.shown else said
        if wrong:
            raise InvalidSetting(
                f"Redis address {endpoint.shown!r}: expected redis://HOST:PORT/DB, rediss://..., "
                f"unix:///PATH or '{EMBEDDED}' ({wrong})"
            )
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
    given = {name: value for name, value in parse(url).items() if not name.startswith("retry")}
    kind = given.pop("connection_class", default)
    ours = {
        "socket_timeout": socket_timeout_s,
        "socket_connect_timeout": min(socket_timeout_s, 5.0),
        # Answers stay lists of bytes, whatever the library's default protocol becomes and other
        # programs that share this address want to have decoded.
        "protocol": 2,
        "decode_responses": False,
        "encoding": "utf-8",
        "encoding_errors": "strict",
    }
    return kind(**{**given, **ours})
