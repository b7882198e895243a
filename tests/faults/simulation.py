"""A randomised simulation: actors on one side, a real server on the other, fate in between.

Actors (``actors.py``) are generators. They yield a *flight*, a list of steps sent together, and
are given the answers, or :data:`LOST` when the connection broke and nobody knows what ran. The
scheduler decides everything else from one seed: whose turn it is, which step of which flight runs
next, which reply is dropped, which flight arrives late, when an actor freezes or dies, when the
server forgets its scripts, has no memory left, or is replaced by one that missed the last writes.

Time is simulated: every script gets the scheduler's clock in place of the server's ``TIME``.
"""

import random
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

import redis

from faults.watched_server import Move, Server, Source, Step
from inferq.contract.keys import Keys
from support.script_calls import Call, Calls

LEASE_MS = 2_000
BLOCK_MS = 600
MAX_ATTEMPTS = 3


class Lost(Enum):
    """The one answer of a broken connection."""

    LOST = "lost"


LOST = Lost.LOST


class Pause(NamedTuple):
    """Not a command: the actor does something else for a while."""

    ms: int


Answers = list[Any]
Body = Generator[list[Step] | Pause, Answers | Lost | None, None]


class Died(Exception):
    """A process is gone in the middle of what it did."""


@dataclass(frozen=True)
class Faults:
    """How likely each fault is: the first four for every flight, the others for every tick.

    Attributes:
        dropped: nothing of the flight arrives.
        unanswered: it runs, and its answers are lost.
        late: its sender is told that the connection broke, and it runs up to two leases later.
        doubled: it runs and is answered, and a copy of it runs later.
        killed, frozen: a worker ends, or stands still for up to three leases.
        flushed: the server forgets its scripts.
        full: the server is over its memory limit for a while.
        failover: a replica takes over that has missed the last writes.
    """

    dropped: float = 0.0
    unanswered: float = 0.0
    late: float = 0.0
    doubled: float = 0.0
    killed: float = 0.0
    frozen: float = 0.0
    flushed: float = 0.0
    full: float = 0.0
    failover: float = 0.0


@dataclass
class Flight:
    """A list of steps on its way; without an actor nobody waits for it any more."""

    actor: "Actor | None"
    steps: Sequence[Step]
    answers: Answers = field(default_factory=list)
    not_before_ms: int = 0
    deadline_ms: int | None = None
    unanswered: bool = False

    @property
    def step(self) -> Step:
        return self.steps[len(self.answers)]


@dataclass
class Actor:
    """A process: what it does, and what it is to be told next."""

    name: str
    body: Body
    news: Answers | Lost | None = None
    flying: bool = False
    asleep_until_ms: int = 0
    cut_off: bool = False


