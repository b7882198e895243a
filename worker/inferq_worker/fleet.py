"""The parent's half of its children's membership: renews their leases, buries them, looks round.

A thread of its own, so that a Redis that is away never keeps the parent from watching processes
and signals.
"""

import logging
import threading
import time

from inferq.contract.errors import InferqError
from inferq.contract.keys import Keys
from inferq.redis_link import Link, command
from inferq_worker.lease import renew
from inferq_worker.recovery import Orphan, Recovery, free, lists_of, recover
from inferq_worker.settings import WorkerSettings

log = logging.getLogger(__name__)

_LOOK_EACH_S = 1.0


class Fleet:
    """Keeps the leases of one parent's children, from ``start`` until ``stop``."""

    def __init__(self, keys: Keys, link: Link, settings: WorkerSettings) -> None:
        self._keys = keys
        self._link = link
        self._settings = settings
        self._recovery = Recovery(keys, settings)
        self._lock = threading.Lock()
        # Guarded by the lock: ids whose loop turns, and ids to bury.
        self._alive: set[str] = set()
        self._dead: list[str] = []
        self._changed = threading.Event()
        self._stopped = False
        self._quiet_since_s = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="inferq-fleet", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """Bury whom is left to bury, as far as Redis answers within the time, and end."""
        self._stopped = True
        self._changed.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def keep(self, worker: str) -> None:
        """Renew this lease from now on."""
        with self._lock:
            self._alive.add(worker)

    def drop(self, worker: str) -> None:
        """Stop renewing: the loop does not turn any more. To be called before the kill."""
        with self._lock:
            self._alive.discard(worker)

    def bury(self, worker: str) -> None:
        """Set free what a dead child held, at once and without waiting for its lease."""
        with self._lock:
            self._alive.discard(worker)
            self._dead.append(worker)
        self._changed.set()

    def _run(self) -> None:
        renew_at_s = 0.0
        while True:
            # A lease shorter than three looks must be renewed in time as well.
            self._changed.wait(min(_LOOK_EACH_S, self._settings.lease_s / 3))
            self._changed.clear()
            try:
                self._bury_all()
                if self._stopped and not self._dead:
                    return
                if time.monotonic() >= renew_at_s:
                    self._renew()
                    renew_at_s = time.monotonic() + self._settings.lease_s / 3
                self._look_round()
            except InferqError as error:
                log.warning("%s; trying again", error)
                self._quiet_since_s = time.monotonic()
                if self._stopped:
                    return

    def _bury_all(self) -> None:
        while self._dead:
            worker = self._dead[0]
            orphan = Orphan(worker, tuple(lists_of(self._link, self._keys, worker)))
            moved = free(self._link.run, recover(self._keys, orphan, "dead", self._settings))
            if moved:
                log.warning("set free %d requests of worker %s", moved, worker)
            with self._lock:
                self._dead.remove(worker)

    def _renew(self) -> None:
        with self._lock:
            alive = sorted(self._alive)
        if alive:
            self._link.run(renew(self._keys, alive, self._settings.lease_ms))

    def _look_round(self) -> None:
        """Recover other workers whose lease has ended, after a whole lease without a break."""
        if time.monotonic() - self._quiet_since_s < self._settings.lease_s:
            return
        now, first = self._link.run(
            command("TIME"), command("ZRANGE", self._keys.workers, 0, 0, "WITHSCORES")
        )
        if first and float(first[1]) <= int(now[0]) * 1000 + int(now[1]) // 1000:
            moved = self._recovery.sweep(self._link)
            if moved:
                log.warning("set free %d requests of workers that are gone", moved)
