"""What is wrong, or will be: a server and its queues looked over, each finding with its remedy.

:func:`examine_server` and :func:`examine_model` are pure: facts in, findings out. :class:`Doctor`
gathers the facts and changes nothing.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from inferq.contract.errors import InferqError, ServerUnfit
from inferq.info import InfoReader, ModelInfo
from inferq.redis_link import Link, command
from inferq.server_checks import judge, parse_info

_COMMANDS: Final = (
    "BLMOVE", "BLMPOP", "EVAL", "EVALSHA", "HGETALL", "LRANGE", "MGET", "SADD", "SCAN", "SMEMBERS",
    "STRLEN", "TYPE", "ZRANGE",
)  # fmt: skip
_CLOCK_S: Final = 5.0
_BYTES_LEFT: Final = 0.1


class Weight(StrEnum):
    """How much a finding matters."""

    FINE = "fine"
    NOTE = "note"
    """Worth knowing; nothing to do at once."""
    BAD = "bad"
    """Requests are lost, stuck or refused, or will be."""


@dataclass(frozen=True)
class Finding:
    """One thing looked at, and what to do about it; no remedy where nothing is to be done."""

    weight: Weight
    subject: str
    fact: str
    remedy: str = ""


@dataclass(frozen=True)
class ServerFacts:
    """What a server says of itself.

    Attributes:
        info: its ``INFO``.
        missing: commands inferq needs and the server does not have.
        idle_timeout_s: after which it closes an idle connection; 0 for never, ``None`` if it
            does not tell.
        clock_s: its clock minus this machine's.
    """

    info: Mapping[str, str]
    missing: tuple[str, ...]
    idle_timeout_s: int | None
    clock_s: float


def examine_server(facts: ServerFacts, server: str, block_s: float) -> Iterator[Finding]:
    """Judge a server; ``block_s`` is how long an idle worker blocks."""
    info = facts.info
    name, version = _product(info)
    try:
        warnings = judge(info, server)
    except ServerUnfit as error:
        yield Finding(Weight.BAD, "version", str(error), "upgrade the server")
        return
    yield Finding(Weight.FINE, "version", f"{name} {version}")
    if facts.missing:
        yield Finding(
            Weight.BAD,
            "commands",
            f"the server has no {', '.join(facts.missing)}",
            "use a server that has them: some hosted ones rename or remove commands",
        )
    else:
        yield Finding(Weight.FINE, "commands", "all there")
    for warning in warnings:
        yield Finding(Weight.BAD, "eviction", warning, "CONFIG SET maxmemory-policy noeviction")
    if not warnings:
        yield Finding(Weight.FINE, "eviction", info.get("maxmemory_policy", "noeviction"))
    yield from _memory(info)
    yield from _persistence(info)
    yield from _timeouts(facts, block_s)


def _product(info: Mapping[str, str]) -> tuple[str, str]:
    if "valkey_version" in info:
        return "Valkey", info["valkey_version"]
    return "Redis", info["redis_version"]


def _memory(info: Mapping[str, str]) -> Iterator[Finding]:
    limit, used = int(info.get("maxmemory", 0)), int(info.get("used_memory", 0))
    if limit and limit - used < limit * _BYTES_LEFT:
        yield Finding(
            Weight.BAD,
            "memory",
            f"{used / limit:.0%} of maxmemory is used: submissions will be refused",
            "raise maxmemory, or drain the queues with more workers",
        )
    else:
        of = f" of {limit / 2**20:.0f} MiB" if limit else ", no limit"
        yield Finding(Weight.FINE, "memory", f"{used / 2**20:.0f} MiB used{of}")


def _persistence(info: Mapping[str, str]) -> Iterator[Finding]:
    if info.get("aof_enabled") == "1":
        if info.get("aof_last_write_status", "ok") == "ok":
            yield Finding(Weight.FINE, "persistence", "append-only file")
        else:
            yield Finding(
                Weight.BAD, "persistence", "the append-only file cannot be written", "free the disk"
            )
    elif info.get("rdb_last_bgsave_status", "ok") != "ok":
        yield Finding(
            Weight.BAD,
            "persistence",
            "the last snapshot failed, and the server may refuse writes (MISCONF)",
            "free the disk, or look into the server's log",
        )
    else:
        yield Finding(
            Weight.NOTE,
            "persistence",
            "no append-only file: a restart of the server loses what came after its last snapshot",
            "CONFIG SET appendonly yes",
        )


def _timeouts(facts: ServerFacts, block_s: float) -> Iterator[Finding]:
    idle_s = facts.idle_timeout_s
    if idle_s is not None and 0 < idle_s <= block_s:
        yield Finding(
            Weight.BAD,
            "timeout",
            f"the server closes connections after {idle_s} s, an idle worker blocks {block_s:g} s",
            f"CONFIG SET timeout 0, or INFERQ_LEASE_S={3 * idle_s / 2:g}",
        )
    elif idle_s is None:
        yield Finding(Weight.NOTE, "timeout", "the server does not tell its timeout (CONFIG GET)")
    else:
        yield Finding(Weight.FINE, "timeout", "idle connections stay open long enough")
    if abs(facts.clock_s) > _CLOCK_S:
        yield Finding(
            Weight.NOTE,
            "clock",
            f"the server's clock is {facts.clock_s:+.1f} s off this machine's; inferq uses the "
            "server's for everything two machines compare",
            "set both by NTP, so that logs can be compared",
        )
    else:
        yield Finding(Weight.FINE, "clock", f"{facts.clock_s:+.3f} s off this machine's")


def examine_model(info: ModelInfo) -> Iterator[Finding]:
    """Judge a model's queues and workers."""
    live = [worker for worker in info.workers if worker.state != "lost"]
    stale = info.in_flight - sum(worker.in_flight for worker in live)
    if stale:
        yield Finding(
            Weight.BAD,
            info.model,
            f"{stale} requests are held by workers whose lease has ended",
            "start a worker: it sets them free within a lease",
        )
    if info.waiting and not live:
        yield Finding(
            Weight.BAD,
            info.model,
            f"{info.waiting} requests wait and no worker lives",
            f"inferq worker MODULE:OBJECT --model {info.model}",
        )
    if info.depth["dead"]:
        yield Finding(
            Weight.NOTE,
            info.model,
            f"{info.depth['dead']} requests were given up on",
            f"inferq dead list {info.model}",
        )
    yield Finding(Weight.FINE, info.model, f"{info.waiting} waiting, {len(live)} workers")


