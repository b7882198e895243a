"""Row 10: a sender is killed between any two of its commands."""

from faults import sender
from faults.matrix.plan import Plan, Result, Row
from faults.matrix.stage import Stage
from inferq import NotFound
from inferq.contract.errors import NotReady

# Commands of a sender before its first submission: it asks for the model and the time.
_FIRST_WORDS = 6
_BLOCK_PLACES = range(sender.BLOCK)


def run(plan: Plan) -> Result:
    """Hold senders at a command that chance chooses, kill them there, and send the same again."""
    with Stage(plan) as stage:
        stage.workers(pause_ms=0)
        # A sender that lives does its part beside.
        kills = 2 * plan.repeats
        each = max(sender.BLOCK_EACH, plan.requests // (2 * kills))
        fates = {"absent": 0, "known": 0}
        with stage.load(0.5, senders=1):
            for turn in range(kills):
                _kill_one(stage, each, fates, is_before=bool(turn % 2))
        stage.until_drained()
        _check_blocks(stage)
        stage.notes = [
            f"{kills} senders killed between two commands, half of them with the command sent",
            f"of the ids in doubt {fates['absent']} were absent, {fates['known']} known; sent again",
        ]
        return stage.result()


def _kill_one(stage: Stage, count: int, fates: dict[str, int], *, is_before: bool) -> None:
    first = stage.ledger.take(count)[0]
    hold = stage.proxy.hold_next(stage.chance.randint(1, _FIRST_WORDS + count), is_before=is_before)
    program = stage.sender("one", first, count, url=stage.proxy.url)
    assert hold.wait(30), program.output("stderr")
    program.kill()
    stage.proxy.end_stalled()
    told = [line.split() for line in program.output("stdout").splitlines()]
    for request_id, number in told:
        stage.ledger.accept(request_id, int(number))
    known = {int(number) for _, number in told}
    unknown = [number for number in range(first, first + count) if number not in known]
    stage.ledger.doubt(unknown)
    _send_again(stage, [number for number in unknown if not _is_in_block(number - first)], fates)


def _is_in_block(place: int) -> bool:
    return place % sender.BLOCK_EACH in _BLOCK_PLACES


def _send_again(stage: Stage, numbers: list[int], fates: dict[str, int]) -> None:
    """Send requests again under their ids: whoever was there is joined, the others are new."""
    with stage.producer() as producer:
        for number in numbers:
            request_id = sender.id_of(number)
            try:
                producer.result(sender.MODEL, request_id)
                fates["known"] += 1
            except NotReady:
                fates["known"] += 1
            except NotFound:
                fates["absent"] += 1
            producer.submit(sender.MODEL, number, request_id=request_id)
            stage.ledger.accept(request_id, number)


def _check_blocks(stage: Stage) -> None:
    """See that of each block that nobody knows of, all requests or none were queued."""
    ran = {number for answer in stage.replies().values() for number in answer.numbers}
    accepted = set(stage.ledger.accepted.values())
    doubtful = sorted(stage.ledger.unsure - accepted)
    for start in range(0, len(doubtful), sender.BLOCK):
        block = doubtful[start : start + sender.BLOCK]
        answered = sum(number in ran for number in block)
        if answered not in {0, sender.BLOCK}:
            stage.wrong.append(f"{answered} of a block of {sender.BLOCK} were queued")


ROW = Row(10, "sender killed between any two commands", run)
