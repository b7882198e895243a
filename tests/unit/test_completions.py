"""The calls that complete a claim: their parts, lives and counters."""

from collections.abc import Sequence
from typing import Any

import pytest

from inferq.contract.requests import Address
from inferq_worker.delivery import Letter, Parcel
from support.batches import message
from support.completions import KEYS, NOW_MS, Bench, frame, read_call


@pytest.fixture
def bench() -> Bench:
    return Bench()


class TestLives:
    @pytest.mark.parametrize(
        ("asked_s", "life_ms"),
        [
            (None, 700_000),
            (0, 60_000),
            (59, 60_000),
            (61, 61_000),
            (900, 900_000),
            (901, 900_000),
            (2**64 - 1, 900_000),
        ],
    )
    def test_reply_ttl(self, asked_s: int | None, life_ms: int) -> None:
        """A reply is kept as long as asked for, between a minute and the setting."""
        bench = Bench(reply_ttl_s=700, reply_ttl_max_s=900)
        asked: dict[str, Any] = {} if asked_s is None else {"reply_ttl": asked_s}
        assert bench.written(frame(**asked)).replies[0][1] == life_ms

    def test_reply_ttl_of_an_error(self) -> None:
        """An error reply is kept as long as its sender asked, also when the request was refused."""
        bench = Bench(reply_ttl_s=700, reply_ttl_max_s=900)
        sent = message("r", ("y", "FP32", [1]), parameters={"reply_ttl": 120})
        assert bench.written(sent).replies[0][1] == 120_000


class TestParts:
    def letters(self, count: int, reply: bytes = b"x", box: str | None = None) -> list[Letter]:
        return [
            Letter(Address(f"id{number}", box), "requests_succeeded", reply)
            for number in range(count)
        ]

    @pytest.mark.parametrize(
        ("count", "sizes"),
        [(0, [0]), (1, [1]), (1_000, [1_000]), (1_001, [1_000, 1]), (2_500, [1_000, 1_000, 500])],
    )
    def test_a_thousand_a_call(self, bench: Bench, count: int, sizes: Sequence[int]) -> None:
        """A call takes a thousand replies; only the last one closes the claim and counts."""
        parcel = Parcel(3, 77, bytes_in=10, letters=self.letters(count), dead=[b"entry"])
        parts = [read_call(sent) for sent in bench.delivery.complete(bench.seat, parcel)]
        assert [len(part.replies) for part in parts] == sizes
        assert [part.held for part in parts] == [0] * (len(sizes) - 1) + [77]
        assert [reply[0] for part in parts for reply in part.replies] == [
            KEYS.reply(f"id{number}") for number in range(count)
        ]
        assert [part.dead for part in parts] == [[]] * (len(sizes) - 1) + [[b"entry"]]
        assert parts[-1].counters["bytes_in"] == 10

    def test_large_replies(self, bench: Bench) -> None:
        """A call takes 64 MiB of replies, and one reply whatever its size."""
        reply = b"x" * (24 * 1024**2)
        parcel = Parcel(3, 5, letters=self.letters(5, reply))
        parts = [read_call(sent) for sent in bench.delivery.complete(bench.seat, parcel)]
        assert [len(part.replies) for part in parts] == [2, 2, 1]
        huge = Parcel(3, 2, letters=self.letters(2, b"x" * (65 * 1024**2)))
        assert len(bench.delivery.complete(bench.seat, huge)) == 2

    def test_hints_go_with_their_replies(self, bench: Bench) -> None:
        """Each call tells the inboxes of the replies it writes, in order."""
        parcel = Parcel(3, 5, letters=self.letters(1_001, box="box"))
        first, last = (read_call(sent) for sent in bench.delivery.complete(bench.seat, parcel))
        assert first.hints == {KEYS.inbox("box"): [f"id{number}" for number in range(1_000)]}
        assert last.hints == {KEYS.inbox("box"): ["id1000"]}

    def test_building_twice_counts_once(self, bench: Bench) -> None:
        """A completion that is built anew for another try adds the same counters."""
        parcel = bench.parcel(frame(), b"junk")
        assert bench.delivery.complete(bench.seat, parcel) == bench.delivery.complete(
            bench.seat, parcel
        )


class TestCounters:
    def test_of_a_batch(self, bench: Bench) -> None:
        """A batch counts its calls, rows, sizes, bytes and times; outcomes are counted with replies."""
        sent = [
            frame("a", 1, submitted_ms=NOW_MS - 7, reply_to="box"),
            message("b", ("x", "FP32", [1, 2, 3])),
            frame("c", -1),
        ]
        written = bench.written(*sent)
        counters = dict(written.counters)
        assert [reply[2] for reply in written.replies] == [
            "requests_succeeded",
            "requests_succeeded",
            "requests_model_error",
        ]
        # All three, then a alone, then b and c, then b, then c.
        assert counters.pop("batches") == 5
        assert counters.pop("rows") == 5 + 1 + 4 + 3 + 1
        assert counters.pop("batch_size_le_1") == 3
        assert counters.pop("batch_size_le_2") == 1
        assert counters.pop("batch_size_le_4") == 1
        assert counters.pop("bytes_in") == sum(map(len, sent))
        assert counters.pop("bytes_out") == sum(len(reply[3]) for reply in written.replies)
        assert counters.pop("queue_le_0.01") == 1
        assert counters.pop("queue_ns_sum") == 7_000_000
        assert counters.pop("total_le_0.5") == 1
        assert counters.pop("total_ns_sum") == 257_000_000
        assert counters.pop("compute_ns_sum") > 0
        assert sum(counters.values()) == 3
        assert all(name.startswith("compute_le_") for name in counters)

    def test_of_nothing_that_ran(self, bench: Bench) -> None:
        """Junk alone counts its bytes and its entry, and no batch."""
        assert bench.written(b"junk").counters == {"bytes_in": 4, "dead": 1}

    @pytest.mark.parametrize("stamp", [0, NOW_MS // 1_000])
    def test_stamp_in_another_unit(self, bench: Bench, stamp: int) -> None:
        """A stamp in seconds, or none at all, cannot fill up the sum: a wait counts a day at most."""
        counters = bench.written(frame(submitted_ms=stamp)).counters
        assert counters["queue_ns_sum"] == counters["total_ns_sum"] == 86_400 * 10**9
        assert counters["queue_le_inf"] == 1
