"""What a row of the fault matrix is asked for, and what it comes back with."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from inferq.server_binary import ServerBinary


@dataclass(frozen=True)
class Plan:
    """How much of a row to run.

    Attributes:
        requests: send at least so many.
        repeats: do each fault at least so many times.
        binary: the server program.
        seed: of everything that chance decides.
        lease_s: the workers' lease.
        processes: children of each supervised worker, where a row does not say.
    """

    requests: int
    repeats: int
    binary: ServerBinary
    seed: int = 1
    lease_s: float = 3.0
    processes: int = 2

    @property
    def block_s(self) -> float:
        """How long an idle worker blocks."""
        return self.lease_s / 3


class Figure(NamedTuple):
    """A time that was measured, and the most it may be (``None``: it is only told), in seconds."""

    what: str
    measured_s: float
    limit_s: float | None = None

    @property
    def is_late(self) -> bool:
        return self.limit_s is not None and self.measured_s > self.limit_s

    def __str__(self) -> str:
        limit = "" if self.limit_s is None else f" (limit {self.limit_s:.2f} s)"
        return f"{self.what}: {self.measured_s:.2f} s{limit}"


@dataclass(frozen=True)
class Result:
    """What became of the requests of one row.

    Attributes:
        requests: accepted, each of which must be answered exactly once.
        answered: have exactly one reply, and one they deserve.
        lost: have none.
        answered_twice: ran into a second reply, whether it replaced the first or not.
        misrouted: have the reply of another.
        figures: times to recover; the first is the one in the table.
        notes: what happened on the way.
        wrong: whatever else breaks the promise; empty in a row that holds.
        took_s: the whole row.
    """

    requests: int
    answered: int
    lost: int
    answered_twice: int
    misrouted: int
    figures: tuple[Figure, ...] = ()
    notes: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()
    took_s: float = 0.0

    def __add__(self, other: "Result") -> "Result":
        """Take two parts of one row for a whole."""
        return Result(
            *(getattr(self, name) + getattr(other, name) for name in self.__dataclass_fields__)
        )

    @property
    def broken(self) -> tuple[str, ...]:
        """What breaks the promise, in words."""
        counted = {
            "lost": self.lost,
            "answered twice": self.answered_twice,
            "misrouted": self.misrouted,
            "without the one reply they deserve": self.requests - self.answered,
        }
        return (*(f"{count} {what}" for what, count in counted.items() if count), *self.wrong)

    @property
    def late(self) -> tuple[str, ...]:
        """Times beyond their limit, in words."""
        return tuple(f"late: {figure}" for figure in self.figures if figure.is_late)

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        figures = [figure._asdict() for figure in self.figures]
        return {**asdict(self), "figures": figures, "broken": self.broken, "late": self.late}


class Row(NamedTuple):
    """One fault of the matrix: its number, its name and what runs it."""

    number: int
    fault: str
    run: Callable[[Plan], Result]
