"""claim.lua: what an open claim takes, in which order, and how much of it."""

from typing import Any, NamedTuple

import pytest

from support.queue_state import Queue, State, after
from support.script_calls import Call

KNOWN: State = {"workers": {"w": "alive"}}
OPEN: State = {"claims": {"claimed:w:1": "w"}}


class Case(NamedTuple):
    title: str
    before: State
    options: dict[str, Any]
    answer: list[Any]
    changes: State


TAKING = [
    Case("nothing waits: the claim is recorded and empty", {}, {}, [1, 0, 0, 0], OPEN),
    Case(
        "from the head, as many as wanted",
        {"normal": ["a", "b", "c"]},
        {"want": 2},
        [1, 0, 1, 0, "a", "b"],
        {"normal": ["c"], "claimed:w:1": ["a", "b"], **OPEN},
    ),
    Case(
        "returned, high, normal, low",
        {"low": ["l"], "normal": ["n"], "high": ["h"], "returned": ["r"]},
        {},
        [1, 0, 0, 0, "r", "h", "n", "l"],
        {
            "low": None,
            "normal": None,
            "high": None,
            "returned": None,
            "claimed:w:1": ["r", "h", "n", "l"],
            **OPEN,
        },
    ),
    Case(
        "a larger want tops the claim up",
        {"claimed:w:1": ["a"], **OPEN, "normal": ["b", "c", "d"]},
        {"want": 3},
        [1, 0, 1, 0, "a", "b", "c"],
        {"claimed:w:1": ["a", "b", "c"], "normal": ["d"]},
    ),
    Case(
        "a list without a record is given one",
        {"claimed:w:1": ["a"]},
        {"want": 1},
        [1, 0, 0, 0, "a"],
        OPEN,
    ),
    Case(
        "more than wanted is not told, and stays for the completion to hand back",
        {"claimed:w:1": ["a", "b", "c", "d"], **OPEN, "normal": ["e"]},
        {"want": 2},
        [1, 0, 1, 0, "a", "b"],
        {},
    ),
    Case(
        "the record of a suspect that is gone is an ordinary one again",
        {"claims": {"claimed:w:1": "w started"}, "normal": ["a"]},
        {},
        [1, 0, 0, 0, "a"],
        {"claimed:w:1": ["a"], "normal": None, **OPEN},
    ),
]

TOKENS = [
    Case(
        "tokens in the lanes are dropped and take no slot",
        {"high": ["", "h"], "normal": ["", "a", "", "b", "", "c"]},
        {"want": 3},
        [1, 0, 2, 0, "h", "a", "b"],
        {"high": None, "normal": ["", "c"], "claimed:w:1": ["h", "a", "b"], **OPEN},
    ),
    Case("a lane of tokens only", {"normal": ["", ""]}, {}, [1, 0, 0, 0], {"normal": None, **OPEN}),
    Case(
        "a token that woke the worker is dropped from the claim",
        {"claimed:w:1": [""], **OPEN, "high": ["h"]},
        {},
        [1, 0, 0, 0, "h"],
        {"high": None, "claimed:w:1": ["h"]},
    ),
    Case(
        "a token behind requests is dropped from the claim",
        {"claimed:w:1": ["a", "", "b"], **OPEN},
        {},
        [1, 0, 0, 0, "a", "b"],
        {"claimed:w:1": ["a", "b"]},
    ),
]

