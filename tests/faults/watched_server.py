"""The real server of a simulation, with the scheduler's clock, watched step by step.

What is seen from outside is kept in :class:`Truth` and compared with what the scripts say.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import redis

from inferq.contract import scripts
from inferq.contract.keys import Keys
from support.script_calls import Call


class Source(NamedTuple):
    """A script call with its source, which a server that lost the script cannot refuse."""

    call: Call


class Move(NamedTuple):
    """A BLMOVE from the normal lane into a claim."""

    worker: str
    number: int


class Read(NamedTuple):
    """Any command that changes nothing."""

    words: tuple[str, ...]


Step = Call | Source | Move | Read


@dataclass
class Truth:
    """What happened, seen from outside.

    Attributes:
        kinds: how a worker id held a request: ``ordinary``, ``suspect`` or ``started``.
        buried: worker ids that were recovered as lapsed or dead.
        ran: how often each request was run; killed: how many processes each took with it.
        asked: how many clients submit a request.
        accepted, refused: what they were told of a submission.
        withdrawn, kept: what they were told of a cancellation.
        copied: calls of which a copy came late, whatever their sender was told.
        batches: closing completions that ran.
    """

    kinds: dict[tuple[str, str], str] = field(default_factory=dict)
    buried: set[str] = field(default_factory=set)
    ran: Counter[str] = field(default_factory=Counter)
    killed: Counter[str] = field(default_factory=Counter)
    asked: Counter[str] = field(default_factory=Counter)
    accepted: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)
    withdrawn: set[str] = field(default_factory=set)
    kept: set[str] = field(default_factory=set)
    copied: list[Call] = field(default_factory=list)
    batches: int = 0

    def deaths(self, request: str) -> int:
        """Return how many worker ids ended badly with this request in hand."""
        return sum(
            worker in self.buried and kind != "suspect"
            for (worker, held), kind in self.kinds.items()
            if held == request
        )


class Snapshot(NamedTuple):
    """What a replica had seen: keys with their content and life in ms, and closed batches."""

    keys: dict[Any, tuple[Any, int]]
    batches: int


class Server:
    """The real server, with the scheduler's clock, watched step by step."""

    def __init__(self, client: redis.Redis, keys: Keys) -> None:
        self.client = client
        self.keys = keys
        self.run_id = 1
        self.truth = Truth()
        self._sources = {name: _with_clock(scripts.load(name).source) for name in scripts.ALL}
        self._hashes = {name: client.script_load(text) for name, text in self._sources.items()}

    def run(self, step: Step, now_ms: int) -> Any:
        """Run one step; an error reply is returned as its first word."""
        call = step.call if isinstance(step, Source) else step
        before = self._leases()
        try:
            answer = self._send(step, now_ms)
        except redis.exceptions.NoScriptError:
            return "NOSCRIPT"
        except redis.exceptions.OutOfMemoryError:
            return "OOM"
        if isinstance(call, Call):
            self._watch(call, answer, before)
        elif isinstance(call, Move):
            self._note(self.keys.claimed(call.worker, call.number))
        return answer

    def _send(self, step: Step, now_ms: int) -> Any:
        if isinstance(step, Move):
            target = self.keys.claimed(step.worker, step.number)
            return self.client.lmove(self.keys.normal, target, "LEFT", "RIGHT")
        if isinstance(step, Read):
            return self.client.execute_command(*step.words)
        call = step.call if isinstance(step, Source) else step
        words = (len(call.keys), *call.keys, *call.args, now_ms)
        if isinstance(step, Source):
            return self.client.execute_command("EVAL", self._sources[call.script], *words)
        return self.client.execute_command("EVALSHA", self._hashes[call.script], *words)

    def _leases(self) -> set[bytes]:
        members: list[Any] = self.client.zrange(self.keys.workers, 0, -1)
        return set(members)

    def _watch(self, call: Call, answer: Any, before: set[bytes]) -> None:
        for key in call.keys:
            if ":claimed:" in key:
                self._note(key)
        if call.script == "complete" and answer >= 0 and call.args[2]:
            self.truth.batches += 1
        if call.script == "recover" and call.args[1] != "leave":
            worker = str(call.args[0])
            gone = worker.encode() in before - self._leases()
            if gone or answer[0]:
                self.truth.buried.add(worker)

    def _note(self, claimed: str) -> None:
        """Keep in mind who holds what, and how."""
        worker = claimed.split(":claimed:")[1].split(":", maxsplit=1)[0]
        record = _text(self.client.hget(self.keys.claims, claimed) or b"")
        kind = record.partition(" ")[2] or "ordinary"
        for place, element in enumerate(self.client.lrange(claimed, 0, -1)):
            request = _text(element).rpartition("|")[2]
            self.truth.kinds[worker, request] = kind if place == 0 else "ordinary"

    def set_full(self, *, full: bool) -> None:
        """Put the server over its memory limit, or give it room again."""
        self.client.config_set("maxmemory", 1 if full else 0)

    def snapshot(self) -> Snapshot:
        """Return everything there is, as a replica would have it."""
        keys = list(self.client.scan_iter(match=f"*{self.keys.normal}*", count=10_000))
        found = {key: (self.client.dump(key), max(0, self.client.pttl(key))) for key in keys}
        return Snapshot(found, self.truth.batches)

    def fail_over(self, snapshot: Snapshot) -> None:
        """Become the replica that had seen so much, and no more."""
        self.truth.batches = snapshot.batches
        self.set_full(full=False)
        for key in self.client.scan_iter(match=f"*{self.keys.normal}*", count=10_000):
            self.client.delete(key)
        for key, (value, life_ms) in snapshot.keys.items():
            self.client.restore(key, life_ms, value)
        self.run_id += 1


def _text(value: Any) -> str:
    text: str = value.decode()
    return text


def _with_clock(source: str) -> str:
    """Give a script the clock of its caller, who passes it as a further argument."""
    shebang, _, body = source.partition("\n")
    time = "{ math.floor(NOW / 1000), NOW % 1000 * 1000 }"
    body = body.replace("redis.call('TIME')", time)
    return f"{shebang}\nlocal NOW = tonumber(table.remove(ARGV))\n{body}"
