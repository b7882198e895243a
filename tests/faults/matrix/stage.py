"""One row's world: a server of its own, a proxy if it needs one, workers, senders, the books."""

import contextlib
import json
import random
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import redis

from faults import sender
from faults.matrix.group import Group, is_free
from faults.matrix.ledger import Answer, Ledger
from faults.matrix.load import MODEL, Habits, Load
from faults.matrix.plan import Figure, Plan, Result
from faults.matrix.verdict import judge, replies
from faults.matrix.witness import Witness
from inferq import Producer
from inferq.contract.keys import Keys
from inferq.settings import ProducerSettings
from support.bare import Bare
from support.processes import Program, Programs
from support.proxy import Proxy
from support.servers import PrivateServer
from support.waiting import until

_PREFIX = "faults"
_PATIENCE_S = 90.0


class Stage:
    """What a row plays on. Everything ends with the ``with`` block.

    Args:
        plan: the size of the row.
        ledger: the row's books, if it marks requests.
        server: arguments for the server's command line.
        aof: whether the server keeps its data over restarts.
        proxied: whether workers and senders speak through :attr:`proxy`.

    Attributes:
        server, proxy, bare: the server, the proxy in front of it, and a client past it.
        folder: files of this row.
        chance: seeded for this row.
        figures, notes, wrong: to be filled by the row, for its result.
        dead: entries that the row put on the dead list, beside those of ``crashed`` requests.
        lost: ids of lost requests, once there is a result.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        ledger: Ledger | None = None,
        server: Collection[str] = (),
        aof: bool = False,
        proxied: bool = False,
    ) -> None:
        self.plan = plan
        self.ledger = ledger or Ledger()
        self.chance = random.Random(plan.seed)
        self.figures: list[Figure] = []
        self.notes: list[str] = []
        self.wrong: list[str] = []
        self.dead = 0
        self.lost: set[str] = set()
        self._open = contextlib.ExitStack()
        self._proxied = proxied
        self._since_s = time.monotonic()
        with contextlib.ExitStack() as starting:
            self.folder = Path(starting.enter_context(TemporaryDirectory(prefix="inferq-faults-")))
            self.server = starting.enter_context(
                PrivateServer(plan.binary, *server, port=0, aof=self.folder if aof else None)
            )
            self.proxy = starting.enter_context(Proxy(self.server.socket, seed=plan.seed))
            client = starting.enter_context(redis.Redis.from_url(self.server.url))
            self.bare = Bare(client, Keys(_PREFIX, MODEL))
            self.witness = starting.enter_context(Witness(self.server.url, self.bare.keys))
            self._programs = starting.enter_context(Programs())
            self._open = starting.pop_all()
        self._groups: list[Group] = []

    @property
    def url(self) -> str:
        """The address that workers and senders use."""
        return self.proxy.url if self._proxied else self.server.url

    def workers(
        self,
        processes: int | None = None,
        *,
        model: str = "Echo",
        pause_ms: float = 20,
        environment: Mapping[str, str] | None = None,
        **settings: object,
    ) -> Group:
        """Start a supervised worker, 0 processes: one that nobody supervises, and await it.

        Args:
            processes: how many children; the plan's by default.
            model: a class of :mod:`faults.models`.
            pause_ms: how long a call takes.
            environment: further variables.
            settings: of the worker, by name; the lease is the plan's.
        """
        given = {"lease_s": self.plan.lease_s, "drain_timeout_s": 20, **settings}
        variables = {f"INFERQ_{name.upper()}": str(value) for name, value in given.items()}
        variables |= {
            "INFERQ_REDIS_URL": self.url,
            "INFERQ_PREFIX": _PREFIX,
            "FAULTS_PAUSE_MS": str(pause_ms),
            "FAULTS_CRASHES": str(self.folder / "crashes"),
            **(environment or {}),
        }
        count = self.plan.processes if processes is None else processes
        group = Group.start(self._programs, self.bare, model, count, variables)
        self._groups.append(group)
        return group

    @property
    def crashes(self) -> int:
        """How often a model has crashed on purpose, or hung."""
        noted = self.folder / "crashes"
        return noted.stat().st_size if noted.exists() else 0

    def load(self, share: float = 1.0, **habits: Any) -> Load:
        """Make senders of a share of the plan's requests; see :class:`Habits`."""
        at_least = max(1, int(self.plan.requests * share))
        seed = self.chance.randrange(2**32)
        return Load(self.url, _PREFIX, self.ledger, Habits(**habits), at_least=at_least, seed=seed)

    def push(self) -> None:
        """Enqueue one request as a shell does: JSON, no mark, nobody who waits."""
        (number,) = self.ledger.take(1)
        request_id = f"bare-{number}"
        tensor = {"name": "number", "datatype": "INT64", "shape": [1], "data": [number]}
        self.ledger.bare.add(request_id)
        self.ledger.accept(request_id, number)
        self.bare.push(json.dumps({"id": request_id, "inputs": [tensor]}).encode())

    def sender(
        self,
        *arguments: object,
        url: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Program:
        """Start ``faults/sender.py`` with these arguments."""
        variables = {"INFERQ_REDIS_URL": url or self.url, "INFERQ_PREFIX": _PREFIX}
        variables |= environment or {}
        return self._programs.python(sender.__file__, *map(str, arguments), env=variables)

    def producer(self) -> Producer:
        """Make a producer that goes past the proxy; the caller closes it."""
        return Producer(self.server.url, settings=ProducerSettings(prefix=_PREFIX))

    # Looking on -----------------------------------------------------------------------------------

    def answered(self) -> int:
        """Return how many requests were answered so far, as the server counts."""
        return _answered(self.bare)

    def until_answering_at(self, server: PrivateServer) -> None:
        """Wait until requests are answered at another server."""
        with redis.Redis.from_url(server.url) as client:
            there = Bare(client, self.bare.keys)
            before = _answered(there)
            until(lambda: _answered(there) > before, _PATIENCE_S)

    def until_answering(self) -> float:
        """Wait until one more request is answered; return how many seconds that took."""
        since_s, before = time.monotonic(), self.answered()
        until(lambda: self.answered() > before, _PATIENCE_S)
        return time.monotonic() - since_s

    def until_free(self, pids: Collection[int], since_s: float) -> float:
        """Wait until these processes' workers hold nothing; return the seconds since then."""
        until(lambda: is_free(self.bare, pids), _PATIENCE_S)
        return time.monotonic() - since_s

    def until_members(self, group: Group, count: int) -> None:
        """Wait until a group has so many workers on record."""
        until(lambda: len(group.members()) >= count, _PATIENCE_S)

    def until_drained(self) -> None:
        """Wait until nothing waits and nothing is claimed."""
        until(self.bare.is_drained, _PATIENCE_S)

    def replies(self) -> dict[str, Answer]:
        """Return all replies there are now, by id."""
        return replies(self.bare)[0]

    def pause(self, least_s: float, most_s: float) -> None:
        """Let chance decide how long to wait for the next fault."""
        time.sleep(self.chance.uniform(least_s, most_s))

    # Ending ---------------------------------------------------------------------------------------

    def stop(self, group: Group) -> float:
        """Stop workers in order; return the seconds that took."""
        code, took_s = group.stop()
        if code != 0:
            self.wrong.append(f"a stopped worker ended with exit code {code}")
        self._groups.remove(group)
        return took_s

    def lose(self, group: Group) -> None:
        """Kill parent and children, and forget them."""
        group.kill()
        self._groups.remove(group)

    def result(self) -> Result:
        """Drain the queue, stop all workers and close the books."""
        self.until_drained()
        for group in list(self._groups):
            self.stop(group)
        verdict = judge(self.ledger, self.bare, self.witness, self.dead)
        self.lost = verdict.lost
        return Result(
            requests=len(self.ledger.accepted),
            answered=verdict.answered,
            lost=len(verdict.lost),
            answered_twice=len(verdict.twice),
            misrouted=len(verdict.misrouted),
            figures=tuple(self.figures),
            notes=tuple(self.notes),
            wrong=(*verdict.wrong, *self.wrong),
            took_s=time.monotonic() - self._since_s,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for group in self._groups:
            group.kill()
        self._open.close()


def _answered(bare: Bare) -> int:
    metrics = bare.metrics()
    return sum(count for field, count in metrics.items() if field.startswith("requests_"))