BUDGET = [
    Case(
        "what fits exactly is taken",
        {"normal": ["12345", "12345", "1"]},
        {"budget": 10},
        [1, 0, 1, 0, "12345", "12345"],
        {"normal": ["1"], "claimed:w:1": ["12345", "12345"], **OPEN},
    ),
    Case(
        "what does not fit stays",
        {"normal": ["12345", "123456"]},
        {"budget": 10},
        [1, 0, 1, 0, "12345"],
        {"normal": ["123456"], "claimed:w:1": ["12345"], **OPEN},
    ),
    Case(
        "the first one is taken whatever its size, alone",
        {"normal": ["1234567890", "1"]},
        {"budget": 5},
        [1, 0, 1, 0, "1234567890"],
        {"normal": ["1"], "claimed:w:1": ["1234567890"], **OPEN},
    ),
    Case(
        "also with no budget at all",
        {"normal": ["1", "2"]},
        {"budget": 0},
        [1, 0, 1, 0, "1"],
        {"normal": ["2"], "claimed:w:1": ["1"], **OPEN},
    ),
    Case(
        "what is held counts",
        {"claimed:w:1": ["12345"], **OPEN, "normal": ["123", "123"]},
        {"budget": 10},
        [1, 0, 1, 0, "12345", "123"],
        {"claimed:w:1": ["12345", "123"], "normal": ["123"]},
    ),
    Case(
        "a claim that is full of bytes takes nothing",
        {"claimed:w:1": ["12345"], **OPEN, "normal": ["1"]},
        {"budget": 5},
        [1, 0, 1, 0, "12345"],
        {},
    ),
    Case(
        "a token costs nothing",
        {"normal": ["12345", "", "12345"]},
        {"budget": 10},
        [1, 0, 0, 0, "12345", "12345"],
        {"normal": None, "claimed:w:1": ["12345", "12345"], **OPEN},
    ),
    Case(
        "one that does not fit leaves room for a lower lane",
        {"high": ["12345", "123456"], "low": ["123"]},
        {"budget": 10},
        [1, 0, 1, 0, "12345", "123"],
        {
            "high": ["123456"],
            "low": None,
            "normal": [""],
            "claimed:w:1": ["12345", "123"],
            **OPEN,
        },
    ),
]

KEPT = [
    Case(
        "slots are kept for the lower lanes",
        {"high": ["h1", "h2", "h3", "h4"], "normal": ["n1", "n2"], "low": ["l1", "l2"]},
        {"want": 4, "kept_normal": 1, "kept_low": 1},
        [1, 0, 4, 0, "h1", "h2", "n1", "l1"],
        {
            "high": ["h3", "h4"],
            "normal": ["n2"],
            "low": ["l2"],
            "claimed:w:1": ["h1", "h2", "n1", "l1"],
            **OPEN,
        },
    ),
    Case(
        "also from what was returned",
        {"returned": ["r1", "r2"], "low": ["l1"]},
        {"want": 2, "kept_low": 1},
        [1, 0, 1, 0, "r1", "l1"],
        {
            "returned": ["r2"],
            "low": None,
            "normal": [""],
            "claimed:w:1": ["r1", "l1"],
            **OPEN,
        },
    ),
    Case(
        "a kept slot that its lane cannot use falls to any lane",
        {"high": ["h1", "h2", "h3"]},
        {"want": 3, "kept_normal": 1, "kept_low": 1},
        [1, 0, 0, 0, "h1", "h2", "h3"],
        {"high": None, "claimed:w:1": ["h1", "h2", "h3"], **OPEN},
    ),
    Case(
        "a token does not use a kept slot",
        {"high": ["h1", "h2", "h3"], "normal": [""]},
        {"want": 2, "kept_normal": 1},
        [1, 0, 1, 0, "h1", "h2"],
        {"high": ["h3"], "claimed:w:1": ["h1", "h2"], **OPEN},
    ),
    Case(
        "free slots go on where the kept ones ended",
        {"normal": ["n1", "n2", "n3"], "low": ["l1", "l2", "l3"]},
        {"want": 5, "kept_normal": 1, "kept_low": 1},
        [1, 0, 1, 0, "n1", "n2", "n3", "l1", "l2"],
        {
            "normal": [""],
            "low": ["l3"],
            "claimed:w:1": ["n1", "n2", "n3", "l1", "l2"],
            **OPEN,
        },
    ),
    Case(
        "the only slot of a small batch is the kept one when its turn comes",
        {"high": ["h1"], "low": ["l1"]},
        {"want": 1, "kept_low": 1},
        [1, 0, 1, 0, "l1"],
        {"low": None, "normal": [""], "claimed:w:1": ["l1"], **OPEN},
    ),
    Case(
        "more slots kept than wanted are no more than wanted",
        {"high": ["h1"], "low": ["l1", "l2", "l3"]},
        {"want": 2, "kept_low": 3},
        [1, 0, 2, 0, "l1", "l2"],
        {"low": ["l3"], "normal": [""], "claimed:w:1": ["l1", "l2"], **OPEN},
    ),
    Case(
        "the budget does not starve a kept slot",
        {"high": ["12345", "12345"], "low": ["12345"]},
        {"want": 3, "budget": 10, "kept_low": 1},
        [1, 0, 1, 0, "12345", "12345"],
        {
            "high": ["12345"],
            "low": None,
            "normal": [""],
            "claimed:w:1": ["12345", "12345"],
            **OPEN,
        },
    ),
]

