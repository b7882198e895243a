"""Renews a worker's lease from a thread of its own, whatever the model does meanwhile."""

import logging
import threading

from inferq.contract import scripts
from inferq.contract.errors import InferqError
from inferq.redis_link import Command, Link, call
from inferq_worker.intake import info_life_ms
from inferq_worker.seat import Seat

log = logging.getLogger(__name__)


def renew(seat: Seat, lease_ms: int) -> Command:
    """Build the call that prolongs a member's lease."""
    keys = seat.keys
    return call(
        scripts.load("renew"),
        (keys.workers, keys.worker(seat.worker)),
        (lease_ms, info_life_ms(lease_ms), seat.worker),
    )


class LeaseKeeper:
    """Renews every third of the lease, from ``start`` until ``stop``.

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
                self._link.run(renew(seat, self._lease_ms))
            except InferqError as error:
                # The next turn tries again; the loop's own claims renew as well.
                log.debug("lease of %s not renewed: %s", seat.worker, error)
