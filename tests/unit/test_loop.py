"""The loop's rare turns: what is sent next, and under which number."""

from typing import Any

import pytest

from inferq.contract.errors import QueueFull, Unavailable
from inferq_worker.loop import Until
from support.loop_bench import EMPTY, SUSPECT, Answer, Bench, Break, held


def test_one_flight_completes_and_claims() -> None:
    """A batch is completed in the flight that claims the next, whose floor is still its own."""
    bench = Bench(claim=[held(1, 2), held(3), EMPTY], complete=[2, 1])
    assert bench.run() == [
        "claim 1 floor 1 last",
        "complete 1, claim 2 floor 1 first",
        "complete 2, claim 3 floor 2 last",
    ]
    assert bench.echo.calls == [[[1, 1], [2, 2]], [[3, 3]]]


def test_empty_claim_is_no_batch() -> None:
    """A claim that held nothing is made again under its number, also after a wait."""
    bench = Bench(claim=[EMPTY, held(1)], complete=[1])
    bench.server.scripted["claim"].append(bench.stopping(EMPTY))
    assert bench.run(Until.STOPPED) == [
        "claim 1 floor 1 last",
        "register, BLMOVE, claim 1 floor 1 last",
        "complete 1, claim 2 floor 1 first",
    ]


def test_idle_flights_follow_each_other() -> None:
    """After an idle flight that came back empty nothing is claimed before the next one."""
    bench = Bench(claim=[EMPTY, EMPTY, EMPTY])
    bench.server.scripted["claim"].append(bench.stopping(EMPTY))
    idle = "register, BLMOVE, claim 1 floor 1 last"
    assert bench.run(Until.STOPPED) == ["claim 1 floor 1 last", idle, idle, idle]


@pytest.mark.parametrize(
    "trouble",
    [
        {"BLMOVE": [Break(Unavailable("cut"))], "claim": [EMPTY, EMPTY]},
        {"register": [1, Unavailable("LOADING")], "claim": [EMPTY, EMPTY]},
        {"claim": [EMPTY, Unavailable("LOADING")]},
    ],
    ids=["cut", "register refused", "claim refused"],
)
def test_claims_alone_after_trouble(trouble: dict[str, list[Answer]]) -> None:
    """After any trouble while it waited, a worker claims before it waits again.

    The move of the flight that broke may still fill the claim.
    """
    bench = Bench(**trouble)
    bench.server.scripted["claim"] += [held(1), bench.stopping(EMPTY)]
    bench.server.scripted["complete"] = [1]
    assert bench.run(Until.STOPPED) == [
        "claim 1 floor 1 last",
        "register, BLMOVE, claim 1 floor 1 last",
        "claim 1 floor 1 last",
        "complete 1, claim 2 floor 1 first",
    ]


def test_move_that_is_refused() -> None:
    """Where the blocking move is refused for want of memory, the claim behind it still counts."""
    full = QueueFull("full")
    bench = Bench(claim=[EMPTY, held(1)], BLMOVE=[full], complete=[1])
    bench.server.scripted["claim"].append(bench.stopping(EMPTY))
    assert bench.run(Until.STOPPED)[1:] == [
        "register, BLMOVE, claim 1 floor 1 last",
        "complete 1, claim 2 floor 1 first",
    ]
    assert bench.echo.calls == [[[1, 1]]]


def test_completion_is_repeated_with_its_claim() -> None:
    """A flight that broke is sent again whole; that its completion is fenced by then is no news."""
    bench = Bench(claim=[held(1), Break(Unavailable("cut")), held(2), EMPTY], complete=[1, -1, 1])
    assert bench.run() == [
        "claim 1 floor 1 last",
        "complete 1, claim 2 floor 1 first",
        "complete 1, claim 2 floor 1 first",
        "complete 2, claim 3 floor 2 last",
    ]


def test_closed_number() -> None:
    """A number that is closed already is skipped for the one behind the highest closed."""
    bench = Bench(claim=[[-1, 6], held(1), EMPTY], complete=[1])
    assert bench.run() == [
        "claim 1 floor 1 last",
        "claim 7 floor 1 last",
        "complete 7, claim 8 floor 1 first",
    ]