WAKING = [
    Case(
        "the bell is passed on while work waits outside the empty normal lane",
        {"normal": ["a"], "low": ["l1", "l2"]},
        {"want": 2},
        [1, 0, 1, 0, "a", "l1"],
        {"normal": [""], "low": ["l2"], "claimed:w:1": ["a", "l1"], **OPEN},
    ),
    Case(
        "no bell while the normal lane holds something",
        {"high": ["h1", "h2"], "normal": ["a"]},
        {"want": 1},
        [1, 0, 2, 0, "h1"],
        {"high": ["h2"], "claimed:w:1": ["h1"], **OPEN},
    ),
    Case(
        "suspects that this claim may not take ring it too",
        {"suspects": ["1|s"]},
        {"mode": "never"},
        [1, 0, 0, 0],
        {"normal": [""], **OPEN},
    ),
]

FLAGS = [
    Case("a cancellation", {"cancelled": "1"}, {}, [1, 0, 0, 1], OPEN),
    Case(
        "another's lease has ended",
        {"workers": {"w": "alive", "v": "lapsed"}},
        {},
        [1, 0, 0, 2],
        OPEN,
    ),
    *(
        Case(
            f"{name} is a key of another type and is passed over",
            {name: "a string", "normal" if name != "normal" else "low": ["a"]},
            {},
            [1, 0, 0, 4, "a"],
            {"normal" if name != "normal" else "low": None, "claimed:w:1": ["a"], **OPEN},
        )
        for name in ("returned", "high", "normal", "low")
    ),
    Case("so is suspects", {"suspects": {"a": "hash"}}, {}, [1, 0, 0, 4], OPEN),
    Case(
        "also where the lanes hold work",
        {"suspects": {"a": "hash"}, "normal": ["a", "b"]},
        {"mode": "first", "want": 1},
        [1, 0, 1, 4, "a"],
        {"normal": ["b"], "claimed:w:1": ["a"], **OPEN},
    ),
    Case(
        "flags are added up",
        {"cancelled": "1", "workers": {"w": "alive", "v": "lapsed"}, "high": "a string"},
        {},
        [1, 0, 0, 7],
        OPEN,
    ),
]

LEASES = [
    Case(
        "a lease that ended begins anew while the worker is still known",
        {"workers": {"w": "lapsed"}},
        {},
        [1, 0, 0, 0],
        {"workers": {"w": "alive"}, **OPEN},
    ),
    Case(
        "a floor closes what is below it",
        {},
        {"number": 5, "floor": 4},
        [1, 0, 0, 0],
        {"closed": {"w": "3"}, "claims": {"claimed:w:5": "w"}},
    ),
    Case(
        "a floor opens nothing again",
        {"closed": {"w": "4"}},
        {"number": 5, "floor": 3},
        [1, 0, 0, 0],
        {"claims": {"claimed:w:5": "w"}},
    ),
]


@pytest.mark.parametrize(
    "case",
    [*TAKING, *TOKENS, *BUDGET, *KEPT, *WAKING, *FLAGS, *LEASES],
    ids=lambda case: case.title,
)
def test_table(queue: Queue, case: Case) -> None:
    """Each row: a state, one claim of a known worker, its answer and exactly what it changed."""
    before = KNOWN | case.before
    queue.put(before)
    assert queue.run(queue.calls.claim(**case.options)) == case.answer
    assert queue.state() == after(before, case.changes)


def test_twice(queue: Queue) -> None:
    """A claim that is sent again gives the same requests in the same places, and no more."""
    queue.put(KNOWN | {"normal": ["a", "b", "c"]})
    call = queue.calls.claim(want=2)
    first = queue.run(call)
    once = queue.state()
    assert queue.run(call) == first
    assert queue.state() == once


