"""What a server program says about itself decides whether inferq starts it."""

import pytest

from inferq.server_binary import OLDEST, parse_version

SPOKEN = [
    (
        "Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64 build=ae4d7c971a948f0",
        ("redis", (7, 0, 15)),
    ),
    (
        "Valkey server v=9.1.2 sha=00000000:1 malloc=libc bits=64 build=1536df31c0395150\n",
        ("valkey", (9, 1, 2)),
    ),
    ("Redis server v=255.255.255 sha=00000000:0", ("redis", (255, 255, 255))),
    ("Redis server v=8.10.3-int sha=00000000:0", ("redis", (8, 10, 3))),
    ("a warning of a wrapper\nRedis server v=6.2.14 sha=0\n", ("redis", (6, 2, 14))),
    ("KeyDB server v=6.3.4 sha=00000000:0", None),
    ("dragonfly v1.27.1-9d1a7e3", None),
    ("my Redis server v=7.0.15", None),
    ("Redis server v=7.0", None),
    ("", None),
]


@pytest.mark.parametrize(("text", "expected"), SPOKEN)
def test_what_a_server_says_about_itself(text: str, expected: object) -> None:
    """Kind and version come from the text alone, and only Redis and Valkey are known."""
    assert parse_version(text) == expected


@pytest.mark.parametrize(
    ("kind", "too_old", "good"),
    [("redis", (6, 2, 14), (7, 0, 0)), ("valkey", (7, 2, 8), (8, 0, 0))],
)
def test_oldest_versions(
    kind: str, too_old: tuple[int, int, int], good: tuple[int, int, int]
) -> None:
    """Redis is served from 7.0 and Valkey from 8.0 on, whatever the length of a number."""
    assert too_old < OLDEST[kind] <= good < (10, 0, 0)
