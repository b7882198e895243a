"""Row 9: bad rows inside good batches, and everything that is no request at all."""

import json
import random
from collections.abc import Iterator
from typing import NamedTuple

from faults.matrix.ledger import Ledger
from faults.matrix.plan import Plan, Result, Row
from faults.matrix.stage import Stage
from inferq.contract import frames
from inferq.contract.errors import InvalidRequest, ModelError, TooLarge

_MARK_EACH = 25
_WRONG = frozenset({str(InvalidRequest.code)})
_LARGE = frozenset({str(TooLarge.code)})


class Hostile(NamedTuple):
    """A message; the id that must be answered, if it has one, and with what."""

    message: bytes
    id: str | None = None
    outcomes: frozenset[str] = _WRONG


def run(plan: Plan) -> Result:
    """Push hostile messages onto all lanes between good requests, some of which the model refuses."""
    ledger = Ledger(mark_each=_MARK_EACH, marked=str(ModelError.code))
    with Stage(plan, ledger=ledger) as stage:
        stage.workers(model="Raiser", pause_ms=2, dead_limit=100_000)
        pushed, rounds = 0, 0
        with stage.load() as load:
            while load.is_short or rounds < plan.repeats:
                for hostile in _hostile(stage.chance, rounds):
                    pushed += 1
                    _push(stage, hostile)
                rounds += 1
                stage.pause(0.02, 0.2)
        marked = sum(number < 0 for number in ledger.accepted.values())
        stage.notes = [
            f"{marked} rows that the model refuses",
            f"{pushed} hostile messages, {stage.dead} of them for the dead list",
        ]
        return stage.result()


def _push(stage: Stage, hostile: Hostile) -> None:
    if hostile.id is None:
        stage.dead += bool(hostile.message)
    else:
        stage.ledger.bare.add(hostile.id)
        stage.ledger.accept(hostile.id, 0)
        stage.ledger.expect(hostile.id, hostile.outcomes)
    lane = stage.chance.choice(["high", "normal", "low"])
    stage.bare.push(hostile.message, lane=lane)


def _hostile(chance: random.Random, turn: int) -> Iterator[Hostile]:
    """Yield one of each, in an order that chance decides, under ids of this turn."""
    messages = [*_nobodys(chance, turn), *_somebodys(turn)]
    chance.shuffle(messages)
    yield from messages


def _nobodys(chance: random.Random, turn: int) -> Iterator[Hostile]:
    """Yield what cannot be answered: junk, and requests without an id that is one."""
    yield Hostile(b"")
    yield Hostile(b"\x80\x04" + chance.randbytes(chance.randrange(1, 200)))
    yield Hostile(b"OIP1")
    yield Hostile(b"OIP1\xff\xff\xff\xff" + chance.randbytes(20))
    # 512 MiB, as the length of the head says.
    yield Hostile(b"OIP1\x00\x00\x00\x20{}")
    yield Hostile(b'{"a":' * 20_000)
    yield Hostile(b"[" * 100_000)
    if turn == 0:
        yield Hostile(b"x" * (17 * 1024**2))
    hostile_ids = ["", "a b", "{inferq:x}:reply:y", "\n", "\0", "\u0661", "\U0001f600", "../x"]
    for each in [*hostile_ids, "a" * 129, "a" * 1_000_000, None, 7, 1.5, True, ["a"], {"a": 1}]:
        yield Hostile(_request(each))


def _somebodys(turn: int) -> Iterator[Hostile]:
    """Yield what has an id and is wrong all the same."""
    changes: list[dict[str, object]] = [
        {"datatype": "FP32"}, {"datatype": "INT65"}, {"name": "other"}, {"shape": [2]},
        {"shape": [2**31, 2**31]}, {"shape": [-1]}, {"shape": "x"}, {"data": ["x"]},
        {"data": [1e300]}, {"data": []}, {"data": [[[[1]]]] * 2},
    ]  # fmt: skip
    for place, change in enumerate(changes):
        request_id = f"bad-{turn}-{place}"
        yield Hostile(_request(request_id, **change), request_id)
    no_inputs: list[object] = [[], None, "x", [7], [{}]]
    for place, inputs in enumerate(no_inputs):
        request_id = f"bad-{turn}-inputs-{place}"
        yield Hostile(json.dumps({"id": request_id, "inputs": inputs}).encode(), request_id)
    claimed = f"bad-{turn}-claimed"
    yield Hostile(_claims_size(claimed, 512 * 1024**2), claimed)
    deep = f"bad-{turn}-deep"
    yield Hostile(f'{{"id":"{deep}","inputs":'.encode() + b"[" * 100_000, deep)
    if turn == 0:
        # Just over the limit, and its id can be told without reading it all.
        huge = f"bad-{turn}-huge"
        padded = json.loads(_request(huge)) | {"padding": "x" * (16 * 1024**2)}
        yield Hostile(json.dumps(padded).encode(), huge, _LARGE)


def _request(request_id: object, **changes: object) -> bytes:
    tensor = {"name": "number", "datatype": "INT64", "shape": [1], "data": [1], **changes}
    return json.dumps({"id": request_id, "inputs": [tensor]}).encode()


def _claims_size(request_id: str, size: int) -> bytes:
    tensor = {
        "name": "number", "datatype": "INT64", "shape": [size // 8],
        "parameters": {"binary_data_size": size},
    }  # fmt: skip
    return frames.join(json.dumps({"id": request_id, "inputs": [tensor]}).encode(), [b"12345678"])


ROW = Row(9, "bad rows, junk, hostile ids and sizes", run)
