"""Being one of a model's workers: joining, leaving, and looking after those who are gone."""

import logging
import os
import random
import socket
import time
from importlib.metadata import version

from inferq.contract import scripts
from inferq.contract.errors import InferqError, ModelUnfit, ServerUnfit
from inferq.contract.keys import Keys, models_key
from inferq.redis_link import Command, call, command
from inferq_worker.intake import register
from inferq_worker.lease import Keeper
from inferq_worker.recovery import Orphan, Recovery, free, recover
from inferq_worker.seat import Seat
from inferq_worker.session import Displaced, Session
from inferq_worker.settings import WorkerSettings

log = logging.getLogger(__name__)


class Membership:
    """Keeps one worker's seat. ``seat`` is the present one; it changes when it is lost.

    Args:
        description: the text to publish the model with.
    """

    def __init__(
        self,
        keys: Keys,
        description: bytes,
        session: Session,
        keeper: Keeper,
        settings: WorkerSettings,
    ) -> None:
        self.seat = Seat.take(keys)
        self._keys = keys
        self._description = description
        self._session = session
        self._keeper = keeper
        self._settings = settings
        self._recovery = Recovery(keys, settings)
        self._is_published = False
        self._next_look_s = 0.0

    def info(self, state: str) -> list[str | int]:
        """Return what the worker tells about itself, as field, value, ..."""
        return [
            "host", socket.gethostname(), "pid", os.getpid(), "version", version("inferq"),
            "state", state, "batch", self.seat.number,
        ]  # fmt: skip

    def join(self) -> None:
        """Make the model known, and take the seat.

        Whoever keeps the lease knows the seat before anything is claimed under it.
        """
        while True:
            self._keeper.keep(self.seat)
            try:
                self._publish()
                joining = register(self.seat, "join", self._settings.lease_ms, self.info("idle"))
                self._session.send(joining)
                break
            except Displaced:
                # The server changed once more; on the one before this seat lapses, without claims.
                self.seat = Seat.take(self._keys)
        fields = {"worker": self.seat.worker, "model": self._keys.model}
        log.info("worker %(worker)s joined model %(model)s", fields, extra=fields)

    def _publish(self) -> None:
        """Write the model's description, then its name: so nobody finds a name without it.

        Refused while a live worker serves the model with other tensors: requests would be checked
        against one description and run against the other.

        Two keys in two slots of a cluster, so never one script. On every seat anew, since a
        server that has forgotten its workers has forgotten their models as well. A full memory
        refuses it, and must not keep a worker from draining the queue that filled it.
        """
        answers = self._session.ask(
            call(
                scripts.load("publish"),
                (self._keys.description, self._keys.workers),
                (self._description, self.seat.worker),
            ),
            command("SADD", models_key(self._keys.prefix), self._keys.model),
        )
        if isinstance(answers[0], bytes):
            raise ModelUnfit(
                f"worker {answers[0].decode()} serves '{self._keys.model}' with other tensors: "
                "stop it first, or serve this one under another name"
            )
        refusals = [answer for answer in answers if isinstance(answer, InferqError)]
        self._is_published = not refusals
        for refusal in refusals[:1]:
            if isinstance(refusal, ServerUnfit):
                raise refusal
            log.warning("the model cannot be published yet: %s", refusal)

    def leave(self) -> None:
        """Hand back what is held, unstarted, and give the seat up for ever."""
        try:
            free(self._session.link.run, self._leaving())
        except InferqError as error:
            log.warning("could not leave in order (%s); the lease frees what is held", error)

    def move(self) -> None:
        """Take a new seat in place of one that is lost; the old id is fenced for ever."""
        log.warning("worker %s lost its seat and takes another", self.seat.worker)
        while True:
            try:
                # With patience: the server may have restarted, and be loading what was held.
                free(self._session.send, self._leaving())
                break
            except Displaced:
                # The server changed once more; what this one remembers of the seat is to be freed.
                continue
        self.seat = Seat.take(self._keys)
        self.join()

    def _leaving(self) -> Command:
        orphan = Orphan(self.seat.worker, tuple(self.seat.open_lists()))
        return recover(self._keys, orphan, "leave", self._settings)

    def sweep_at_start(self) -> None:
        """Recover what earlier workers left, if the server has been up for a whole lease.

        After a restart of the server every lease looks ended, also those of workers that are on
        their way back.
        """
        if self._session.server_uptime_s > self._settings.lease_s:
            self._sweep()

    def sweep(self) -> None:
        """Recover others, but only after a whole lease in which nothing was disturbed."""
        if self._session.undisturbed_s >= self._settings.lease_s:
            self._sweep()

    def look_around(self) -> None:
        """Do what is due now and then: every half lease, by one of the workers on average.

        A lease that has ended is seen by every claim; this finds the rest, such as claims that a
        late copy of a command left without an owner.
        """
        now_s = time.monotonic()
        if now_s < self._next_look_s:
            return
        self._next_look_s = now_s + self._settings.lease_s / 2
        if not self._is_published:
            self._publish()
        if random.random() * self._recovery.members < 1:  # noqa: S311 - shares a duty
            self.sweep()

    def _sweep(self) -> None:
        try:
            moved = self._recovery.sweep(self._session.link)
        except InferqError as error:
            self._session.disturbed(error)
            return
        if moved:
            log.warning("set free %d requests of workers that are gone", moved)
