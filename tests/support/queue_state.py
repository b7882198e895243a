"""A model's keys as one dictionary: to lay out, to change by one script call, to compare.

Names are short: ``normal``, ``high``, ``claimed:w:1``, ``reply:a``. Lists are lists, hashes are
dictionaries, strings are strings. ``workers`` tells of each worker whether it is ``alive`` or
``lapsed`` instead of a time.
"""

from collections.abc import Mapping
from typing import Any

import redis

from inferq.contract import scripts
from inferq.contract.keys import Keys
from support.script_calls import LEASE_MS, LIFE_MS, Call, Calls

State = dict[str, Any]


class Queue:
    """One model's keys on one server.

    ``shebang`` is False for fakeredis, whose Lua does not know that line.
    """

    def __init__(self, client: redis.Redis, prefix: str, *, shebang: bool = True) -> None:
        self.client = client
        self.keys = Keys(prefix, "m")
        self.calls = Calls(self.keys)
        self._shebang = shebang

    def run(self, call: Call) -> Any:
        """Call a script; the answer is made of ints and strings."""
        source = scripts.load(call.script).source
        if not self._shebang:
            source = source.partition("\n")[2]
        answer = self.client.eval(source, len(call.keys), *call.keys, *call.args)
        return _text(answer)

    def key(self, name: str) -> str:
        """Return the full key of a short name."""
        if name == "normal":
            return self.keys.normal
        return self.keys.returned.removesuffix("returned") + name

    def now_ms(self) -> int:
        """Return the server's time."""
        seconds, micros = self.client.time()
        return int(seconds) * 1_000 + int(micros) // 1_000

    def put(self, state: Mapping[str, Any]) -> None:
        """Write a state, key by key; strings get a life, as all strings of a queue have one."""
        for name, value in state.items():
            key = self.key(name)
            self.client.delete(key)
            if name == "workers" and isinstance(value, dict):
                ends = {"alive": self.now_ms() + LEASE_MS, "lapsed": self.now_ms() - 1}
                self.client.zadd(key, {worker: ends[state] for worker, state in value.items()})
            elif isinstance(value, list):
                self.client.rpush(key, *value)
            elif isinstance(value, dict):
                for field, content in value.items():
                    # The fields of claims are keys themselves.
                    full = self.key(field) if name == "claims" else field
                    self.client.hset(key, full, content)
            else:
                self.client.set(key, value, px=LIFE_MS)

    def state(self) -> State:
        """Read everything back."""
        tag = self.keys.returned.removesuffix("returned")
        found = {}
        for raw in self.client.scan_iter(match=f"*{self.keys.normal}*", count=1_000):
            key = raw.decode()
            name = "normal" if key == self.keys.normal else key.removeprefix(tag)
            found[name] = self._value(key)
        return found

    def forever(self) -> set[str]:
        """Return the short names of the keys that have no time to live."""
        return {name for name in self.state() if self.client.ttl(self.key(name)) == -1}

    def life_ms(self, name: str) -> int:
        """Return how long a key still lives."""
        return int(self.client.pttl(self.key(name)))

    def lease_end_ms(self, worker: str) -> int:
        """Return the end of a worker's lease."""
        score = self.client.zscore(self.keys.workers, worker)
        assert isinstance(score, float)
        return int(score)

    def _value(self, key: str) -> Any:
        kind = _text(self.client.type(key))
        if kind == "list":
            return _text(self.client.lrange(key, 0, -1))
        if kind == "hash":
            fields: dict[str, str] = _text(self.client.hgetall(key))
            tag = self.keys.returned.removesuffix("returned")
            return {field.removeprefix(tag): value for field, value in fields.items()}
        if kind == "zset":
            members = _text(self.client.zrange(key, 0, -1))
            now_ms = self.now_ms()
            return {
                member: "alive" if self.lease_end_ms(member) > now_ms else "lapsed"
                for member in members
            }
        return _text(self.client.get(key))


def _text(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode(errors="surrogateescape")
    if isinstance(value, list):
        return [_text(part) for part in value]
    if isinstance(value, dict):
        return {_text(key): _text(part) for key, part in value.items()}
    return value


def after(before: State, changes: Mapping[str, Any]) -> State:
    """Return the state that ``changes`` make of ``before``; None stands for a key that is gone."""
    merged = before | dict(changes)
    return {name: value for name, value in merged.items() if value is not None}
