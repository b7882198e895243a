"""An address is understood or refused, and its password is seen in neither case."""

from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from redis.connection import Connection, SSLConnection, UnixDomainSocketConnection

from inferq.contract.errors import InvalidSetting
from inferq.endpoint import Endpoint, masked, open_endpoint

SHOWN = [
    ("redis://localhost:6379/0", "redis://localhost:6379/0"),
    ("rediss://h", "rediss://h"),
    ("redis://[::1]:6379/1", "redis://[::1]:6379/1"),
    ("redis://:s3cret@h:1/0", "redis://:***@h:1/0"),
    ("redis://user:s3cret@h/0", "redis://user:***@h/0"),
    ("redis://user:s3%40cret@h", "redis://user:***@h"),
    # A name alone: more likely a password in its place.
    ("redis://s3cret@h", "redis://***@h"),
    ("unix:///run/redis.sock", "unix:///run/redis.sock"),
    ("unix:///run/redis.sock?db=3", "unix:///run/redis.sock?db=3"),
    ("unix:///r.sock?db=1&password=s3cret", "unix:///r.sock?db=1&password=***"),
    # An "&" may be a part of the password.
    ("unix:///r.sock?password=s3&cret=", "unix:///r.sock?password=***"),
    ("unix://u:s3cret@/r.sock", "unix://u:***@/r.sock"),
    ("rediss://h?ssl_ca_certs=/ca.pem&ssl_password=s3cret",
     "rediss://h?ssl_ca_certs=/ca.pem&ssl_password=***"),
    ("redis://h?PASSWORD=s3cret", "redis://h?PASSWORD=***"),
    # Not escaped: where the password ends is anybody's guess.
    ("redis://user:s3/cret@h/0", "redis://***"),
    ("redis://user:s3?cret@h/0", "redis://***"),
    ("redis://user:s3#cret@h/0", "redis://***"),
    ("redis://user:s3@cret@h/0", "redis://user:***@h/0"),
    ("redis://user:s3[cret@h/0", "redis://***"),
    # No host, so that the password is where a port should be.
    ("redis://user:s3cret", "redis://user:***"),
    ("redis://h:99999", "redis://h:***"),
    # No scheme.
    ("user:s3cret@h", "***@h"),
    ("localhost:6379", "localhost:6379"),
    ("embedded", "embedded"),
    ("", ""),
]  # fmt: skip


@pytest.mark.parametrize(("url", "shown"), SHOWN)
def test_what_is_shown(url: str, shown: str) -> None:
    """The shown address keeps what helps to find a mistake, and no password."""
    assert masked(url) == shown


# Two letters that no sentence about an address has, and what breaks an address.
passwords = st.text(alphabet="QZ/?#@:[]%& =\\", min_size=4, max_size=12).filter(
    lambda text: "Q" in text or "Z" in text
)


@settings(max_examples=500)
@given(
    password=passwords,
    place=st.sampled_from(
        [
            "redis://user:{}@host:6379/0",
            "redis://:{}@host",
            "rediss://user:{}@host/1?db=2",
            "redis://user:{}@host/not-a-number",
            "redis://user:{}@host:no-port",
            "unix:///run/r.sock?password={}",
            "redis://host?password={}&db=1",
            "user:{}@host",
            "http://user:{}@host",
        ]
    ),
    escaped=st.booleans(),
)
def test_no_password_is_shown(password: str, place: str, *, escaped: bool) -> None:
    """Neither the shown address nor the sentence about a wrong one holds a part of a password."""
    url = place.format(quote(password, safe="") if escaped else password)
    assert not {"q", "z"} & set(masked(url).lower())
    try:
        text = repr(Endpoint.parse(url))
    except InvalidSetting as error:
        text = str(error)
    assert not {"q", "z"} & set(text.lower())


def test_a_representation_shows_no_password() -> None:
    """An endpoint in a log or a debugger shows the masked address alone."""
    assert "s3cret" not in repr(Endpoint.parse("redis://user:s3cret@h"))


def test_arguments_of_a_connection() -> None:
    """Host, port, database, user and password arrive at the connection, escapes undone."""
    connection = Endpoint.parse("redis://us%40er:s3%2Fcret@h:7/3").connection(9.0)
    assert isinstance(connection, Connection)
    assert (connection.host, connection.port, connection.db) == ("h", 7, 3)
    assert (connection.username, connection.password) == ("us@er", "s3/cret")
    assert (connection.socket_timeout, connection.socket_connect_timeout) == (9.0, 5.0)


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("redis://h", Connection),
        ("rediss://h", SSLConnection),
        ("unix:///run/r.sock", UnixDomainSocketConnection),
    ],
)
def test_kinds_of_connections(url: str, kind: type[object]) -> None:
    """The scheme decides how to connect."""
    assert type(Endpoint.parse(url).connection(1.0)) is kind


@pytest.mark.parametrize(
    "query",
    [
        "decode_responses=true", "encoding=utf-16", "protocol=3", "retry_on_timeout=1", "retry=1",
        "retry_on_error=x", "socket_timeout=99", "socket_connect_timeout=99",
    ],
)  # fmt: skip
def test_arguments_of_other_programs(query: str) -> None:
    """What an address asks for other programs' sake does not change how inferq talks to Redis."""
    connection = Endpoint.parse(f"redis://h?{query}").connection(1.0)
    assert isinstance(connection, Connection)
    assert connection.encoder.decode(b"\xff") == b"\xff"
    assert connection.encoder.encode("é") == "é".encode()
    assert connection.protocol == 2
    assert connection.retry.get_retries() == 0
    assert connection.socket_timeout == 1.0


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("", "the scheme is another"),
        ("localhost:6379", "the scheme is another"),
        ("redis:h:1", "the scheme is another"),
        ("http://h", "the scheme is another"),
        ("embedded ", "the scheme is another"),
        ("redis://h:x", "the port must be a number from 0 to 65535"),
        ("redis://h:65536", "the port must be a number"),
        ("redis://h/abc", "the database must be a number"),
        ("redis://h/-1", "the database must be a number"),
        ("redis://h?db=abc", "Invalid value for 'db'"),
        ("unix://", "the path of the socket is missing"),
        ("redis://h?colour=red", "got an unexpected keyword argument 'colour'"),
        ("redis://u:s3cret@h?colour=red", "(an argument is unknown or wrong)"),
        ("redis://h?maint_notifications_config=1", "maint_notifications_config=1"),
        ("redis://[::1", "this is no URL"),
    ],
)
def test_addresses_that_are_refused(url: str, words: str) -> None:
    """A wrong address is refused with what was expected and what is wrong with it."""
    with pytest.raises(InvalidSetting, match="expected redis://HOST:PORT/DB") as caught:
        Endpoint.parse(url)
    assert words in str(caught.value)


def test_opening_an_address() -> None:
    """An ordinary address needs nothing opened and nothing closed."""
    with open_endpoint("redis://user:s3cret@h") as endpoint:
        assert endpoint.shown == "redis://user:***@h"
