"""Row 2: workers are frozen past their lease, while others take over, and then go on."""

import time

from faults.matrix.group import Group
from faults.matrix.plan import Figure, Plan, Result, Row
from faults.matrix.stage import Stage

_MAX_ATTEMPTS = 50


def run(plan: Plan) -> Result:
    """Freeze whole machines past their lease in turn, and single children for a moment."""
    with Stage(plan) as stage:
        groups = [stage.workers(max_attempts=_MAX_ATTEMPTS) for _ in range(2)]
        waits_s: list[float] = []
        with stage.load() as load:
            # A worker looks after others only after a whole lease without a break.
            time.sleep(plan.lease_s)
            while load.is_short or len(waits_s) < max(1, plan.repeats // 2):
                groups.reverse()
                waits_s.append(_freeze_past_lease(stage, groups[0]))
        stage.notes.append(f"{len(waits_s)} times parent and children frozen, and thawed late")
        stage.figures = [
            Figure("a frozen machine's requests are free after", max(waits_s), plan.lease_s + 1)
        ]
        return stage.result()


def _freeze_past_lease(stage: Stage, group: Group) -> float:
    """Freeze a machine until its requests are free and for a moment more."""
    pids = group.pids()
    since_s = time.monotonic()
    group.freeze()
    waited_s = stage.until_free(pids, since_s)
    stage.pause(0, stage.plan.lease_s / 3)
    group.thaw()
    # Until its workers are back under new ids, there would be nobody to look after the others.
    stage.until_members(group, len(pids))
    time.sleep(stage.plan.lease_s)
    return waited_s


ROW = Row(2, "worker frozen past its lease", run)
