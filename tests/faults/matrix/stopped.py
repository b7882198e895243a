"""Row 7: workers are stopped in order under load, and replaced one after the other."""

from faults.matrix.plan import Figure, Plan, Result, Row
from faults.matrix.stage import Stage


def run(plan: Plan) -> Result:
    """Replace all workers in turn, at times two at once, and charge no request for it."""
    with Stage(plan) as stage:
        groups = [stage.workers() for _ in range(2)]
        waits_s: list[float] = []
        with stage.load(cancel_share=0.02) as load:
            while load.is_short or len(waits_s) < plan.repeats:
                stage.pause(0.0, 0.3)
                groups.append(stage.workers())
                waits_s.append(stage.stop(groups.pop(0)))
                if stage.chance.random() < 0.2:
                    # All at once, and for a moment there is nobody.
                    waits_s += [stage.stop(group) for group in groups]
                    groups = [stage.workers() for _ in groups]
        stage.notes.append(
            f"{len(waits_s)} workers of two processes stopped, each with exit code 0"
        )
        recovered = stage.bare.metrics().get("recovered", 0)
        if recovered:
            stage.wrong.append(f"{recovered} requests were charged with a death")
        stage.figures = [Figure("a worker that is told to stop has ended after", max(waits_s))]
        return stage.result()


ROW = Row(7, "workers stopped in order, all replaced", run)
