"""Counts how often each reply key was written, as the server itself tells it.

A reply that is written twice with the same words looks like one to who reads it. The server's own
notifications tell it apart, and ask neither workers nor producers.
"""

import contextlib
import threading
from collections import Counter
from typing import Any, Self

import redis

from inferq.contract.keys import Keys


class Witness:
    """Listens to one server until the ``with`` block ends.

    What happens while a connection is away goes unseen, so a row whose server is restarted may
    count too little, never too much.

    Attributes:
        writes: how often the reply key of each request id was set, its pending mark included.
    """

    def __init__(self, url: str, keys: Keys) -> None:
        self.writes: Counter[str] = Counter()
        self._url = url
        self._start = f"__keyspace@0__:{keys.reply('')}"
        self._ended = threading.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="witness", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(10.0), "the server takes no subscription"
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(10.0)

    def _run(self) -> None:
        while not self._ended.is_set():
            with contextlib.suppress(redis.RedisError, OSError):
                self._listen()
            self._ended.wait(0.05)

    def _listen(self) -> None:
        with redis.Redis.from_url(self._url) as client:
            # A server that loads its data takes subscriptions, and tells of every command in its
            # file as if it were new. It does not answer this.
            client.ping()
            client.config_set("notify-keyspace-events", "K$")
            # The default cuts a listener off that lags by 8 MB for a minute.
            client.config_set("client-output-buffer-limit", "pubsub 0 0 0")
            with client.pubsub(ignore_subscribe_messages=True) as events:
                events.psubscribe(self._start + "*")
                self._ready.set()
                while not self._ended.is_set():
                    event: dict[str, Any] | None = events.get_message(timeout=0.2)
                    if event is not None and event["data"] == b"set":
                        self.writes[event["channel"].decode().removeprefix(self._start)] += 1
