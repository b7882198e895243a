"""recover.lua: whoever is gone loses everything, whoever is alive nothing that is its own."""

import json
from typing import Any, NamedTuple

import pytest

from support.queue_state import Queue, State, after

LAPSED: State = {
    "workers": {"w": "lapsed", "v": "alive"},
    "claims": {"claimed:w:1": "w"},
    "claimed:w:1": ["a", "b"],
    "worker:w": {"host": "h"},
    "normal": ["n"],
}
ALIVE: State = LAPSED | {"workers": {"w": "alive", "v": "alive"}}
UNKNOWN: State = LAPSED | {"workers": {"v": "alive"}}
FORGOTTEN: State = {
    "workers": {"v": "alive"},
    "claims": None,
    "claimed:w:1": None,
    "worker:w": {"state": "gone"},
}
COUNTED: State = {"metrics": {"recovered": "2"}}


class Case(NamedTuple):
    title: str
    before: State
    options: dict[str, Any]
    answer: list[int]
    changes: State


GONE = [
    Case(
        "lapsed: its requests are suspects with one death, behind the others",
        LAPSED | {"suspects": ["3|s"]},
        {},
        [2, 0],
        {"suspects": ["3|s", "1|a", "1|b"], **COUNTED, **FORGOTTEN},
    ),
    Case(
        "lapsed: an unknown worker counts as lapsed",
        UNKNOWN,
        {},
        [2, 0],
        {"suspects": ["1|a", "1|b"], **COUNTED, **FORGOTTEN},
    ),
    Case(
        "dead: without waiting for the lease",
        ALIVE,
        {"how": "dead"},
        [2, 0],
        {"suspects": ["1|a", "1|b"], **COUNTED, **FORGOTTEN},
    ),
    Case(
        "leave: to the head of returned, in order, without a death",
        ALIVE | {"returned": ["r"]},
        {"how": "leave"},
        [2, 0],
        {"returned": ["a", "b", "r"], **FORGOTTEN},
    ),
    Case(
        "a suspect that was not started is not charged",
        LAPSED
        | {
            "claims": {"claimed:w:1": "w suspect"},
            "claimed:w:1": ["2|s"],
            "suspects": ["1|t"],
        },
        {},
        [1, 0],
        {"suspects": ["1|t", "2|s"], **FORGOTTEN},
    ),
    Case(
        "a suspect that was started is",
        LAPSED | {"claims": {"claimed:w:1": "w started"}, "claimed:w:1": ["2|s|t"]},
        {},
        [1, 0],
        {"suspects": ["3|s|t"], "metrics": {"recovered": "1"}, **FORGOTTEN},
    ),
    Case(
        "leave: a suspect to the head of suspects as it is",
        LAPSED
        | {
            "claims": {"claimed:w:1": "w started"},
            "claimed:w:1": ["2|s"],
            "suspects": ["1|t"],
        },
        {"how": "leave"},
        [1, 0],
        {"suspects": ["2|s", "1|t"], **FORGOTTEN},
    ),
    Case(
        "a suspect's company is no suspect yet",
        LAPSED | {"claims": {"claimed:w:1": "w suspect"}, "claimed:w:1": ["2|s", "a"]},
        {},
        [2, 0],
        {"suspects": ["2|s", "1|a"], "metrics": {"recovered": "1"}, **FORGOTTEN},
    ),
    Case(
        "leave: a suspect and its company part",
        LAPSED | {"claims": {"claimed:w:1": "w suspect"}, "claimed:w:1": ["2|s", "a", "b"]},
        {"how": "leave"},
        [3, 0],
        {"suspects": ["2|s"], "returned": ["a", "b"], **FORGOTTEN},
    ),
    Case(
        "a forged prefix counts nothing",
        LAPSED | {"claimed:w:1": ["9|forged"]},
        {},
        [1, 0],
        {"suspects": ["1|9|forged"], "metrics": {"recovered": "1"}, **FORGOTTEN},
    ),
    Case(
        "a list without a record belongs to the worker in its name",
        LAPSED | {"claims": None},
        {},
        [2, 0],
        {"suspects": ["1|a", "1|b"], **COUNTED, **FORGOTTEN},
    ),
    Case(
        "a suspect without a record is known by its prefix, and is not charged",
        LAPSED | {"claims": None, "claimed:w:1": ["2|s"]},
        {},
        [1, 0],
        {"suspects": ["2|s"], **FORGOTTEN},
    ),
    Case(
        "tokens are dropped",
        LAPSED | {"claimed:w:1": ["", "a", ""]},
        {},
        [1, 0],
        {"suspects": ["1|a"], "metrics": {"recovered": "1"}, **FORGOTTEN},
    ),
    Case(
        "an empty claim: its record goes",
        LAPSED | {"claimed:w:1": None},
        {},
        [0, 0],
        FORGOTTEN,
    ),
    Case(
        "nothing was set free, and no bell is rung",
        LAPSED | {"claimed:w:1": None, "normal": None},
        {},
        [0, 0],
        FORGOTTEN,
    ),
    Case(
        "closed numbers are forgotten with the worker",
        LAPSED | {"closed": {"w": "3", "v": "2"}},
        {},
        [2, 0],
        {"suspects": ["1|a", "1|b"], "closed": {"v": "2"}, **COUNTED, **FORGOTTEN},
    ),
    Case(
        "but not while another claim of the worker is recorded",
        LAPSED | {"closed": {"w": "3"}, "claims": {"claimed:w:1": "w", "claimed:w:4": "w"}},
        {},
        [2, 0],
        {
            "suspects": ["1|a", "1|b"],
            **COUNTED,
            **FORGOTTEN,
            "claims": {"claimed:w:4": "w"},
        },
    ),
    Case(
        "the bell is rung for suspects",
        LAPSED | {"normal": None},
        {},
        [2, 0],
        {"suspects": ["1|a", "1|b"], "normal": [""], **COUNTED, **FORGOTTEN},
    ),
    Case(
        "the bell is rung for what was handed back",
        LAPSED | {"normal": None},
        {"how": "leave"},
        [2, 0],
        {"returned": ["a", "b"], "normal": [""], **FORGOTTEN},
    ),
    Case(
        "a normal lane of another type stops nothing",
        LAPSED | {"normal": "a string"},
        {},
        [2, 0],
        {"suspects": ["1|a", "1|b"], **COUNTED, **FORGOTTEN},
    ),
    Case(
        "counters of another type stop nothing",
        LAPSED | {"metrics": "a string"},
        {},
        [2, 0],
        {"suspects": ["1|a", "1|b"], **FORGOTTEN},
    ),
]

