"""Being one of a model's workers: joining, leaving, and looking after those who are gone."""

import logging
import os
import socket
from importlib.metadata import version

from inferq.contract.errors import InferqError
from inferq.contract.keys import Keys
from inferq_worker.intake import register
from inferq_worker.lease import Keeper
from inferq_worker.recovery import Orphan, Recovery, free, recover
from inferq_worker.seat import Seat
from inferq_worker.session import Session
from inferq_worker.settings import WorkerSettings

log = logging.getLogger(__name__)


class Membership:
    """Keeps one worker's seat. ``seat`` is the present one; it changes when it is lost."""

    def __init__(
        self, keys: Keys, session: Session, keeper: Keeper, settings: WorkerSettings
    ) -> None:
        self.seat = Seat.take(keys)
        self._keys = keys
        self._session = session
        self._keeper = keeper
        self._settings = settings
        self._recovery = Recovery(keys, settings)

    def info(self, state: str) -> list[str | int]:
        """Return what the worker tells about itself, as field, value, ..."""
        return [
            "host", socket.gethostname(), "pid", os.getpid(), "version", version("inferq"),
            "state", state, "batch", self.seat.number,
        ]  # fmt: skip

    def join(self) -> None:
        """Take the seat. Whoever keeps the lease knows it before anything is claimed under it."""
        lease_ms = self._settings.lease_ms
        self._keeper.keep(self.seat)
        self._session.send(register(self.seat, "join", lease_ms, self.info("idle")))
        log.info("worker %s joined model %s", self.seat.worker, self._keys.model)

    def leave(self) -> None:
        """Hand back what is held, unstarted, and give the seat up for ever."""
        lists = tuple(self.seat.open_lists())
        leaving = recover(self._keys, Orphan(self.seat.worker, lists), "leave", self._settings)
        try:
            free(self._session.link, leaving)
        except InferqError as error:
            log.warning("could not leave in order (%s); the lease frees what is held", error)

    def move(self) -> None:
        """Take a new seat in place of one that is lost; the old id is fenced for ever."""
        log.warning("worker %s lost its seat and takes another", self.seat.worker)
        self.leave()
        self.seat = Seat.take(self._keys)
        self.join()

    def sweep_at_start(self, server_uptime_s: float) -> None:
        """Recover what earlier workers left, if the server has been up for a whole lease.

        After a restart of the server every lease looks ended, also those of workers that are on
        their way back.
        """
        if server_uptime_s > self._settings.lease_s:
            self._sweep()

    def sweep(self) -> None:
        """Recover others, but only after a whole lease in which nothing was disturbed."""
        if self._session.undisturbed_s >= self._settings.lease_s:
            self._sweep()

    def _sweep(self) -> None:
        try:
            moved = self._recovery.sweep(self._session.link)
        except InferqError as error:
            self._session.disturbed(error)
            return
        if moved:
            log.warning("set free %d requests of workers that are gone", moved)