class Simulation:
    """The scheduler. ``stopping`` tells workers to stop as SIGTERM would."""

    def __init__(self, client: redis.Redis, prefix: str, seed: int, faults: Faults) -> None:
        self.keys = Keys(prefix, "m")
        self.calls = Calls(self.keys)
        self.server = Server(client, self.keys)
        self.truth = self.server.truth
        self.random = random.Random(seed)
        self.faults = faults
        self.now_ms = 1_000_000
        self.stopping = False
        self.calm = False
        self.failovers = 0
        self.turn = 0
        self.actors: dict[str, Actor] = {}
        self.flights: list[Flight] = []
        # Worker id of each child process, as its parent knows it; dead ones wait to be buried.
        self.children: dict[str, str] = {}
        self.dead: set[str] = set()
        self._snapshot = self.server.snapshot()
        self._full = False

    def add(self, name: str, body: Body) -> None:
        """Start a process."""
        self.actors[name] = Actor(name, body)

    def kill(self, name: str) -> None:
        """End a process at once; what it sent is still on its way."""
        actor = self.actors.pop(name)
        actor.body.close()
        for flight in self.flights:
            if flight.actor is actor:
                flight.actor = None
        if name in self.children:
            self.dead.add(name)

    def tick(self) -> None:
        """Let one thing happen."""
        self.turn += 1
        # As many things happen in a second as there are actors: nobody is starved of turns.
        self.now_ms += self.random.randint(0, 100 // (1 + len(self.actors)))
        if not self.calm:
            self._disturb()
        ready: list[Actor | Flight] = [
            actor
            for actor in self.actors.values()
            if not actor.flying and actor.asleep_until_ms <= self.now_ms
        ]
        ready += [flight for flight in self.flights if self._can_go_on(flight)]
        if not ready:
            self.now_ms += 50
            return
        chosen = self.random.choice(ready)
        if isinstance(chosen, Actor):
            self._resume(chosen)
        else:
            self._advance(chosen)

    def settle(self) -> None:
        """End all faults; whatever is under way still arrives."""
        self.calm = True
        self._set_full(full=False)
        for actor in self.actors.values():
            actor.asleep_until_ms = min(actor.asleep_until_ms, self.now_ms)

    def _chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def _disturb(self) -> None:
        faults = self.faults
        workers = [actor for name, actor in self.actors.items() if name in self.children]
        if workers and self._chance(faults.killed):
            self.kill(self.random.choice(workers).name)
        elif workers and self._chance(faults.frozen):
            asleep = self.random.randint(LEASE_MS // 2, 3 * LEASE_MS)
            self.random.choice(workers).asleep_until_ms = self.now_ms + asleep
        if self._chance(faults.flushed):
            self.server.client.script_flush()
        if self._chance(0.02 if self._full else faults.full):
            self._set_full(full=not self._full)
        if self._chance(0.01):
            self._snapshot = self.server.snapshot()
        if self._chance(faults.failover):
            self._fail_over()

    def _set_full(self, *, full: bool) -> None:
        self._full = full
        self.server.set_full(full=full)

    def _fail_over(self) -> None:
        self.failovers += 1
        self.server.fail_over(self._snapshot)
        self._full = False
        for flight in self.flights:
            self._tell(flight, LOST)
        self.flights.clear()
        for actor in self.actors.values():
            actor.cut_off = True

    def _resume(self, actor: Actor) -> None:
        news, actor.news = actor.news, None
        try:
            steps = actor.body.send(news)
        except StopIteration:
            del self.actors[actor.name]
        except Died:
            self.kill(actor.name)
        else:
            if isinstance(steps, Pause):
                actor.asleep_until_ms = self.now_ms + steps.ms
            else:
                self._launch(actor, steps)

    def _launch(self, actor: Actor, steps: Sequence[Step]) -> None:
        faults = self.faults
        if actor.cut_off or (not self.calm and self._chance(faults.dropped)):
            actor.cut_off, actor.news = False, LOST
        elif not self.calm and self._chance(faults.late):
            actor.news = LOST
            self._send_late(steps)
        else:
            actor.flying = True
            unanswered = not self.calm and self._chance(faults.unanswered)
            self.flights.append(Flight(actor, steps, unanswered=unanswered))
            if not self.calm and self._chance(faults.doubled):
                self._send_late(steps)

    def _send_late(self, steps: Sequence[Step]) -> None:
        # A connection may break in the middle of a flight, and the rest never arrives.
        arrived = steps[: self.random.randint(1, len(steps))]
        calls = (step.call if isinstance(step, Source) else step for step in arrived)
        self.truth.copied += [call for call in calls if isinstance(call, Call)]
        # Half of them soon, among the commands of the same claim, half of them long after.
        latest_ms = self.random.choice([LEASE_MS // 8, 2 * LEASE_MS])
        not_before = self.now_ms + self.random.randint(0, latest_ms)
        self.flights.append(Flight(None, arrived, not_before_ms=not_before))

    def _can_go_on(self, flight: Flight) -> bool:
        if flight.not_before_ms > self.now_ms:
            return False
        if not isinstance(flight.step, Move):
            return True
        if flight.deadline_ms is None:
            flight.deadline_ms = self.now_ms + BLOCK_MS
        waited = self.now_ms >= flight.deadline_ms
        return waited or bool(self.server.client.llen(self.keys.normal))

    def _advance(self, flight: Flight) -> None:
        flight.answers.append(self.server.run(flight.step, self.now_ms))
        if len(flight.answers) == len(flight.steps):
            self.flights.remove(flight)
            self._tell(flight, LOST if flight.unanswered else flight.answers)

    def _tell(self, flight: Flight, news: Answers | Lost) -> None:
        if flight.actor is not None:
            flight.actor.flying = False
            flight.actor.news = news