LIVING = [
    Case("lapsed: a lease that lasts protects the claim", ALIVE, {}, [0, 0], {}),
    Case(
        "what a late BLMOVE left under a closed number is handed back",
        ALIVE | {"closed": {"w": "1"}},
        {},
        [2, 0],
        {"claimed:w:1": None, "claims": None, "returned": ["a", "b"]},
    ),
    Case(
        "a record that a late open left under a closed number is swept",
        ALIVE | {"closed": {"w": "1"}, "claimed:w:1": None},
        {},
        [0, 0],
        {"claims": None},
    ),
    Case(
        "the record of an open and empty claim stays: a BLMOVE may be on its way",
        ALIVE | {"claimed:w:1": None},
        {},
        [0, 0],
        {},
    ),
    Case(
        "an open claim without a record is given one",
        ALIVE | {"claims": None},
        {},
        [0, 0],
        {"claims": {"claimed:w:1": "w"}},
    ),
    Case(
        "so is a suspect's",
        ALIVE | {"claims": None, "claimed:w:1": ["2|s"]},
        {},
        [0, 0],
        {"claims": {"claimed:w:1": "w suspect"}},
    ),
    Case(
        "an unrecorded list of tokens only is dropped",
        ALIVE | {"claims": None, "claimed:w:1": [""]},
        {},
        [0, 0],
        {"claimed:w:1": None, "claims": None},
    ),
]


@pytest.mark.parametrize("case", [*GONE, *LIVING], ids=lambda case: case.title)
def test_table(queue: Queue, case: Case) -> None:
    """Each row: a state, one recovery of worker w, its answer and exactly what it changed."""
    before = after(case.before, {})
    queue.put(before)
    assert queue.run(queue.calls.recover(**case.options)) == case.answer
    assert queue.state() == after(before, case.changes)


