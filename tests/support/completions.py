"""Completions without a server: what a worker would write, and the calls taken apart."""

import json
from typing import Any, NamedTuple

import numpy as np

from inferq.contract.keys import Keys
from inferq.contract.replies import ReplyReader
from inferq.redis_link import Command
from inferq_worker import Model, TensorSpec
from inferq_worker.delivery import Delivery, Parcel, Timing, Why
from inferq_worker.intake import Claim, Intake
from inferq_worker.model import describe_model
from inferq_worker.runner import Runner
from inferq_worker.seat import Seat
from inferq_worker.settings import WorkerSettings
from support.batches import message

KEYS = Keys("inferq", "m")
NOW_MS = 1_764_550_000_000
_BEFORE_THE_REPLIES = 9


class Stats(Model):
    """Three outputs of a row: a float, an integer and its bytes."""

    inputs = [TensorSpec("x", "FP32", [])]
    outputs = [
        TensorSpec("half", "FP32", []),
        TensorSpec("whole", "INT64", []),
        TensorSpec("text", "BYTES", []),
    ]
    max_batch_size = 8

    def predict(self, x: Any) -> Any:
        if (x == -1).any():
            raise ValueError("below\nzero")
        whole = np.where(np.isfinite(x), x, 0).astype("i8")
        text = np.array([b"%d" % each for each in whole], dtype=object)
        return {"text": text, "half": x / 2, "whole": whole}


class Written(NamedTuple):
    """One call of complete.lua, read back."""

    held: int
    replies: list[tuple[str, int, str, bytes]]
    hints: dict[str, list[str]]
    dead: list[bytes]
    counters: dict[str, int]


def read_call(sent: Command) -> Written:
    """Take a call apart as the script does."""
    words = list(sent.words)
    keys = words[3 : 3 + int(words[2])]
    args: list[Any] = words[3 + len(keys) :]
    _, _, held, count, boxes, _, _, _ = args[:8]
    del args[:8]
    reply_keys = keys[_BEFORE_THE_REPLIES : _BEFORE_THE_REPLIES + count]
    replies = [(str(key), *args[3 * at : 3 * at + 3]) for at, key in enumerate(reply_keys)]
    del args[: 3 * count]
    hints = {}
    for key in keys[_BEFORE_THE_REPLIES + count :]:
        hints[str(key)] = args[1 : 1 + args[0]]
        del args[: 1 + args[0]]
    assert len(hints) == boxes
    if not held:
        assert args == []
        return Written(held, replies, hints, [], {})
    dead = args[1 : 1 + args[0]]
    del args[: 1 + args[0]]
    return Written(held, replies, hints, dead, dict(zip(args[::2], args[1::2], strict=True)))


class Bench:
    """A worker's intake, runner and delivery without a server."""

    def __init__(self, **settings: Any) -> None:
        chosen = WorkerSettings(**settings)
        stats = Stats()
        stats.version = "7"
        described = describe_model(stats, name="m", max_message_bytes=chosen.max_message_bytes)
        self.seat = Seat(KEYS, "w", number=3, floor=3)
        self.intake = Intake(described, chosen)
        self.delivery = Delivery(described, chosen)
        self.runner = Runner(stats, described)

    def claim(self, *messages: bytes, deaths: int = 0) -> Claim:
        flags = 8 if deaths else 0
        found = self.intake.read(self.seat, [1, deaths, 0, flags, *messages])
        assert isinstance(found, Claim)
        return found

    def parcel(self, *messages: bytes, deaths: int = 0) -> Parcel:
        """Run messages that were claimed at NOW_MS, and end a quarter of a second later."""
        claim = self.claim(*messages, deaths=deaths)
        parcel = self.delivery.open_parcel(claim, "w", NOW_MS)
        outcomes, calls = self.runner.run(claim.requests)
        why = Why("idle", deaths + 1, "w", NOW_MS)
        self.delivery.add_outcomes(parcel, claim.requests, outcomes, why)
        timing = Timing(NOW_MS, NOW_MS + 250)
        self.delivery.count(parcel, claim.requests, outcomes, calls, timing)
        return parcel

    def written(self, *messages: bytes, deaths: int = 0) -> Written:
        (sent,) = self.delivery.complete(self.seat, self.parcel(*messages, deaths=deaths))
        return read_call(sent)

    def reply(self, sent: bytes) -> Any:
        """Return what the sender of one message reads: a reply, or the error object."""
        ((_, _, _, text),) = self.written(sent).replies
        return ReplyReader().read(text) if text.startswith(b"OIP1") else json.loads(text)


def frame(request_id: str = "r", value: float = 5, **parameters: Any) -> bytes:
    return message(request_id, ("x", "FP32", [value]), parameters=parameters)


def text_request(value: str = "5", **members: Any) -> bytes:
    tensor = {"name": "x", "datatype": "FP32", "shape": [1], "data": [0]}
    full = {"id": "r", "inputs": [tensor], **members}
    return json.dumps(full).replace('"data": [0]', f'"data": [{value}]').encode()
