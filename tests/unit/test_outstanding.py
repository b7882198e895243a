"""Awaited replies: what a reader asks the server next, and what it makes of the answers."""

import gc
import json
from typing import Any

import pytest

from inferq.contract.errors import Expired, InvalidRequest, NotFound
from inferq.contract.keys import Keys
from inferq.contract.replies import Reply
from inferq.outstanding import Outstanding, Slot, State
from support.steps import FakeServer, Words

KEYS = Keys("p", "m")
INBOX = KEYS.inbox("box")


def reply(number: int, rows: int = 1) -> bytes:
    output = {"name": "y", "datatype": "INT64", "shape": [rows], "data": [number] * rows}
    return json.dumps({"id": "r", "model_name": "m", "outputs": [output]}).encode()


def failure(code: str) -> bytes:
    return json.dumps({"id": "r", "error": "why", "parameters": {"code": code}}).encode()


class Keyspace(FakeServer):
    """A server that knows replies, and hints for the inbox."""

    def __init__(self, *hints: bytes, **replies: bytes) -> None:
        super().__init__(
            BLMPOP=lambda _: [INBOX.encode(), list(hints)] if hints else None,
            GET=lambda words: self.replies.get(words[1]),
            MGET=lambda words: [self.replies.get(key) for key in words[1:]],
        )
        self.replies = {KEYS.reply(name): value for name, value in replies.items()}

    def asked(self) -> list[Words]:
        """Return the ids whose replies were read, one tuple a command."""
        start = len(KEYS.reply(""))
        return [
            tuple(key[start:] for key in words[1:]) for words in self.sent if words[0] != "BLMPOP"
        ]

    def block_s(self) -> float:
        (words,) = [words for words in self.sent if words[0] == "BLMPOP"]
        seconds: float = words[1]
        return seconds


def awaiting(*names: str, poll_s: float = 1.0) -> tuple[Outstanding, list[Slot]]:
    outstanding = Outstanding(KEYS, "box", poll_s)
    slots = [outstanding.add(name, single=True, now_s=100.0) for name in names]
    for slot in slots:
        slot.state = State.PUSHED
    return outstanding, slots


def value(slot: Slot) -> Any:
    return slot.value()["y"].tolist()


class TestTurn:
    def test_a_lone_request_takes_one_flight(self) -> None:
        """The only request awaited comes with the hint that announces it, in one round trip."""
        outstanding, (slot,) = awaiting("a")
        server = Keyspace(b"a", a=reply(1))
        server.carry_out(outstanding.turn(100.0, 200.0))
        assert server.sent == [
            ("BLMPOP", 1.0, 1, INBOX, "LEFT", "COUNT", 1_000),
            ("GET", KEYS.reply("a")),
        ]
        assert value(slot) == 1

    def test_several_are_fetched_together(self) -> None:
        """The replies that hints name are read in one command; the others stay awaited."""
        outstanding, slots = awaiting("a", "b", "c")
        server = Keyspace(b"c", b"a", a=reply(1), b=reply(2), c=reply(3))
        server.carry_out(outstanding.turn(100.0, 200.0))
        assert server.asked() == [("c", "a")]
        assert [slot.result is not None for slot in slots] == [True, False, True]
        assert len(outstanding) == 1

    def test_hints_are_believed_where_a_request_is_awaited(self) -> None:
        """Ids of others, ids told twice and bytes that are no id cost no look at a reply."""
        outstanding, _slots = awaiting("a", "b")
        server = Keyspace(b"x", b"a", b"\xff", b"a", a=reply(1))
        server.carry_out(outstanding.turn(100.0, 200.0))
        assert server.asked() == [("a",)]

    def test_a_hint_for_one_that_joined_later(self) -> None:
        """A request submitted while the reader blocks is found by the hint that ends the block."""
        outstanding, (first,) = awaiting("a")
        steps = outstanding.turn(100.0, 200.0)
        next(steps)
        second = outstanding.add("b", single=True, now_s=100.1)
        server = Keyspace(b=reply(2))
        flight = steps.send([[INBOX.encode(), [b"b"]], b""])
        with pytest.raises(StopIteration):
            steps.send(server.fly(flight))
        assert first.result is None
        assert value(second) == 2

    @pytest.mark.parametrize(
        ("now_s", "until_s", "poll_s", "block_s"),
        [
            (100.0, 200.0, 1.0, 1.0),
            (100.75, 200.0, 1.0, 0.25),
            (100.0, 100.5, 1.0, 0.5),
            (100.0, float("inf"), 3_600.0, 4.0),
            (100.0, 99.0, 1.0, 0.001),
        ],
        ids=["next look", "time goes on", "deadline", "connection's patience", "never endless"],
    )
    def test_how_long_it_blocks(
        self, now_s: float, until_s: float, poll_s: float, block_s: float
    ) -> None:
        """A block ends with the first of: the next look, the deadline, what a connection allows."""
        outstanding, _slots = awaiting("a", "b", poll_s=poll_s)
        server = Keyspace()
        server.carry_out(outstanding.turn(now_s, until_s))
        assert server.block_s() == pytest.approx(block_s)

    def test_lost_hints_are_made_up_for(self) -> None:
        """Once every ``poll_s`` all that is awaited is looked for, without a block."""
        outstanding, slots = awaiting("a", "b")
        server = Keyspace(a=b"", b=reply(2))
        server.carry_out(outstanding.turn(101.0, 200.0))
        assert server.sent == [("MGET", KEYS.reply("a"), KEYS.reply("b"))]
        assert slots[0].result is None
        assert value(slots[1]) == 2
        server.sent.clear()
        server.carry_out(outstanding.turn(101.5, 200.0))
        assert server.block_s() == pytest.approx(0.5)

    def test_a_long_idle_reader_looks_first(self) -> None:
        """What was submitted long before anybody waits is looked for in one command."""
        outstanding, slots = awaiting("a", "b")
        server = Keyspace(a=reply(1), b=reply(2))
        server.carry_out(outstanding.turn(5_000.0, 6_000.0))
        assert server.verbs() == ["MGET"]
        assert [value(slot) for slot in slots] == [1, 2]

    def test_the_first_of_many_starts_the_clock(self) -> None:
        """A request submitted when nothing was awaited is not looked for before ``poll_s``."""
        outstanding, (first,) = awaiting("a")
        outstanding.settle({"a": reply(1)})
        again = outstanding.add("b", single=True, now_s=900.0)
        server = Keyspace()
        server.carry_out(outstanding.turn(900.5, 1_000.0))
        assert server.block_s() == pytest.approx(0.5)
        assert first.result is not None
        assert again.result is None

    def test_no_command_grows_without_bound(self) -> None:
        """Many replies are looked for in commands of at most 1,000 keys."""
        outstanding, slots = awaiting(*(f"r{number}" for number in range(2_500)))
        server = Keyspace()
        server.carry_out(outstanding.turn(101.0, 200.0))
        assert [len(ids) for ids in server.asked()] == [1_000, 1_000, 500]
        assert all(isinstance(slot.result, NotFound) for slot in slots)