def test_seat_that_is_gone() -> None:
    """A worker that is unknown drops what it has, frees its old seat and takes a new one at 1."""
    bench = Bench(claim=[held(1), [-2], held(1), EMPTY], complete=[-1, 1])
    assert bench.run() == [
        "claim 1 floor 1 last",
        "complete 1, claim 2 floor 1 first",
        "leave",
        "publish, SADD",
        "register",
        "claim 1 floor 1 last",
        "complete 1, claim 2 floor 1 first",
    ]
    first, _, second, _ = bench.server.claimants
    assert first != second
    assert bench.keeper.kept == [first, second]


def test_server_that_changes_while_a_seat_is_taken() -> None:
    """A server that changes again while a worker moves to it costs one more seat, not the worker."""
    bench = Bench(claim=[EMPTY])
    server = bench.server

    def another() -> Break:
        server.run_id += "'"
        return Break(Unavailable("cut"))

    server.scripted |= {"register": [another, another, 1], "publish": [1, another, 1]}
    bench.loop.run(Until.EMPTY)
    assert server.log[-2:] == ["claim 1 floor 1 last", "leave"]
    assert len(set(bench.keeper.kept)) == len(bench.keeper.kept) == 4
    assert server.claimants == bench.keeper.kept[-1:]


class TestSuspects:
    def test_put_on_record_first(self) -> None:
        """A suspect is put on record as started before it runs, and completed before others."""
        suspect = held(1, flags=SUSPECT, deaths=1)
        bench = Bench(claim=[suspect, suspect, EMPTY], complete=[1])
        assert bench.run() == [
            "claim 1 floor 1 last",
            "claim 1 floor 1 start",
            "STRLEN",
            "complete 1, claim 2 floor 1 first",
        ]
        assert bench.echo.calls == [[[1, 1]]]

    @pytest.mark.parametrize(
        "again", [EMPTY, held(2), [-1, 1]], ids=["nothing", "a stranger", "closed"]
    )
    def test_slipped_away(self, again: list[Any]) -> None:
        """If the claim holds something else by now, the suspect is not run; the claim is looked at."""
        bench = Bench(claim=[held(1, flags=SUSPECT, deaths=1), again, EMPTY])
        assert bench.run() == [
            "claim 1 floor 1 last",
            "claim 1 floor 1 start",
            "claim 1 floor 1 last",
        ]
        assert bench.echo.calls == []

    def test_seat_that_is_gone(self) -> None:
        """If the seat is gone when the suspect is to start, it is not run."""
        bench = Bench(claim=[held(1, flags=SUSPECT, deaths=1), [-2], EMPTY])
        assert "leave" in bench.run()
        assert bench.echo.calls == []

    def test_answered_before(self) -> None:
        """A suspect whose reply is there already is completed without running."""
        suspect = held(1, flags=SUSPECT, deaths=1)
        bench = Bench(claim=[suspect, suspect, EMPTY], complete=[0], STRLEN=[9])
        bench.run()
        assert bench.echo.calls == []

    def test_spent(self) -> None:
        """A suspect whose deaths are spent is completed without running, or looking."""
        suspect = held(1, flags=SUSPECT, deaths=2)
        bench = Bench(claim=[suspect, suspect, EMPTY], complete=[1])
        assert bench.run() == [
            "claim 1 floor 1 last",
            "claim 1 floor 1 start",
            "complete 1, claim 2 floor 1 first",
        ]
        assert bench.echo.calls == []


def test_stop_after_the_claim() -> None:
    """What was claimed in the flight during which the stop came is not run."""
    bench = Bench(complete=[1])
    bench.server.scripted["claim"] = [held(1), bench.stopping(held(2))]
    assert bench.run(Until.STOPPED) == [
        "claim 1 floor 1 last",
        "complete 1, claim 2 floor 1 first",
    ]
    assert bench.echo.calls == [[[1, 1]]]


def test_stop_while_the_batch_runs() -> None:
    """A batch during which the stop came is completed, and nothing is claimed with it."""
    bench = Bench(claim=[held(1)], complete=[1])
    bench.on_call = bench.stop.set
    assert bench.run(Until.STOPPED) == ["claim 1 floor 1 last", "complete 1"]
