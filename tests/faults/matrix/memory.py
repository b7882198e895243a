"""Row 6: the server's memory is full; the queue that filled it is drained to zero all the same."""

import time

import redis

from faults.matrix.plan import Figure, Plan, Result, Row
from faults.matrix.stage import Stage
from support.waiting import until

# What a request takes in the queue, its mark included, about.
_BYTES_EACH = 450
_ALL_UNDER_WAY = 10**9


def run(plan: Plan) -> Result:
    """Fill the memory with requests, drain them while it stays full, and again under load."""
    with Stage(plan, server=("--maxmemory-policy", "noeviction")) as stage:
        # A model that nobody ever published is refused for that reason.
        stage.stop(stage.workers(1))
        with stage.load(0.5, window=_ALL_UNDER_WAY) as load:
            # Connections, scripts and the first keys take a share that is not the requests'.
            until(lambda: len(stage.ledger.accepted) > 0)
            used = int(stage.bare.client.info("memory")["used_memory"])
            _limit(stage, used + int(plan.requests * 0.4) * _BYTES_EACH)
            until(lambda: len(stage.ledger.refused) > 0, 30)
            waiting = len(stage.ledger.accepted)
            stage.workers()
            since_s = time.monotonic()
            stage.until_drained()
            drained_s = time.monotonic() - since_s
            _check_full(stage)
            _limit(stage, 0)
            assert load.is_short or plan.requests < waiting
        with stage.load(0.5) as load:
            times = 0
            while load.is_short or times < plan.repeats:
                stage.pause(0.05, 0.2)
                _limit(stage, 1)
                stage.until_drained()
                _check_full(stage)
                _limit(stage, 0)
                times += 1
        stage.notes = [
            f"{waiting} requests filled the memory, {len(stage.ledger.refused)} were refused",
            f"{times} times more full under load, each time drained",
        ]
        stage.figures = [Figure("a full memory's queue is drained after", drained_s)]
        return stage.result()


def _limit(stage: Stage, count: int) -> None:
    stage.bare.client.config_set("maxmemory", count)


def _check_full(stage: Stage) -> None:
    """Note it if the memory was not full after all: then the row has shown nothing."""
    try:
        stage.bare.client.set("probe", "", px=1)
    except redis.ResponseError as error:
        if "OOM" in str(error) or "maxmemory" in str(error):
            return
        raise
    stage.wrong.append("the memory was not full")


ROW = Row(6, "memory full, drained to zero", run)
