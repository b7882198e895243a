"""A worker's loop on a server that is a script: everything real but the link."""

import threading
from collections.abc import Callable
from typing import Any, cast

from inferq.contract import scripts
from inferq.contract.errors import InferqError
from inferq.contract.keys import Keys
from inferq.redis_link import Link
from inferq_worker.delivery import Delivery
from inferq_worker.intake import Intake
from inferq_worker.loop import Loop, Until
from inferq_worker.membership import Membership
from inferq_worker.model import describe_model
from inferq_worker.progress import Unwatched
from inferq_worker.runner import Runner
from inferq_worker.seat import Seat
from inferq_worker.session import Session
from inferq_worker.settings import WorkerSettings
from support.batches import Echo, message
from support.scripted_link import ScriptedLink

KEYS = Keys("inferq", "m")
EMPTY = [1, 0, 0, 0]
SUSPECT = 8
_NAMES = {scripts.load(name).sha1: name for name in scripts.ALL}


class Sent:
    """One command: its name, or that of its script, and what is told of it below."""

    def __init__(self, words: tuple[Any, ...]) -> None:
        self.name = str(words[0])
        self.args: tuple[Any, ...] = words[1:]
        if self.name in {"EVALSHA", "EVAL"}:
            known = {scripts.load(name).source: name for name in scripts.ALL}
            self.name = _NAMES.get(str(words[1])) or known[str(words[1])]
            self.args = words[3 + int(words[2]) :]

    def __repr__(self) -> str:
        """Show claims as ``claim N floor F mode``, completions as ``complete N``, others by name."""
        if self.name == "claim":
            return f"claim {self.args[1]} floor {self.args[2]} {self.args[8]}"
        if self.name == "complete":
            return f"complete {self.args[1]}"
        if self.name == "recover":
            return str(self.args[1])
        return self.name


Answer = object | Callable[[], object]


class Server(ScriptedLink):
    """Answers claims, completions and moves as scripted, and everything else as all is well.

    A scripted answer may be called for; an error that is called for breaks the connection.
    """

    def __init__(self, **scripted: list[Answer]) -> None:
        super().__init__()
        # Not up for a lease: nobody is recovered at the start.
        self.uptime_s = 0
        self.scripted = scripted
        self.log: list[str] = []
        self.claimants: list[str] = []

    def once(self, commands: Any, **_: Any) -> list[Any]:
        answers = []
        line = []
        for sent in map(Sent, (each.words for each in commands)):
            line.append(repr(sent))
            if sent.name == "claim":
                self.claimants.append(str(sent.args[0]))
            answers.append(self._answer(sent.name))
        if line != ["TIME"]:
            self.log.append(", ".join(line))
        for answer in answers:
            if isinstance(answer, Break):
                raise answer.error
        return answers

    def _answer(self, name: str) -> Any:
        left = self.scripted.get(name)
        if left:
            answer = left.pop(0)
            return answer() if callable(answer) else answer
        usual = {"TIME": [b"1000", b"0"], "recover": [0, 0], "STRLEN": 0, "BLMOVE": None}
        assert name not in {"claim", "complete"}, f"nothing is scripted for {name}: {self.log}"
        return usual.get(name, 1)


class Break:
    """In place of an answer: the connection breaks."""

    def __init__(self, error: InferqError) -> None:
        self.error = error


class Keeper:
    """Notes the seats it is to keep."""

    def __init__(self) -> None:
        self.kept: list[str] = []

    def start(self) -> None: ...

    def keep(self, seat: Seat) -> None:
        self.kept.append(seat.worker)

    def stop(self) -> None: ...


class Calling(Echo):
    """Calls what its bench says, each time it runs."""

    def __init__(self, bench: "Bench") -> None:
        super().__init__()
        self._bench = bench

    def predict(self, x: Any) -> Any:
        self._bench.on_call()
        return super().predict(x)


class Bench:
    """A loop, its server, and the event that stops it."""

    def __init__(self, **scripted: list[Answer]) -> None:
        self.stop = threading.Event()
        self.server = Server(**scripted)
        self.keeper = Keeper()
        self.on_call: Callable[[], object] = lambda: None
        self.echo = Calling(self)
        settings = WorkerSettings(max_attempts=2)
        description = describe_model(self.echo, name="m", max_message_bytes=10_000)
        session = Session(cast(Link, self.server), self.stop, 0, Unwatched())
        self.loop = Loop(
            session,
            Membership(KEYS, b"{}", session, self.keeper, settings),
            Intake(description, settings),
            Runner(self.echo, description),
            Delivery(description, settings),
            settings,
            self.stop,
            Unwatched(),
        )

    def run(self, until: Until = Until.EMPTY) -> list[str]:
        """Run the loop to its end; return what it sent between joining and leaving."""
        self.loop.run(until)
        log = self.server.log
        assert log[:2] == ["publish, SADD", "register"]
        assert log.pop() == "leave"
        return log[2:]

    def stopping(self, answer: Answer = None) -> Answer:
        """Return an answer that stops the worker when it is given."""

        def give() -> Answer:
            self.stop.set()
            return answer

        return give


def held(*values: float, flags: int = 0, deaths: int = 0) -> list[Any]:
    """Answer a claim with requests of these values."""
    return [1, deaths, 0, flags, *(message(f"r{v}", ("x", "FP32", [[v, v]])) for v in values)]
