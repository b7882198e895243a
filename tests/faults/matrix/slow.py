"""Row 11: a model slower than the lease, one that holds the interpreter, one that hangs."""

from faults.matrix.ledger import Ledger
from faults.matrix.plan import Figure, Plan, Result, Row
from faults.matrix.stage import Stage
from inferq.contract.errors import Crashed

_LEASE_S = 0.6
_TIMES_LEASE = 3.0
_BATCH_TIMEOUT_S = 1.0
_MAX_ATTEMPTS = 2
_GROUPS = 2


def run(plan: Plan) -> Result:
    """Let calls last longer than the lease, with and without the interpreter; then let some hang."""
    ledger = Ledger(marked=str(Crashed.code))
    with Stage(plan, ledger=ledger) as stage:
        for model in ("Echo", "Holder"):
            _slower_than_lease(stage, model)
        _hang(stage)
        return stage.result()


def _slower_than_lease(stage: Stage, model: str) -> None:
    """Run calls of a model that last longer than the lease; nobody may take them for dead."""
    plan = stage.plan
    calls_each = min(3, plan.repeats)
    size = -(-int(plan.requests * 0.3) // (calls_each * _GROUPS))
    # Each with a parent of its own, which would recover what the other failed to renew.
    groups = [
        stage.workers(
            1, model=model, pause_ms=_TIMES_LEASE * _LEASE_S * 1000, max_batch_size=size,
            lease_s=_LEASE_S,
        )
        for _ in range(_GROUPS)
    ]  # fmt: skip
    with stage.load(0.3, block=size, window=size):
        pass
    for group in groups:
        stage.stop(group)
    metrics = stage.bare.metrics()
    for field in ("recovered", "discarded"):
        if metrics.get(field):
            stage.wrong.append(f"{model}: {metrics[field]} requests {field} of live workers")
    stage.notes.append(f"{model}: calls of {_TIMES_LEASE:g} leases, each request ran once")


def _hang(stage: Stage) -> None:
    group = stage.workers(
        model="Hanger", batch_timeout_s=_BATCH_TIMEOUT_S, max_attempts=_MAX_ATTEMPTS
    )
    # A few: each costs its worker a batch_timeout and a start, as often as is allowed.
    stage.ledger.mark_each = int(stage.plan.requests * 0.4) // max(1, stage.plan.repeats // 4)
    with stage.load(0.4):
        pass
    stage.figures = [Figure("longest silence while some hang", stage.ledger.longest_silence_s())]
    hung = sum(number < 0 for number in stage.ledger.accepted.values())
    stage.notes.append(
        f"Hanger: {hung} hanging requests, {stage.crashes} hangs ended after "
        f"batch_timeout {_BATCH_TIMEOUT_S:g} s (max_attempts {_MAX_ATTEMPTS})"
    )
    if stage.crashes > hung * _MAX_ATTEMPTS:
        stage.wrong.append(f"{stage.crashes} hangs of {hung} requests")
    stage.stop(group)


ROW = Row(11, "model slow, holding the GIL, hanging", run)
