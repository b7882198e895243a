"""Row 3: the reply of every kind of command is lost once, and then one reply in a hundred."""

import time

from faults.matrix.group import Group
from faults.matrix.plan import Figure, Plan, Result, Row
from faults.matrix.stage import Stage
from support.proxy import Loss

# Whatever workers and senders of this row say. Some only while a worker starts, stops or has died.
_KINDS = (
    "submit", "claim", "complete", "register", "renew", "recover", "cancel", "BLMOVE", "BLMPOP",
    "GET", "MGET", "TIME", "INFO", "TYPE", "publish", "SADD", "STRLEN", "ZRANGE", "HKEYS",
    "HGETALL", "SCAN",
)  # fmt: skip
_SHARE = 0.01
_PATIENCE_S = 30.0
_MAX_ATTEMPTS = 50


def run(plan: Plan) -> Result:
    """Lose one reply of each kind while workers come and go, then a share of all."""
    with Stage(plan, proxied=True) as stage:
        groups = [stage.workers(max_attempts=_MAX_ATTEMPTS) for _ in range(2)]
        habits = {"cancel_share": 0.02, "block": 10}
        with stage.load(0.5, **habits):
            unseen = _lose_each_kind(stage, groups)
        lost = sum(stage.proxy.lost.values())
        stage.notes.append(f"{lost} replies lost, one of each kind")
        stage.wrong += [f"nobody ever sent {kind}" for kind in unseen]
        stage.ledger.longest_silence_s()
        stage.proxy.lose_share(_SHARE)
        with stage.load(0.5, **habits) as load:
            while load.is_short:
                time.sleep(0.05)
        stage.figures = [Figure("longest silence", stage.ledger.longest_silence_s())]
        stage.proxy.lose_share(0)
        replies = sum(stage.proxy.replies.values())
        stage.notes.append(
            f"{sum(stage.proxy.lost.values()) - lost} more lost at random (1 %), "
            f"{replies} passed in all"
        )
        return stage.result()


def _lose_each_kind(stage: Stage, groups: list[Group]) -> list[str]:
    """Lose one reply of each kind; return the kinds that nobody sent in all the time."""
    losses = [stage.proxy.lose_next(kind, stage.chance.randint(1, 3)) for kind in _KINDS]
    give_up_s = time.monotonic() + _PATIENCE_S + 5 * stage.plan.lease_s
    while _missing(losses) and time.monotonic() < give_up_s:
        # Some things are said in a calm only, so there must be one between two disturbances.
        time.sleep(1.5 * stage.plan.lease_s)
        if not _missing(losses):
            break
        groups[0].kill_child(stage.chance)
        stage.pause(0.2, 0.5)
        stage.stop(groups.pop(0))
        groups.append(stage.workers(max_attempts=_MAX_ATTEMPTS))
    return [loss.kind for loss in _missing(losses)]


def _missing(losses: list[Loss]) -> list[Loss]:
    return [loss for loss in losses if not loss.happened.is_set()]


ROW = Row(3, "replies of commands lost", run)
