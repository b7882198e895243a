"""A worker's patience with Redis, on a server that is a script."""

import logging
from typing import Any, cast

import pytest

from inferq.contract.errors import NoReply, QueueFull, ServerUnfit, Unavailable
from inferq.redis_link import Link, command
from inferq_worker.progress import Phase
from inferq_worker.session import Displaced, GaveUp, Session
from support.scripted_link import Outcome, ScriptedLink, is_set

AWAY = Unavailable("gone")
FULL = QueueFull("full")
UNFIT = ServerUnfit("WRONGTYPE")


class Diary:
    """A watcher that notes the phases it is told."""

    def __init__(self) -> None:
        self.phases: list[Phase] = []

    def enter(self, phase: Phase) -> None:
        self.phases.append(phase)

    def completed(self) -> None: ...

    def seated(self, worker: str) -> None: ...


def meet(
    *outcomes: Outcome, stopped: bool = False, drain_timeout_s: float = 0
) -> tuple[Session, ScriptedLink]:
    """Begin a session with a server that will answer so."""
    link = ScriptedLink(*outcomes)
    session = Session(cast(Link, link), is_set(stopped=stopped), drain_timeout_s, Diary())
    return session, link


def send(session: Session, *words: Any) -> list[Any]:
    return session.send(command(*words))


def test_first_flight_meets_the_server() -> None:
    """The server is asked who it is before the first flight, and not again."""
    session, link = meet([1], [2])
    assert send(session, "A") == [1]
    assert send(session, "B") == [2]
    assert link.meetings == 1
    assert session.server_uptime_s == 100
    assert link.flights == [[("A",)], [("B",)]]


@pytest.mark.parametrize("trouble", [AWAY, [AWAY], FULL, [FULL]])
def test_trouble_that_passes_is_waited_out(trouble: Outcome) -> None:
    """A broken connection, and an error that will pass, have the whole flight sent again."""
    session, link = meet(trouble, trouble, [1])
    assert send(session, "A") == [1]
    assert link.flights == [[("A",)]] * 3


def test_server_that_is_away_when_it_is_to_be_met() -> None:
    """Nothing is sent to a server that does not yet say who it is."""
    session, link = meet([1])
    link.absent = [AWAY, AWAY]
    assert send(session, "A") == [1]
    assert link.meetings == 3
    assert link.flights == [[("A",)]]


def test_refusal_that_waiting_does_not_change() -> None:
    """An answer that will stay the same is raised at once."""
    session, link = meet([UNFIT])
    with pytest.raises(ServerUnfit):
        send(session, "A")
    assert len(link.flights) == 1


def test_asking_leaves_refusals_in_place() -> None:
    """Asking returns what the server refused, beside what it answered; only breaks are waited out."""
    session, _ = meet([1, AWAY, 2], [1, FULL, UNFIT])
    assert session.ask(command("A"), command("B"), command("C")) == [1, FULL, UNFIT]


def test_same_server_after_a_break() -> None:
    """After a break the server is asked who it is; the same one goes on where it was."""
    session, link = meet([1], AWAY, [2])
    send(session, "A")
    assert send(session, "B") == [2]
    assert link.meetings == 2


def test_another_server_after_a_break() -> None:
    """Another server behind the address is told to the caller once, before anything is sent to it."""
    session, link = meet([1], AWAY, [3])
    send(session, "A")
    link.run_id = "two"
    with pytest.raises(Displaced):
        send(session, "B")
    assert link.flights == [[("A",)], [("B",)]]
    assert send(session, "C") == [3]
    assert link.meetings == 2


def test_waiting_returns_answers_as_they_are() -> None:
    """A blocking flight is sent once, and errors stand in their places."""
    session, link = meet([1, FULL, UNFIT])
    flight = [command("A"), command("B"), command("C")]
    assert session.wait(flight, bool) == [1, FULL, UNFIT]
    assert len(link.flights) == 1


@pytest.mark.parametrize("trouble", [NoReply("stopped"), AWAY])
def test_waiting_is_not_repeated(trouble: Outcome) -> None:
    """A blocking flight that broke, or was abandoned, is not sent again: it could take twice."""
    session, link = meet(trouble)
    assert session.wait([command("A")], bool) is None
    assert len(link.flights) == 1


def test_stop_ends_the_patience() -> None:
    """A worker that is to stop gives up on a server that stays away when its time is over."""
    session, link = meet(AWAY, stopped=True)
    with pytest.raises(GaveUp):
        send(session, "A")
    assert len(link.flights) == 1


def test_stop_leaves_time_to_drain() -> None:
    """A worker that is to stop goes on trying while its time to drain lasts."""
    session, _ = meet(AWAY, AWAY, [1], stopped=True, drain_timeout_s=60)
    assert send(session, "A") == [1]


def test_undisturbed() -> None:
    """The quiet time begins when the server is met, and anew after each break."""
    session, _ = meet([1], AWAY, [2])
    assert session.undisturbed_s < 0
    send(session, "A")
    assert session.undisturbed_s >= 0
    session.wait([command("B")], bool)
    assert session.undisturbed_s < 0
    send(session, "C")
    assert session.undisturbed_s >= 0


def test_a_break_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """However often it is tried, one break is one line in the log, and the next another."""
    session, _ = meet([1], AWAY, AWAY, AWAY, [2], AWAY, [3])
    with caplog.at_level(logging.WARNING):
        for word in "ABC":
            send(session, word)
    assert [record.message for record in caplog.records] == ["gone; trying again"] * 2


def test_each_try_is_a_sign_of_life() -> None:
    """Whoever watches hears of every try, since a worker that waits for Redis is not stuck."""
    link = ScriptedLink(AWAY, AWAY, [1])
    diary = Diary()
    session = Session(cast(Link, link), is_set(stopped=False), 0, diary)
    send(session, "A")
    assert diary.phases == [Phase.TURNING] * 2


class TestClock:
    TIMES = [[[b"1000", b"250000"]]] * 5

    def test_time_is_the_servers(self) -> None:
        """The time is the server's, taken over several round trips, then kept locally."""
        session, link = meet(*self.TIMES)
        first = session.now_ms()
        assert 1_000_250 <= first <= session.now_ms()
        assert link.flights == [[("TIME",)]] * 5

    def test_after_a_break(self) -> None:
        """After a break the estimate is made anew: the server may be another one."""
        later: list[Outcome] = [[[b"2000", b"0"]]] * 5
        session, link = meet(*self.TIMES, *later)
        session.now_ms()
        session.disturbed(AWAY)
        assert session.now_ms() >= 2_000_000
        assert len(link.flights) == 10
