"""Keeps a worker's lease: by a thread of its own, or by a parent that renews it from outside.

A thread can be starved by a model that holds the interpreter; a parent cannot. A worker embedded
in another program has no parent.
"""

import logging
import threading
from collections.abc import Sequence
from typing import Protocol

from inferq.contract import scripts
from inferq.contract.errors import InferqError
from inferq.contract.keys import Keys
from inferq.redis_link import Command, Link, call
from inferq_worker.intake import info_life_ms
from inferq_worker.progress import Watcher
from inferq_worker.seat import Seat

log = logging.getLogger(__name__)


class Keeper(Protocol):
    """Who renews the lease of a worker's seat."""

    def start(self) -> None:
        """Start renewing what :meth:`keep` tells."""

    def keep(self, seat: Seat) -> None:
        """Renew this seat from now on, and no other."""

    def stop(self) -> None:
        """Stop renewing; harmless before ``start`` and when repeated."""


class ParentKeeper:
    """Leaves renewing to the parent process, which is told each seat.

    Args:
        watcher: the way to the parent.
    """

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher

    def start(self) -> None:
        """Nothing to do."""

    def keep(self, seat: Seat) -> None:
        """Tell the parent."""
        self._watcher.seated(seat.worker)

    def stop(self) -> None:
        """Nothing to do."""


def renew(keys: Keys, workers: Sequence[str], lease_ms: int) -> Command:
    """Build the call that prolongs the leases of those workers that are members."""
    return call(
        scripts.load("renew"),
        (keys.workers, *(keys.worker(worker) for worker in workers)),
        (lease_ms, info_life_ms(lease_ms), *workers),
    )


class ThreadKeeper:
    """Renews every third of the lease by a thread, from ``start`` until ``stop``.

    A seat that is lost is not this thread's business: the next claim is refused, and the loop
    takes a new seat and tells it here by :meth:`keep`.
    """

    def __init__(self, link: Link, lease_ms: int) -> None:
        self._link = link
        self._lease_ms = lease_ms
        # Written by the loop's thread, read by this one; a reference is replaced as a whole.
        self._seat: Seat | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="inferq-lease", daemon=True)

    def start(self) -> None:
        """Start renewing."""
        self._thread.start()

    def keep(self, seat: Seat) -> None:
        """Renew this seat from now on."""
        self._seat = seat

    def stop(self) -> None:
        """Stop and wait for the thread; harmless before ``start`` and when repeated."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(self._lease_ms / 3000):
            seat = self._seat
            if seat is None:
                continue
            try:
                self._link.run(renew(seat.keys, [seat.worker], self._lease_ms))
            except InferqError as error:
                # The next turn tries again; the loop's own claims renew as well.
                log.debug("lease of %s not renewed: %s", seat.worker, error)
