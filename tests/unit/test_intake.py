"""Claims: the commands that make them, and what their answers mean."""

from typing import Any

import pytest

from inferq.contract.description import ModelDescription
from inferq.contract.errors import InvalidRequest, TooLarge
from inferq.contract.keys import Keys
from inferq.contract.tensors import TensorSpec
from inferq_worker.intake import Claim, Intake, Refused
from inferq_worker.seat import Seat
from inferq_worker.settings import WorkerSettings
from support.batches import message

KEYS = Keys("inferq", "m")
DESCRIPTION = ModelDescription(
    "m",
    inputs=(TensorSpec("x", "FP32", [2]),),
    outputs=(TensorSpec("y", "FP32", [2]),),
    max_batch_size=4,
    max_message_bytes=1_000,
)
GOOD = message("good", ("x", "FP32", [[1, 2]]))


@pytest.fixture
def intake() -> Intake:
    return Intake(DESCRIPTION, WorkerSettings(claim_bytes=700, lease_s=3))


@pytest.fixture
def seat() -> Seat:
    return Seat(KEYS, "w", number=5, floor=4)


def claimed(intake: Intake, seat: Seat, *messages: bytes, flags: int = 0, deaths: int = 0) -> Claim:
    found = intake.read(seat, [1, deaths, 9, flags, *messages])
    assert isinstance(found, Claim)
    return found


def test_command(intake: Intake, seat: Seat) -> None:
    """A claim asks for the seat's next number, up to the batch size and the byte budget."""
    words = intake.claim(seat, "first").words
    assert words[0] == "EVALSHA"
    assert words[2] == 10
    assert words[3] == KEYS.claimed("w", 5)
    assert words[13:] == ("w", 5, 4, 3_000, 4, 700, 0, 0, "first")


def test_idle_flight(intake: Intake, seat: Seat) -> None:
    """Waiting registers the claim by source, blocks for a third of the lease, and claims."""
    registering, blocking, claiming = intake.idle_flight(seat, ["state", "idle"])
    assert registering.words[0] == "EVAL"
    assert registering.words[3:7] == (
        KEYS.workers, KEYS.claims, KEYS.claimed("w", 5), KEYS.worker("w"),
    )  # fmt: skip
    assert registering.words[7:] == ("w", 3_000, "open", 6_000, "state", "idle")
    assert blocking.words == ("BLMOVE", KEYS.normal, KEYS.claimed("w", 5), "LEFT", "RIGHT", 1.0)
    assert claiming == intake.claim(seat, "last")


@pytest.mark.parametrize(
    ("answer", "refused"), [([-1, 7], Refused(closed=7)), ([-2], Refused(closed=None))]
)
def test_refusals(intake: Intake, seat: Seat, answer: Any, refused: Refused) -> None:
    """A closed number and a seat that is gone are told apart."""
    assert intake.read(seat, answer) == refused


def test_empty(intake: Intake, seat: Seat) -> None:
    """An answer without messages is a claim that holds nothing."""
    claim = claimed(intake, seat)
    assert (claim.number, claim.held, claim.waiting) == (5, 0, 9)
    assert (claim.requests, claim.rejected, claim.bytes_in) == ([], [], 0)


@pytest.mark.parametrize(
    ("flags", "names"),
    [
        (0, set()),
        (1, {"cancelled_lately"}),
        (2, {"lease_ended"}),
        (4, {"wrong_type"}),
        (8, {"is_suspect"}),
        (15, {"cancelled_lately", "lease_ended", "wrong_type", "is_suspect"}),
        (16, set()),
    ],
)
def test_flags(intake: Intake, seat: Seat, flags: int, names: set[str]) -> None:
    """Each flag of the script says one thing, and unknown ones say nothing."""
    claim = claimed(intake, seat, GOOD, flags=flags)
    all_names = ("cancelled_lately", "lease_ended", "wrong_type", "is_suspect")
    assert {name for name in all_names if getattr(claim, name)} == names


def test_suspect(intake: Intake, seat: Seat) -> None:
    """A suspect's deaths are counted."""
    assert claimed(intake, seat, GOOD, flags=8, deaths=3).attempts == 3


