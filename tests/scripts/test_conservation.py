"""Random sequences of calls, in any order, with copies: no request is lost, doubled or stuck.

A request that was accepted and not answered is in exactly one place: a lane, ``returned``,
``suspects``, one claim, or the dead list. One that is answered is in one place at most.
"""

import uuid
from collections import Counter

import redis
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from support.queue_state import Queue, State
from support.script_calls import Call, Calls, Reply

WORKERS = ("w", "v")
NUMBERS = (1, 2, 3)
IDS = tuple("abcdefgh")
LANES = ("high", "normal", "low")


def held(state: State, worker: str, number: int) -> list[str]:
    found: list[str] = state.get(f"claimed:{worker}:{number}", [])
    return [bare(element) for element in found if element]


def bare(element: str) -> str:
    """Return the message in an element, which never holds a bar itself."""
    return element.rpartition("|")[2]


def calls(calls: Calls, state: State) -> SearchStrategy[Call]:
    """Return the calls that could be sent next, the state being what it is."""
    worker, number = st.sampled_from(WORKERS), st.sampled_from(NUMBERS)
    lists = [calls.keys.claimed(worker, number) for worker in WORKERS for number in (*NUMBERS, 4)]

    # Nobody completes what it was never given: sent late, that would close a claim unseen.
    given = [
        (worker, number) for worker in WORKERS for number in NUMBERS if held(state, worker, number)
    ]

    def close(claim: tuple[str, int]) -> Call:
        taken = held(state, *claim)
        replies = [Reply(name, f"reply {name}") for name in taken]
        return calls.complete(*replies, worker=claim[0], number=claim[1], held=len(taken))

    def part(claim: tuple[str, int], count: int) -> Call:
        replies = [Reply(name, f"reply {name}") for name in held(state, *claim)[:count]]
        return calls.complete(*replies, worker=claim[0], number=claim[1], held=0)

    def bury(claim: tuple[str, int]) -> Call:
        taken = held(state, *claim)
        return calls.complete(worker=claim[0], number=claim[1], held=len(taken), dead=taken)

    completions = [
        st.builds(close, st.sampled_from(given)),
        st.builds(part, st.sampled_from(given), st.integers(0, 3)),
        st.builds(bury, st.sampled_from(given)),
    ]
    return st.one_of(
        *(completions if given else ()),
        st.builds(
            lambda ids, lane: calls.submit([(name, name) for name in ids], lane=lane, limit=6),
            st.lists(st.sampled_from(IDS), min_size=1, max_size=4),
            st.sampled_from(LANES),
        ),
        st.builds(calls.register, st.sampled_from(["join", "open"]), worker, number),
        st.builds(
            lambda worker, number, floor, want, mode: calls.claim(
                worker=worker, number=number, floor=min(floor, number), want=want, mode=mode,
                budget=want, kept_low=want // 3,
            ),
            worker,
            number,
            st.integers(1, 2),
            st.integers(1, 4),
            st.sampled_from(["first", "last", "never", "start"]),
        ),
        st.builds(
            lambda worker, number, keep, how: calls.release(
                worker=worker, number=number, keep=keep, how=how
            ),
            worker,
            number,
            st.integers(0, 2),
            st.sampled_from(["unstarted", "started"]),
        ),
        st.builds(
            lambda worker, how, limit: calls.recover(*lists, worker=worker, how=how, limit=limit),
            worker,
            st.sampled_from(["lapsed", "dead", "leave"]),
            st.integers(1, 3),
        ),
        st.builds(calls.cancel, st.sampled_from(IDS)),
        st.builds(lambda name: calls.retry(name, name, name), st.sampled_from(IDS)),
        st.builds(calls.renew, worker),
    )  # fmt: skip


def places(state: State) -> Counter[str]:
    """Count the places of each request."""
    lists = [
        value
        for name, value in state.items()
        if name in {*LANES, "returned", "suspects", "dead"} or name.startswith("claimed:")
    ]
    return Counter(bare(element) for found in lists for element in found if element)


def check(state: State, accepted: set[str]) -> None:
    found = places(state)
    for name in accepted:
        if state.get(f"reply:{name}"):
            assert found[name] <= 1, f"{name} is answered and in {found[name]} places"
        else:
            assert found[name] == 1, f"{name} is pending and in {found[name]} places"
    outside = [name for name in ("returned", "high", "low", "suspects") if state.get(name)]
    assert not outside or state.get("normal"), f"no idle worker would look at {outside}"


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_conservation(redis_url: str, data: st.DataObject) -> None:
    """Whatever is called, and repeated later, every request stays in one place or is answered."""
    with redis.Redis.from_url(redis_url) as client:
        queue = Queue(client, f"t{uuid.uuid4().hex[:12]}")
        sent: list[Call] = []
        accepted: set[str] = set()
        state: State = {}
        for _ in range(data.draw(st.integers(1, 40), label="calls")):
            again = sent and data.draw(st.integers(0, 3), label="a late copy?") == 0
            call = data.draw(
                st.sampled_from(sent) if again else calls(queue.calls, state), label="call"
            )
            sent.append(call)
            answer = queue.run(call)
            if call.script == "submit" and answer[0] == 0:
                pushed = zip(call.args[2:], answer[1:], strict=True)
                accepted |= {str(name) for name, state in pushed if state == 1}
            state = queue.state()
            check(state, accepted)
