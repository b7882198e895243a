"""A server is judged by what it says of itself."""

from typing import Any

import pytest

from inferq.contract.errors import ServerUnfit
from inferq.server_checks import judge, parse_info


@pytest.mark.parametrize(
    "info",
    [
        {"redis_version": "7.0.0"},
        {"redis_version": "7.0.15"},
        {"redis_version": "8.2.1"},
        {"redis_version": "10.0.0"},
        {"redis_version": "255.255.255"},
        {"redis_version": "7.4"},
        {"valkey_version": "8.0.0-rc1", "redis_version": "7.2.4"},
        {"valkey_version": "9.1.2", "redis_version": "7.2.4"},
    ],
)
def test_servers_that_are_new_enough(info: dict[str, str]) -> None:
    """Redis from 7.0 and Valkey from 8.0 on are fit, without a warning."""
    assert judge({**info, "maxmemory_policy": "noeviction"}, "here") == []


@pytest.mark.parametrize(
    ("info", "words"),
    [
        ({"redis_version": "6.2.14"}, "Redis 6.2.14 at here is too old: inferq needs Redis 7.0"),
        ({"redis_version": "2.8.0"}, "Redis 2.8.0 at here is too old"),
        # Valkey tells the Redis version it is compatible with, too.
        ({"valkey_version": "7.2.8", "redis_version": "7.2.4"}, "Valkey 7.2.8 at here is too old"),
        ({}, "the server at here does not tell its version"),
        ({"redis_version": "unstable"}, r"does not tell its version \('unstable'\)"),
    ],
)
def test_servers_that_are_too_old(info: dict[str, str], words: str) -> None:
    """Older servers, and those of unknown age, are unfit in a sentence with the address."""
    with pytest.raises(ServerUnfit, match=words):
        judge(info, "here")


@pytest.mark.parametrize(
    ("policy", "limit", "words"),
    [
        ("allkeys-lru", "1000000", "drop whole queues when memory runs out: set it to noeviction"),
        ("allkeys-random", "0", "drop whole queues as soon as a memory limit is set"),
        ("volatile-ttl", "1000000", "drop unread replies when memory runs out"),
    ],
)
def test_eviction_policies(policy: str, limit: str, words: str) -> None:
    """A policy that can drop queues or replies is warned about, by name and with the way out."""
    info = {"redis_version": "7.0.15", "maxmemory_policy": policy, "maxmemory": limit}
    (warning,) = judge(info, "here")
    assert f"maxmemory-policy {policy} at here" in warning
    assert words in warning


@pytest.mark.parametrize(
    ("text", "info"),
    [
        (b"", {}),
        (
            b"# Server\r\nredis_version:7.0.15\r\n\r\n# Memory\r\nmaxmemory:0\r\n",
            {"redis_version": "7.0.15", "maxmemory": "0"},
        ),
        (b"executable:/opt/a:b/redis\r\n", {"executable": "/opt/a:b/redis"}),
        (b"config_file:/etc/\xff.conf\r\n", {"config_file": "/etc/\ufffd.conf"}),
    ],
)
def test_answers_of_info(text: bytes, info: dict[str, Any]) -> None:
    """INFO reads as names and values, whatever bytes its paths have."""
    assert parse_info(text) == info
