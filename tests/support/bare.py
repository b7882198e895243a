"""A client that knows the wire contract and nothing else: commands in, values of keys out."""

import json
from typing import Any

import redis

from inferq.contract.errors import InferqError
from inferq.contract.keys import Keys
from inferq.contract.replies import Reply, ReplyReader
from support.waiting import until

# Requests in the lists named, and in all claims on record: looked at one by one, a request on its
# way from the one to the other would be missed.
_COUNT = """
local lists, count = redis.call('HKEYS', KEYS[1]), 0
for at = 2, #KEYS do lists[#lists + 1] = KEYS[at] end
for _, list in ipairs(lists) do
  if redis.call('TYPE', list).ok == 'list' then
    for _, element in ipairs(redis.call('LRANGE', list, 0, -1)) do
      if element ~= '' then count = count + 1 end
    end
  end
end
return count
"""


def doubled(request_id: str, *values: int, **members: Any) -> bytes:
    """Write a JSON request of ``x`` INT64 rows, as :class:`support.workers.Doubler` takes them."""
    tensor = {"name": "x", "datatype": "INT64", "shape": [len(values)], "data": list(values)}
    return json.dumps({"id": request_id, "inputs": [tensor], **members}).encode()


class Bare:
    """One model's keys, seen from outside."""

    def __init__(self, client: redis.Redis, keys: Keys) -> None:
        self.client = client
        self.keys = keys

    def push(self, *messages: bytes, lane: str = "normal") -> None:
        """Enqueue without a library."""
        self.client.rpush(self.keys.lane(lane), *messages)

    def reply(self, request_id: str) -> Reply | InferqError:
        """Poll for a reply and read it."""
        key = self.keys.reply(request_id)
        return ReplyReader().read(until(lambda: self._get(key)))

    def values(self, request_id: str) -> list[int]:
        """Poll for a reply of :class:`support.workers.Doubler`; return its rows."""
        found = self.reply(request_id)
        assert isinstance(found, Reply), found
        rows: list[int] = found["y"].tolist()
        return rows

    def error(self, request_id: str) -> tuple[str | None, str]:
        """Poll for an error reply; return its code and its sentence."""
        found = self.reply(request_id)
        assert isinstance(found, InferqError), found
        return found.code, str(found)

    def parameters(self, request_id: str) -> dict[str, Any]:
        """Poll for a reply of either kind; return its parameters as they are on the wire."""
        key = self.keys.reply(request_id)
        raw = until(lambda: self._get(key))
        head = raw[8 : 8 + int.from_bytes(raw[4:8], "little")] if raw[:4] == b"OIP1" else raw
        parameters: dict[str, Any] = json.loads(head)["parameters"]
        return parameters

    def now_ms(self) -> int:
        """Return the server's time."""
        seconds, micros = self.client.time()
        return int(seconds) * 1_000 + int(micros) // 1_000

    def is_answered(self, request_id: str) -> bool:
        """Tell whether a reply is there, now."""
        return bool(self._get(self.keys.reply(request_id)))

    def hints(self, box: str) -> list[str]:
        """Return the ids in an inbox."""
        return [each.decode() for each in self._list(self.keys.inbox(box))]

    def dead(self) -> list[tuple[dict[str, Any], bytes]]:
        """Return the dead list: what each entry tells, and its message."""
        parts = [entry.partition(b"\n") for entry in self._list(self.keys.dead)]
        return [(json.loads(line), message) for line, _, message in parts]

    def metrics(self) -> dict[str, int]:
        """Return the counters."""
        raw: Any = self.client.hgetall(self.keys.metrics)
        return {name.decode(): int(value) for name, value in raw.items()}

    def workers(self) -> list[str]:
        """Return the ids of the model's workers."""
        raw: Any = self.client.zrange(self.keys.workers, 0, -1)
        return [name.decode() for name in raw]

    def is_drained(self) -> bool:
        """Tell whether nothing waits and nothing is claimed, wake-up tokens apart, in one look."""
        lanes = [self.keys.lane(lane) for lane in ("high", "normal", "low")]
        keys = [self.keys.claims, self.keys.returned, self.keys.suspects, *lanes]
        count: Any = self.client.eval(_COUNT, len(keys), *keys)
        return bool(count == 0)

    def lives(self) -> dict[str, int]:
        """Return every key of the prefix, shortened, and its time to live in ms; -1 is for ever."""
        tag = self.keys.claims.removesuffix("claims")
        found = {}
        for raw in self.client.scan_iter(match=f"*{self.keys.prefix}:*", count=1_000):
            life: Any = self.client.pttl(raw)
            found[raw.decode().removeprefix(tag)] = life
        return found

    def _get(self, key: str) -> bytes:
        value: Any = self.client.get(key)
        return value or b""

    def _list(self, key: str) -> list[bytes]:
        elements: Any = self.client.lrange(key, 0, -1)
        return list(elements)