def test_again_after_arrivals(queue: Queue) -> None:
    """What arrived between two copies is added behind: the first answer is a prefix of the second."""
    queue.put(KNOWN | {"low": ["a", "b"]})
    call = queue.calls.claim(want=4)
    assert queue.run(call) == [1, 0, 0, 0, "a", "b"]
    queue.put({"returned": ["r"], "high": ["h1", "h2"]})
    assert queue.run(call) == [1, 0, 1, 0, "a", "b", "r", "h1"]


def test_more_than_a_chunk(server_queue: Queue) -> None:
    """A claim moves any number of requests, in order, whatever Lua's stack holds."""
    messages = [f"message {number}" for number in range(20_000)]
    server_queue.put(KNOWN | {"normal": messages})
    answer = server_queue.run(server_queue.calls.claim(want=15_000))
    assert answer == [1, 0, 5_000, 0, *messages[:15_000]]
    assert server_queue.state()["claimed:w:1"] == messages[:15_000]
    assert server_queue.state()["normal"] == messages[15_000:]


def test_uneven_sizes(queue: Queue) -> None:
    """The budget holds however the sizes of neighbours differ, and nothing that fits is left out."""
    sizes = [1, 1, 1, 1, 1, 1, 1, 1, 1, 500, 1, 1, 400, 1, 90, 90]
    messages = [chr(ord("a") + place) * size for place, size in enumerate(sizes)]
    queue.put(KNOWN | {"normal": messages})
    answer = queue.run(queue.calls.claim(want=16, budget=1_002))
    assert answer[4:] == messages[:15]
    assert queue.state()["normal"] == messages[15:]


def looks(queue: Queue, call: Call) -> list[int]:
    """Call a claim and return how many elements of the normal lane it read, look by look."""
    with queue.client.monitor() as monitor:
        queue.run(call)
        queue.client.echo("over")
        commands: list[str] = []
        while not commands or not commands[-1].startswith("ECHO"):
            commands.append(monitor.next_command()["command"])
    ranges = [command.split() for command in commands if command.startswith("LRANGE")]
    return [int(words[3]) - int(words[2]) + 1 for words in ranges if words[1] == queue.keys.normal]


def test_few_looks(server_queue: Queue) -> None:
    """A batch of small requests is read in a handful of looks, none of it twice."""
    server_queue.put(KNOWN | {"normal": ["small"] * 300})
    seen = looks(server_queue, server_queue.calls.claim(want=200))
    assert sum(seen) == 200
    assert len(seen) <= 4


def test_short_looks(server_queue: Queue) -> None:
    """A lane of large requests is not read whole to take the four that fit: memory is bounded."""
    server_queue.put(KNOWN | {"normal": ["x" * 1_000] * 300})
    assert sum(looks(server_queue, server_queue.calls.claim(want=200, budget=4_000))) == 4


def test_small_ones_in_front(server_queue: Queue) -> None:
    """Small requests in front of large ones raise the looks by steps, so that little is read in vain."""
    server_queue.put(KNOWN | {"normal": ["s"] * 3 + ["x" * 1_000] * 300})
    seen = looks(server_queue, server_queue.calls.claim(want=200, budget=2_500))
    assert len(server_queue.state()["claimed:w:1"]) == 5
    assert sum(seen) <= 10


def test_lease_on_the_servers_clock(queue: Queue) -> None:
    """The lease ends on the server's time, so that no other clock matters."""
    queue.put(KNOWN)
    earliest = queue.now_ms()
    queue.run(queue.calls.claim(lease_ms=40_000))
    assert earliest + 40_000 <= queue.lease_end_ms("w") <= queue.now_ms() + 40_000


def test_nothing_new_lives_for_ever(queue: Queue) -> None:
    """A claim adds no key without a time to live but those that the contract lists."""
    queue.put(KNOWN | {"normal": ["a"], "suspects": ["1|s"], "cancelled": "1"})
    queue.run(queue.calls.claim(number=2, floor=2))
    assert queue.forever() == {"claimed:w:2", "claims", "closed", "workers", "suspects", "normal"}
