"""Row 8: one request in a thousand kills the interpreter that runs it."""

from faults.matrix.ledger import Ledger
from faults.matrix.plan import Figure, Plan, Result, Row
from faults.matrix.stage import Stage
from inferq.contract.errors import Crashed
from inferq_worker.settings import WorkerSettings

_EACH = 1_000


def run(plan: Plan) -> Result:
    """Send poison among good requests; it is answered ``crashed`` and nothing else is."""
    each = min(_EACH, plan.requests * 2 // 3)
    ledger = Ledger(mark_each=each, marked=str(Crashed.code))
    with Stage(plan, ledger=ledger) as stage:
        groups = [stage.workers(model="Poison") for _ in range(2)]
        with stage.load():
            pass
        poison = sum(number < 0 for number in ledger.accepted.values())
        limit = poison * int(WorkerSettings.model_fields["max_attempts"].default)
        stage.notes.append(
            f"{poison} poisonous requests, one in {each}: {stage.crashes} crashes, at most "
            f"{limit} allowed"
        )
        if stage.crashes > limit:
            stage.wrong.append(f"{stage.crashes} crashes, at most {limit} were due")
        deaths = sum(group.deaths for group in groups)
        if deaths != stage.crashes:
            stage.wrong.append(f"{deaths} children died of {stage.crashes} crashes")
        stage.figures = [Figure("longest silence", ledger.longest_silence_s())]
        return stage.result()


ROW = Row(8, "poison that kills the interpreter", run)