def test_lists_of_another_owner(queue: Queue) -> None:
    """A list that another worker owns is left alone, whatever the caller believed."""
    before = LAPSED | {"claims": {"claimed:w:1": "w", "claimed:v:1": "v"}, "claimed:v:1": ["c"]}
    queue.put(before)
    lists = [queue.key("claimed:v:1"), queue.key("claimed:w:1")]
    assert queue.run(queue.calls.recover(*lists)) == [2, 0]
    state = queue.state()
    assert state["claimed:v:1"] == ["c"]
    assert state["claims"] == {"claimed:v:1": "v"}


@pytest.mark.parametrize("how", ["dead", "leave"])
def test_order_of_several_claims(queue: Queue, how: str) -> None:
    """Requests of several claims keep the order in which they were taken, number 10 after 9."""
    numbers = [1, 9, 10]
    queue.put(
        {
            "workers": {"w": "alive"},
            "claims": {f"claimed:w:{number}": "w" for number in numbers},
            **{f"claimed:w:{number}": [f"a{number}", f"b{number}"] for number in numbers},
        }
    )
    lists = [queue.key(f"claimed:w:{number}") for number in (10, 1, 9)]
    queue.run(queue.calls.recover(*lists, how=how))
    state = queue.state()
    moved = state["returned"] if how == "leave" else [s.split("|")[1] for s in state["suspects"]]
    assert moved == ["a1", "b1", "a9", "b9", "a10", "b10"]


@pytest.mark.parametrize("how", ["lapsed", "dead", "leave"])
def test_limit(queue: Queue, how: str) -> None:
    """A call moves only so many requests and says that there are more; repeated, it ends."""
    requests = [f"m{number}" for number in range(7)]
    queue.put(LAPSED | {"claimed:w:1": requests, "closed": {"w": "0"}})
    call = queue.calls.recover(how=how, limit=3)
    assert queue.run(call) == [3, 1]
    # Fenced from the first call on, and its numbers remembered until nothing is left.
    assert queue.state()["workers"] == {"v": "alive"}
    assert queue.state()["closed"] == {"w": "0"}
    assert queue.run(call) == [3, 1]
    assert queue.run(call) == [1, 0]
    state = queue.state()
    moved = state["returned"] if how == "leave" else [s.split("|")[1] for s in state["suspects"]]
    assert moved == requests
    assert "closed" not in state


def test_limit_beside_a_suspect(queue: Queue) -> None:
    """A suspect is moved whatever the limit, so that its record never describes other requests."""
    queue.put(
        LAPSED
        | {
            "claims": {"claimed:w:1": "w", "claimed:w:2": "w started"},
            "claimed:w:2": ["2|s", "7|forged"],
        }
    )
    lists = [queue.key("claimed:w:1"), queue.key("claimed:w:2")]
    assert queue.run(queue.calls.recover(*lists, limit=2)) == [3, 1]
    assert queue.run(queue.calls.recover(*lists, limit=2)) == [1, 0]
    assert queue.state()["suspects"] == ["1|a", "1|b", "3|s", "1|7|forged"]


@pytest.mark.parametrize("how", ["lapsed", "dead", "leave"])
def test_twice(queue: Queue, how: str) -> None:
    """A recovery that is sent again finds nothing left."""
    queue.put(LAPSED)
    call = queue.calls.recover(how=how)
    assert queue.run(call) == [2, 0]
    once = queue.state()
    assert queue.run(call) == [0, 0]
    assert queue.state() == once


def test_gone_for_a_minute(queue: Queue) -> None:
    """That a worker is gone is known while anything it sent may still arrive, and not for ever."""
    queue.put(LAPSED)
    queue.run(queue.calls.recover(how="leave"))
    assert queue.state()["worker:w"] == {"state": "gone"}
    assert 30_000 < queue.life_ms("worker:w") <= 60_000


