"""Row 4: connections are cut, delayed, and left half open."""

import time

from faults.matrix.plan import Figure, Plan, Result, Row
from faults.matrix.stage import Stage

_DELAY_S = 0.03
# A worker counts a connection as dead that is silent for its block time and 5 s more.
_SOCKET_MARGIN_S = 5.0
_MAX_ATTEMPTS = 50


def run(plan: Plan) -> Result:
    """Cut all connections again and again, delay all, then leave all half open."""
    with Stage(plan, proxied=True) as stage:
        for _ in range(2):
            stage.workers(max_attempts=_MAX_ATTEMPTS)
        stage.figures = [_cut(stage), _stall(stage)]
        stage.proxy.delay(_DELAY_S)
        with stage.load(0.2, cancel_share=0.02):
            pass
        stage.proxy.delay(0)
        stage.notes.append(f"everything delayed by {_DELAY_S * 1000:.0f} ms each way for a while")
        return stage.result()


def _cut(stage: Stage) -> Figure:
    waits_s: list[float] = []
    ended = 0
    with stage.load(0.6, cancel_share=0.02) as load:
        while load.is_short or len(waits_s) < 2 * stage.plan.repeats:
            stage.pause(0.05, 0.4)
            ended += stage.proxy.cut()
            waits_s.append(stage.until_answering())
            if len(waits_s) % 5 == 0:
                stage.proxy.refuse()
                stage.pause(0.1, 0.5)
                stage.proxy.accept()
    stage.notes.append(f"{ended} connections cut in {len(waits_s)} cuts, every fifth refused after")
    return Figure("answers go on after a cut", max(waits_s), stage.plan.block_s + 1)


def _stall(stage: Stage) -> Figure:
    """Stall all connections: for each end the other is there, and silent."""
    waits_s: list[float] = []
    stalled = 0
    with stage.load(0.2) as load:
        while load.is_short or len(waits_s) < max(1, stage.plan.repeats // 5):
            # Time to work between two outages, or senders would wait for ever with good reason.
            time.sleep(stage.plan.lease_s)
            stalled += stage.proxy.stall()
            # What the server had taken already is answered at once, and tells nothing.
            time.sleep(1.0)
            waits_s.append(1.0 + stage.until_answering())
            stage.proxy.end_stalled()
    stage.notes.append(f"{stalled} connections left half open in {len(waits_s)} outages")
    limit_s = stage.plan.block_s + _SOCKET_MARGIN_S + 1
    return Figure("and after they were half open", max(waits_s), limit_s)


ROW = Row(4, "connections cut, delayed, half open", run)
