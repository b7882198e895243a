"""The books of the fault matrix tell every way in which a promise can be broken."""

from collections.abc import Iterator
from typing import Any

import pytest
import redis

from faults.matrix.ledger import Ledger
from faults.matrix.verdict import Verdict, judge
from faults.matrix.witness import Witness
from inferq.contract.errors import Crashed, InferqError, ModelError
from inferq.contract.keys import Keys
from inferq.contract.replies import ReplyReader, ReplyWriter
from support.bare import Bare
from support.waiting import until

LIFE_MS = 60_000


@pytest.fixture
def books(redis_url: str, client: redis.Redis, prefix: str) -> Iterator["Books"]:
    bare = Bare(client, Keys(prefix, "echo"))
    with Witness(redis_url, bare.keys) as witness:
        yield Books(bare, witness)


class Books:
    """A ledger, and a server that is made to say what the test wants."""

    def __init__(self, bare: Bare, witness: Witness) -> None:
        self.bare = bare
        self.ledger = Ledger()
        self.witness = witness

    def accept(self, request_id: str, number: int) -> None:
        self.bare.client.set(self.bare.keys.reply(request_id), "", px=LIFE_MS)
        self.ledger.accept(request_id, number)

    def answer(self, request_id: str, reply: bytes, *, outcome: str = "succeeded") -> None:
        self.bare.client.set(self.bare.keys.reply(request_id), reply, px=LIFE_MS)
        self.bare.client.hincrby(self.bare.keys.metrics, f"requests_{outcome}", 1)

    def judge(self, *, writes: int = 0) -> Verdict:
        """Close the books once the witness has seen so many writes."""
        until(lambda: self.witness.writes.total() >= writes)
        return judge(self.ledger, self.bare, self.witness)


def reply(request_id: str, number: int, **changes: Any) -> bytes:
    data = {"number": number, "double": 2 * number, **changes}
    outputs = ",".join(
        f'{{"name":"{name}","datatype":"INT64","shape":[1],"data":[{value}]}}'
        for name, value in data.items()
    )
    return f'{{"id":"{request_id}","model_name":"echo","outputs":[{outputs}]}}'.encode()


def error(request_id: str, what: InferqError) -> bytes:
    return ReplyWriter("echo", None).error(request_id, what)


def test_all_well(books: Books) -> None:
    """Where every request has the reply it deserves, nothing is wrong."""
    books.accept("a", 1)
    books.answer("a", reply("a", 1))
    books.ledger.saw("a", ReplyReader().read(reply("a", 1)))
    assert books.judge(writes=2) == Verdict(set(), set(), set(), 1, [])


def test_lost(books: Books) -> None:
    """A request without a reply, or with an empty one, is lost."""
    books.accept("a", 1)
    books.ledger.accept("b", 2)
    verdict = books.judge()
    assert (verdict.lost, verdict.answered) == ({"a", "b"}, 0)


@pytest.mark.parametrize(
    "text", [reply("a", 2), reply("a", 1, double=4), reply("b", 1), error("b", ModelError("no"))]
)
def test_misrouted(books: Books, text: bytes) -> None:
    """A reply with the number or the id of another is misrouted."""
    books.accept("a", 1)
    books.answer("a", text)
    assert books.judge().misrouted == {"a"}


def test_changed(books: Books) -> None:
    """A reply that is not the one its sender saw was written twice."""
    books.accept("a", 1)
    books.answer("a", error("a", ModelError("no")))
    books.ledger.saw("a", ReplyReader().read(reply("a", 1)))
    assert books.judge().twice == {"a"}


def test_written_twice(books: Books) -> None:
    """A reply that is written again in the same words was written twice."""
    books.accept("a", 1)
    for _ in range(2):
        books.answer("a", reply("a", 1))
    assert books.judge(writes=3).twice == {"a"}


def test_submitted_twice(books: Books) -> None:
    """A number that is answered under two ids was submitted twice."""
    books.accept("a", 1)
    books.answer("a", reply("a", 1))
    books.answer("b", reply("b", 1))
    assert books.judge().twice == {"a"}


def test_undeserved(books: Books) -> None:
    """An error for a request that deserves none is wrong."""
    books.accept("a", 1)
    books.answer("a", error("a", ModelError("no")), outcome="model_error")
    verdict = books.judge()
    assert (verdict.answered, verdict.wrong) == (0, ["1 were answered model_error"])
    books.ledger.expect("a", {"model_error"})
    assert books.judge().answered == 1


def test_refused_and_run(books: Books) -> None:
    """A request that was refused must not have run."""
    books.ledger.refuse([1])
    books.answer("a", reply("a", 1))
    assert books.judge().wrong == ["1 refused requests ran: 1"]


def test_miscounted(books: Books) -> None:
    """A counter that does not agree with the replies is wrong, in either direction."""
    books.accept("a", 1)
    books.answer("a", reply("a", 1), outcome="cancelled")
    assert [line.partition(" says ")[0] for line in books.judge().wrong] == [
        "the counter requests_cancelled",
        "the counter requests_succeeded",
    ]


def test_left_over(books: Books) -> None:
    """Whatever is left in queue, claims and registry is told, and what has no end."""
    keys, client = books.bare.keys, books.bare.client
    client.rpush(keys.suspects, "1|x")
    client.hset(keys.claims, keys.claimed("w", 1), "w")
    client.zadd(keys.workers, {"w": 1})
    client.hset(keys.closed, "w", 1)
    client.rpush(keys.dead, "{}\nx")
    client.set(keys.reply("a"), "")
    assert books.judge().wrong == [
        "requests are left in the queue or in a claim",
        "claims is not empty",
        "closed is not empty",
        "workers is not empty",
        "the dead list has 1 entries, 0 were due",
        "keys without an end: claims, closed, reply:a, suspects, workers",
    ]


def test_a_crash_is_on_the_dead_list(books: Books) -> None:
    """A request that was answered ``crashed`` is due on the dead list, once."""
    books.accept("a", -1)
    books.ledger.expect("a", {"crashed"})
    books.answer("a", error("a", Crashed("again")), outcome="crashed")
    assert books.judge().wrong == ["the dead list has 0 entries, 1 were due"]


def test_told_to_be_unknown(books: Books) -> None:
    """Senders who were told that nobody knows their request, or gave up, are counted."""
    books.ledger.forgotten.add("a")
    books.ledger.silent.add("b")
    assert len(books.judge().wrong) == 2