@pytest.mark.parametrize("how", ["dead", "leave"])
def test_remains_of_an_unknown_worker(queue: Queue, how: str) -> None:
    """Late commands of a worker that is gone leave remains, which a further recovery sweeps."""
    queue.put({"workers": {"v": "alive"}, "normal": ["n"]})
    queue.run(queue.calls.register("open", "w", 2))
    queue.client.lmove(queue.key("normal"), queue.key("claimed:w:2"), "LEFT", "RIGHT")
    assert queue.run(queue.calls.recover(queue.key("claimed:w:2"), how=how)) == [1, 0]
    state = queue.state()
    assert "claims" not in state
    assert state["returned" if how == "leave" else "suspects"] == ["n" if how == "leave" else "1|n"]


def test_overlong_lease_is_cut(queue: Queue) -> None:
    """A lease that ends later than any lease can, after a step of the clock, is cut to the longest."""
    queue.put(ALIVE)
    queue.client.zadd(queue.keys.workers, {"w": queue.now_ms() + 10_000_000})
    assert queue.run(queue.calls.recover(longest_ms=20_000)) == [0, 0]
    assert queue.lease_end_ms("w") <= queue.now_ms() + 20_000
    assert queue.state()["claimed:w:1"] == ["a", "b"]


def test_last_resort(queue: Queue) -> None:
    """A request that nobody can count out goes to the dead list, with what is known about it."""
    queue.put(
        LAPSED
        | {
            "claims": {"claimed:w:1": "w started"},
            "claimed:w:1": ["4|a\nb"],
            "dead": ["1", "2"],
        }
    )
    earliest = queue.now_ms()
    assert queue.run(queue.calls.recover(last_resort=5, dead_cap=2)) == [1, 0]
    state = queue.state()
    assert "suspects" not in state
    assert state["metrics"] == {"recovered": "1", "dead": "1"}
    older, entry = state["dead"]
    assert older == "2"
    line, _, message = entry.partition("\n")
    note = json.loads(line)
    assert earliest <= note.pop("at_ms") <= queue.now_ms()
    assert note.pop("reason")
    assert note == {"code": "crashed", "attempts": 5, "bytes": 3}
    assert message == "a\nb"


def test_one_before_the_last_resort(queue: Queue) -> None:
    """One death before the last resort a request still runs."""
    queue.put(LAPSED | {"claims": {"claimed:w:1": "w started"}, "claimed:w:1": ["3|a"]})
    queue.run(queue.calls.recover(last_resort=5))
    assert queue.state()["suspects"] == ["4|a"]


def test_last_resort_without_counters(queue: Queue) -> None:
    """Counters of another type do not keep a request from the dead list."""
    queue.put(LAPSED | {"metrics": "a string"})
    assert queue.run(queue.calls.recover(last_resort=1)) == [2, 0]
    assert len(queue.state()["dead"]) == 2


def test_last_resort_cuts_the_message(queue: Queue) -> None:
    """A dead entry holds at most a mebibyte of its message, and says how long it was."""
    queue.put(LAPSED | {"claimed:w:1": ["m" * 1_500_000]})
    queue.run(queue.calls.recover(last_resort=1))
    line, _, message = queue.state()["dead"][0].partition("\n")
    assert len(message) == 1_048_576
    assert json.loads(line)["bytes"] == 1_500_000


def test_deaths_add_up(queue: Queue) -> None:
    """A request that dies in a batch and then alone, again and again, is charged every time."""
    queue.put({"workers": {"w": "alive"}, "normal": ["a"]})
    for number in range(1, 5):
        worker = f"w{number}"
        queue.run(queue.calls.register("join", worker))
        answer = queue.run(queue.calls.claim(worker=worker))
        assert answer[1] == number - 1
        queue.run(queue.calls.claim(worker=worker, mode="start"))
        queue.run(queue.calls.recover(worker=worker, how="dead"))
    assert queue.state()["suspects"] == ["4|a"]


def test_death_before_the_start_is_free(queue: Queue) -> None:
    """A worker that dies with a suspect in hand that it had not touched charges it nothing."""
    queue.put({"suspects": ["1|a"]})
    for worker in ("v", "w", "x"):
        queue.run(queue.calls.register("join", worker))
        queue.run(queue.calls.claim(worker=worker))
        queue.run(queue.calls.recover(worker=worker, how="dead"))
    assert queue.state()["suspects"] == ["1|a"]