def test_good_and_bad_in_one_claim(intake: Intake, seat: Seat) -> None:
    """What can run and what cannot are sorted, and every message counts as held."""
    bad = message("bad", ("y", "FP32", [[1, 2]]))
    claim = claimed(intake, seat, GOOD, b"junk", bad, GOOD)
    assert [request.id for request in claim.requests] == ["good", "good"]
    assert claim.messages == [GOOD, GOOD]
    assert [rejected.message for rejected in claim.rejected] == [b"junk", bad]
    assert claim.rejected[0].refusal.address is None
    assert claim.rejected[1].refusal.address == ("bad", None, None)
    assert claim.held == 4
    assert claim.bytes_in == 2 * len(GOOD) + len(b"junk") + len(bad)


@pytest.mark.parametrize(
    ("sent", "sentence"),
    [
        (message("r", ("z", "FP32", [[1, 2]])), "unknown tensor 'z': m takes 'x'"),
        (message("r", ("x", "FP64", [[1, 2]])), "tensor 'x': expected FP32, got FP64"),
        (
            message("r", ("x", "FP32", [[1, 2, 3]])),
            "tensor 'x': expected shape [-1, 2], got [1, 3]",
        ),
        (message("r", ("x", "FP32", [1, 2])), "tensor 'x': expected shape [-1, 2], got [2]"),
        (
            message("r", ("x", "FP32", [[1, 2]]), ("z", "FP32", [[1, 2]])),
            "unknown tensor 'z': m takes 'x'",
        ),
        (
            message("r", ("x", "FP32", [[1, 2]]), outputs=["z"]),
            "unknown output 'z': m gives 'y'",
        ),
        (
            message("r", ("x", "FP32", [[1, 2]]), outputs=["y", "y"]),
            "output 'y' is named twice",
        ),
    ],
)
def test_requests_of_another_model(intake: Intake, seat: Seat, sent: bytes, sentence: str) -> None:
    """A sound request that does not fit the model is refused with its address, each time anew."""
    claim = claimed(intake, seat, sent, sent)
    assert claim.requests == []
    for _, refusal in claim.rejected:
        assert isinstance(refusal.error, InvalidRequest)
        assert str(refusal.error) == sentence
        assert refusal.address == ("r", None, None)


def test_rows_of_no_bytes() -> None:
    """Rows that cost their sender nothing may not keep a worker busy for ever."""
    described = ModelDescription(
        "m", (TensorSpec("x", "FP32", [-1]),), (TensorSpec("y", "FP32", [-1]),), 4, 1_000
    )
    text = (
        b'{"id":"r","inputs":[{"name":"x","datatype":"FP32","shape":[1000000000000,0],"data":[]}]}'
    )
    claim = claimed(Intake(described, WorkerSettings()), Seat(KEYS, "w"), text)
    assert claim.requests == []
    assert claim.rejected[0].refusal.address == ("r", None, None)


def test_message_over_the_limit(intake: Intake, seat: Seat) -> None:
    """A message over the byte limit is refused as too large, to its sender if it can be found."""
    big = b'{"id":"big","parameters":{"reply_to":"b"},"x":"' + b"x" * 1_000 + b'"}'
    nobody = b'{"x":"' + b"x" * 1_000 + b'"}'
    (known, unknown) = claimed(intake, seat, big, nobody).rejected
    assert isinstance(known.refusal.error, TooLarge)
    assert known.refusal.address == ("big", "b", None)
    assert isinstance(unknown.refusal.error, TooLarge)
    assert unknown.refusal.address is None


@pytest.mark.parametrize(
    ("messages", "is_full"),
    [([GOOD] * 3, False), ([GOOD] * 4, True), ([b"junk"] * 4, True), ([b"x" * 700], True)],
)
def test_full(intake: Intake, seat: Seat, messages: list[bytes], is_full: bool) -> None:  # noqa: FBT001
    """A claim is full when a limit closed it: the batch size or the byte budget."""
    assert intake.is_full(claimed(intake, seat, *messages)) is is_full