class Doctor:
    """Looks a server and the models under one prefix over."""

    def __init__(self, link: Link, prefix: str, block_s: float) -> None:
        self._link = link
        self._prefix = prefix
        self._block_s = block_s

    def examine(self) -> Iterator[Finding]:
        """Yield what is found, the server first.

        Raises:
            Unavailable: the server is away.
        """
        yield from examine_server(self._facts(), self._link.endpoint.shown, self._block_s)
        reader = InfoReader(self._link, self._prefix)
        for model in reader.models():
            try:
                yield from examine_model(reader.read(model))
            except ServerUnfit as error:
                remedy = "find who else uses this key; rename the model or change the prefix"
                yield Finding(Weight.BAD, model, str(error), remedy)

    def _facts(self) -> ServerFacts:
        info, commands, clock = self._link.run(
            command("INFO"), command("COMMAND", "INFO", *_COMMANDS), command("TIME")
        )
        here_s = time.time()
        missing = [name for name, found in zip(_COMMANDS, commands, strict=True) if found is None]
        (timeout,) = self._link.once([command("CONFIG", "GET", "timeout")])
        told = not isinstance(timeout, InferqError) and len(timeout) == 2
        return ServerFacts(
            info=parse_info(info),
            missing=tuple(missing),
            idle_timeout_s=int(timeout[1]) if told else None,
            clock_s=int(clock[0]) + int(clock[1]) / 1e6 - here_s,
        )
