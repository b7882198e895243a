"""Closes the books of a row: what Redis holds in the end against what the senders were told."""

import json
from collections import Counter
from dataclasses import dataclass
from typing import Any

from faults.matrix.ledger import SUCCEEDED, Answer, Ledger, numbers_twice
from faults.matrix.witness import Witness
from inferq.contract.counters import SUCCEEDED as SUCCEEDED_FIELD
from inferq.contract.counters import outcome_field
from inferq.contract.keys import models_key
from inferq.contract.replies import ReplyReader
from support.bare import Bare

_AT_ONCE = 1_000
_SHOWN = 5


@dataclass(frozen=True)
class Verdict:
    """What the books say.

    Attributes:
        lost, twice, misrouted: ids of accepted requests without a reply, with more than one, with
            another's.
        answered: accepted requests with one reply, and one they deserve.
        wrong: everything else that should not be, in words.
    """

    lost: set[str]
    twice: set[str]
    misrouted: set[str]
    answered: int
    wrong: list[str]


def judge(ledger: Ledger, bare: Bare, witness: Witness, dead: int = 0) -> Verdict:
    """Read everything there is and compare.

    Args:
        dead: entries of the dead list beside one for each request that was answered ``crashed``.
    """
    final, foreign = replies(bare)
    accepted = ledger.accepted
    lost = accepted.keys() - final.keys()
    misrouted = foreign | {
        request_id
        for request_id, number in accepted.items()
        if request_id in final and not final[request_id].fits(request_id, number)
    }
    twice = ledger.changed(final) | _written_twice(ledger, witness)
    for ids in numbers_twice(final).values():
        twice.update(ids)
    undeserved = {
        request_id: final[request_id].outcome
        for request_id, number in accepted.items()
        if request_id in final
        and final[request_id].outcome not in ledger.deserved(request_id, number)
    }
    outcomes = Counter(answer.outcome for answer in final.values())
    wrong = [
        *(f"{count} were answered {outcome}" for outcome, count in _tally(undeserved)),
        *_ran_all_the_same(ledger, final),
        *_miscounted(bare, outcomes),
        *_left_over(bare, dead + outcomes["crashed"]),
    ]
    if ledger.forgotten:
        wrong.append(f"{len(ledger.forgotten)} waiting senders were told that nobody knows them")
    if ledger.silent:
        wrong.append(f"{len(ledger.silent)} waiting senders gave up: {_some(ledger.silent)}")
    good = accepted.keys() - lost - misrouted - twice - undeserved.keys()
    return Verdict(lost, twice & accepted.keys(), misrouted, len(good), wrong)


def replies(bare: Bare) -> tuple[dict[str, Answer], set[str]]:
    """Return all replies by id, and the ids whose reply names another."""
    start = bare.keys.reply("")
    keys = list(bare.client.scan_iter(match=f"{start}*", count=_AT_ONCE))
    reader = ReplyReader()
    final, foreign = {}, set()
    for first in range(0, len(keys), _AT_ONCE):
        part = keys[first : first + _AT_ONCE]
        values: Any = bare.client.mget(part)
        for key, value in zip(part, values, strict=True):
            if not value:
                continue
            request_id = key.decode().removeprefix(start)
            final[request_id] = Answer.of(reader.read(value))
            if value[:1] == b"{" and json.loads(value)["id"] != request_id:
                foreign.add(request_id)
    return final, foreign


def _written_twice(ledger: Ledger, witness: Witness) -> set[str]:
    """Return the ids whose reply key was set more often than once for the mark and once more."""
    return {
        request_id
        for request_id, writes in witness.writes.items()
        if writes > (1 if request_id in ledger.bare else 2)
    }


def _ran_all_the_same(ledger: Ledger, final: dict[str, Answer]) -> list[str]:
    ran = {number for answer in final.values() for number in answer.numbers}
    refused = ledger.refused & ran
    return [f"{len(refused)} refused requests ran: {_some(refused)}"] if refused else []


def _miscounted(bare: Bare, outcomes: Counter[str]) -> list[str]:
    metrics = bare.metrics()
    counted = {field: metrics.get(field, 0) for field in metrics if field.startswith("requests_")}
    seen = {
        SUCCEEDED_FIELD if outcome == SUCCEEDED else outcome_field(outcome): count
        for outcome, count in outcomes.items()
    }
    wrong = [
        f"the counter {field} says {counted.get(field, 0)}, the replies {seen.get(field, 0)}"
        for field in sorted(counted.keys() | seen.keys())
        if counted.get(field, 0) != seen.get(field, 0)
    ]
    if metrics.get("unwritable"):
        wrong.append(f"{metrics['unwritable']} replies or hints could not be written")
    return wrong


def _left_over(bare: Bare, dead: int) -> list[str]:
    """Look for what should be empty, and for keys that will never go."""
    keys = bare.keys
    wrong = []
    if not bare.is_drained():
        wrong.append("requests are left in the queue or in a claim")
    for name, key in (("claims", keys.claims), ("closed", keys.closed), ("workers", keys.workers)):
        if bare.client.exists(key):
            wrong.append(f"{name} is not empty")
    found = len(bare.dead())
    if found != dead:
        wrong.append(f"the dead list has {found} entries, {dead} were due")
    tag = keys.claims.removesuffix("claims")
    forever = {each.removeprefix(tag) for each in (keys.metrics, keys.description, keys.dead)}
    # A lane may hold a wake-up token for whoever comes next; whether it holds more was asked above.
    forever |= {keys.normal, models_key(keys.prefix)}
    immortal = {name for name, life_ms in bare.lives().items() if life_ms == -1} - forever
    if immortal:
        wrong.append(f"keys without an end: {_some(immortal)}")
    return wrong


def _tally(undeserved: dict[str, str]) -> list[tuple[str, int]]:
    return Counter(undeserved.values()).most_common()


def _some(things: set[Any]) -> str:
    shown = ", ".join(map(str, sorted(things)[:_SHOWN]))
    return shown + (", ..." if len(things) > _SHOWN else "")
