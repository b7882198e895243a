"""Row 12: the clocks of senders, workers and server are ten minutes apart."""

import shutil
import subprocess
import time

from faults import sender
from faults.matrix.plan import Plan, Result, Row
from faults.matrix.stage import Stage
from inferq.contract.errors import Expired

_SHORT_S = 0.2


def run(plan: Plan) -> Result:
    """Let senders be ten minutes slow and workers ten minutes fast, and keep every timeout."""
    if shutil.which("faketime") is None:
        return Result(0, 0, 0, 0, 0, wrong=("the program faketime is not installed",))
    with Stage(plan) as stage:
        group = stage.workers(pause_ms=0, environment=_shifted("+10m"))
        count = max(sender.BLOCK, plan.requests // 2 // sender.BLOCK * sender.BLOCK)
        first = stage.ledger.take(count)[0]
        slow = stage.sender("many", first, count, environment=_shifted("-10m"))
        with stage.load(0.5, options={"timeout": sender.TIMEOUT_S}):
            pass
        code = slow.wait(120)
        if code:
            stage.wrong.append(f"a sender ended with {code}: {slow.output('stderr')[-500:]}")
        for line in slow.output("stdout").splitlines():
            request_id, number, _ = line.split()
            stage.ledger.accept(request_id, int(number))
        stage.stop(group)
        expired = _expire(stage)
        stage.notes = [
            f"sender 10 min slow, workers 10 min fast; timeout {sender.TIMEOUT_S:g} s: none expired",
            f"{expired} that waited longer than their {_SHORT_S:g} s: all expired",
        ]
        return stage.result()


def _shifted(by: str) -> dict[str, str]:
    """Return the variables of a process with another time of day.

    Taken from the program faketime instead of starting it in front: it would stand between us and
    the process we signal.
    """
    shown = subprocess.run(
        ["faketime", "-f", by, "env"], capture_output=True, text=True, check=True
    )
    variables = dict(line.split("=", 1) for line in shown.stdout.splitlines() if "=" in line)
    # Two processes of one machine share the clock that counts from its start: it stays.
    return {
        "LD_PRELOAD": variables["LD_PRELOAD"],
        "FAKETIME": variables["FAKETIME"],
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }


def _expire(stage: Stage) -> int:
    """Submit while there is no worker, and start one when it is too late."""
    count = max(1, stage.plan.requests // 20)
    numbers = stage.ledger.take(count)
    with stage.producer() as producer:
        for handle, number in zip(
            producer.submit_many(sender.MODEL, numbers, timeout=_SHORT_S), numbers, strict=True
        ):
            stage.ledger.accept(handle.id, number)
            stage.ledger.expect(handle.id, {str(Expired.code)})
    time.sleep(_SHORT_S)
    stage.workers(pause_ms=0, environment=_shifted("+10m"))
    stage.until_drained()
    return count


ROW = Row(12, "clocks ten minutes apart", run)