class TestSettle:
    def test_pending(self) -> None:
        """An empty reply key is a request that waits still."""
        outstanding, (slot,) = awaiting("a")
        outstanding.settle({"a": b""})
        assert slot.result is None
        assert len(outstanding) == 1

    def test_gone(self) -> None:
        """A reply key that is gone is the end of the wait, and says so."""
        outstanding, (slot,) = awaiting("a")
        outstanding.settle({"a": None})
        with pytest.raises(NotFound, match="'a' of model 'm'"):
            slot.value()
        assert len(outstanding) == 0

    def test_gone_before_it_was_there(self) -> None:
        """A request whose submission is still under way has no key yet, and stays awaited."""
        outstanding = Outstanding(KEYS, "box", 1.0)
        slot = outstanding.add("a", single=True, now_s=100.0)
        outstanding.settle({"a": None})
        assert slot.result is None
        outstanding.settle({"a": reply(1)})
        assert value(slot) == 1

    def test_an_error_reply(self) -> None:
        """An error reply is raised as the typed error it describes, each time anew."""
        outstanding, (slot,) = awaiting("a")
        outstanding.settle({"a": failure("expired")})
        for _ in range(2):
            with pytest.raises(Expired, match="why") as raised:
                slot.value()
            assert len(raised.traceback) == 2

    def test_no_reply_at_all(self) -> None:
        """Bytes that are no reply settle the request with an error; the reader goes on."""
        outstanding, slots = awaiting("a", "b")
        outstanding.settle({"a": b"junk", "b": reply(2)})
        assert isinstance(slots[0].result, InvalidRequest)
        assert value(slots[1]) == 2

    def test_unknown_ids(self) -> None:
        """Values of ids that nobody awaits change nothing."""
        outstanding, _slots = awaiting("a")
        outstanding.settle({"x": reply(1), "y": None})
        assert len(outstanding) == 1

    def test_who_waits_is_woken_once(self) -> None:
        """Everybody who waits for a slot is called when its result is there, and only then."""
        outstanding, (slot,) = awaiting("a")
        calls: list[str] = []
        slot.wakers += [lambda: calls.append("one"), lambda: calls.append("two")]
        outstanding.settle({"a": b""})
        assert calls == []
        outstanding.settle({"a": reply(1)})
        outstanding.settle({"a": reply(1)})
        assert calls == ["one", "two"]


class TestSameId:
    def test_both_get_the_reply(self) -> None:
        """Two slots of one id get the same answer, each in the form it asked for."""
        outstanding = Outstanding(KEYS, "box", 1.0)
        row = outstanding.add("a", single=True, now_s=100.0)
        batch = outstanding.add("a", single=False, now_s=100.0)
        assert len(outstanding) == 1
        outstanding.settle({"a": reply(7)})
        assert [value(row), value(batch)] == [7, [7]]

    def test_a_row_that_joins_a_batch(self) -> None:
        """A row that joined a batch of several gets the batch: none of its rows is its own."""
        outstanding = Outstanding(KEYS, "box", 1.0)
        slot = outstanding.add("a", single=True, now_s=100.0)
        slot.state = State.PENDING
        outstanding.settle({"a": reply(7, rows=3)})
        assert value(slot) == [7, 7, 7]


class TestDropped:
    def test_a_dropped_slot_is_forgotten(self) -> None:
        """A slot that nobody holds any more is not looked for, and costs no memory."""
        outstanding, slots = awaiting(*(f"r{number}" for number in range(100)))
        del slots[1:]
        gc.collect()
        server = Keyspace(r0=b"")
        server.carry_out(outstanding.turn(101.0, 200.0))
        assert server.asked() == [("r0",)]
        assert len(outstanding) == 1

    def test_its_twin_is_not(self) -> None:
        """Of two slots of one id the one that is held stays awaited."""
        outstanding, slots = awaiting("a", "a")
        del slots[0]
        gc.collect()
        assert len(outstanding) == 1
        outstanding.settle({"a": reply(1)})
        assert isinstance(slots[0].result, Reply)

    def test_a_reply_to_a_dropped_slot(self) -> None:
        """A reply that comes for a slot just dropped is passed over."""
        outstanding, slots = awaiting("a")
        slots.clear()
        outstanding.settle({"a": reply(1)})
        assert len(outstanding) == 0
