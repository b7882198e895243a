"""Row 1: a worker is killed at a random instant, again and again, under load."""

import time

from faults.matrix.plan import Figure, Plan, Result, Row
from faults.matrix.stage import Stage

# Each random kill may hit one request again; only the count of poison is bounded by the default.
_MAX_ATTEMPTS = 50
_FREE_WITHIN_S = 1.0


def run(plan: Plan) -> Result:
    """Kill children under load, then whole machines whose requests others must find."""
    with Stage(plan) as stage:
        group = stage.workers(max_attempts=_MAX_ATTEMPTS)
        waits_s: list[float] = []
        with stage.load() as load:
            while load.is_short or len(waits_s) < 3 * plan.repeats:
                stage.pause(0.1, 1.2)
                since_s = time.monotonic()
                pid = group.kill_child(stage.chance)
                if pid is not None:
                    waits_s.append(stage.until_free([pid], since_s))
        stage.notes.append(f"{len(waits_s)} children killed")
        stage.stop(group)
        stage.figures = [
            Figure("a killed child's requests are free after", max(waits_s), _FREE_WITHIN_S),
            _lost_machine(stage, 1, "supervised", plan.lease_s + 1),
            _lost_machine(stage, 0, "unsupervised", plan.lease_s + plan.block_s + 1),
        ]
        return stage.result()


def _lost_machine(stage: Stage, processes: int, others: str, limit_s: float) -> Figure:
    """Kill parent and children while other workers are idle; take the longest of some times."""
    rescuers = stage.workers(processes, pause_ms=0, max_attempts=_MAX_ATTEMPTS)
    # A worker looks after others only after a whole lease without a break.
    time.sleep(stage.plan.lease_s)
    waits_s: list[float] = []
    for _ in range(max(1, stage.plan.repeats // 4)):
        doomed = stage.workers(1, pause_ms=600_000, max_attempts=_MAX_ATTEMPTS)
        while not doomed.holders():
            stage.push()
            time.sleep(0.01)
        stage.pause(0, stage.plan.lease_s / 3)
        pids = doomed.pids()
        since_s = time.monotonic()
        stage.lose(doomed)
        waits_s.append(stage.until_free(pids, since_s))
    stage.until_drained()
    stage.stop(rescuers)
    return Figure(f"a lost machine's, with idle {others} workers, after", max(waits_s), limit_s)


ROW = Row(1, "worker killed again and again", run)
