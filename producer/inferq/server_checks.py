"""Is this server fit to be the broker? Asked once, at the start, and answered in sentences.

:func:`judge` is the pure half: what the server says of itself in, findings out.
"""

import re
from collections.abc import Mapping

from inferq.contract.errors import ServerUnfit
from inferq.contract.keys import LANES, Keys
from inferq.redis_link import Link, command

_OLDEST_REDIS = (7, 0)
_OLDEST_VALKEY = (8, 0)


def judge(info: Mapping[str, str], server: str) -> list[str]:
    """Return warnings about a server from its ``INFO``.

    Raises:
        ServerUnfit: it is older than Redis 7.0 or Valkey 8.0, or does not say how old it is.
    """
    is_valkey = "valkey_version" in info
    name, oldest = ("Valkey", _OLDEST_VALKEY) if is_valkey else ("Redis", _OLDEST_REDIS)
    version = info.get("valkey_version" if is_valkey else "redis_version", "")
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers is None:
        raise ServerUnfit(
            f"the server at {server} does not tell its version ({version!r}): inferq needs Redis "
            "7.0 or Valkey 8.0"
        )
    if (int(numbers[1]), int(numbers[2])) < oldest:
        raise ServerUnfit(
            f"{name} {version} at {server} is too old: inferq needs Redis 7.0 or Valkey 8.0"
        )
    policy = info.get("maxmemory_policy", "noeviction")
    limit = int(info.get("maxmemory", 0))
    if policy == "noeviction":
        return []
    danger = "whole queues" if policy.startswith("allkeys") else "unread replies"
    when = "as soon as a memory limit is set" if limit == 0 else "when memory runs out"
    warning = (
        f"maxmemory-policy {policy} at {server} lets the server drop {danger} {when}: set it to "
        "noeviction"
    )
    return [warning]


def check_server(link: Link, keys: Keys, *, patience_s: float) -> list[str]:
    """Ask the server and look at the model's lanes; return warnings.

    Raises:
        Unavailable: no answer within ``patience_s``.
        ServerUnfit: too old, or a lane is a key of another type.
    """
    lanes = {name: keys.lane(name) for name in LANES}
    server, memory, *types = link.run(
        command("INFO", "server"),
        command("INFO", "memory"),
        *(command("TYPE", lane) for lane in lanes.values()),
        patience_s=patience_s,
    )
    for lane, found in zip(lanes.values(), types, strict=True):
        if found not in {b"none", b"list"}:
            raise ServerUnfit(
                f"key '{lane}' at {link.endpoint.shown} is a {found.decode()}, not a list: another "
                "program uses this name; choose another model name or prefix"
            )
    return judge({**parse_info(server), **parse_info(memory)}, link.endpoint.shown)


def parse_info(text: bytes) -> dict[str, str]:
    """Read the answer of ``INFO``."""
    return dict(
        line.split(":", 1)
        # The path of the server's own program need not be UTF-8.
        for line in text.decode(errors="replace").splitlines()
        if ":" in line and line[0] != "#"
    )
