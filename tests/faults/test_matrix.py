"""A short version of each row of the fault matrix; ``make faults`` runs them at full length."""

import pytest

from faults.matrix.plan import Plan, Row
from faults.matrix.rows import ROWS
from support.servers import chosen_binary


@pytest.mark.server
@pytest.mark.parametrize("row", ROWS, ids=[f"{row.number}-{row.fault}" for row in ROWS])
def test_row(row: Row) -> None:
    """Every accepted request is answered exactly once and with its own reply, whatever fails."""
    # Times to recover are left to the full length, on a machine that does nothing else.
    plan = Plan(requests=300, repeats=1, binary=chosen_binary(), lease_s=1.0, processes=1)
    result = row.run(plan)
    assert result.broken == (), result
    assert result.requests >= plan.requests
