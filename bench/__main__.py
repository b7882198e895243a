"""``python -m bench``: measure every scenario round by round and print a table."""

import argparse
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bench import ceiling, drain, end_to_end, machine, report
from bench.report import Series
from bench.stage import Failed

_RESULTS = Path(__file__).resolve().parent / "results"
_SCENARIOS = {"drain": drain.measure, "end to end": end_to_end.measure}
_UNAVAILABLE = 69
_INTERRUPTED = 130
_TERMINATED = 143


class Plan(NamedTuple):
    """How much is measured: rounds, requests a scenario, commands of each kind for the ceiling."""

    rounds: int
    requests: int
    commands: int


def main(arguments: Sequence[str] | None = None) -> int:
    """Run and return an exit code: 1 for a measurement that failed, 69 for a missing program."""
    options = _parser().parse_args(arguments)
    rounds = options.repeats or (1 if options.quick else 3)
    requests = options.requests or (2_000 if options.quick else 100_000)
    plan = Plan(rounds, requests, commands=10 * requests if options.quick else 1_000_000)
    # So that what is ended in the middle ends its server and its worker as well.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(_TERMINATED))
    try:
        ceiling.check_tool()
        facts = machine.facts()
        print(machine.line(facts), flush=True)
        every = measure(plan)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return _INTERRUPTED
    except ceiling.ToolMissing as error:
        print(error, file=sys.stderr)
        return _UNAVAILABLE
    except Failed as error:
        print(error, file=sys.stderr)
        return 1
    print(f"\nrequests/s, {plan.rounds} rounds of {plan.requests:,} requests\n")
    print(report.table(every))
    path: Path = options.json or _RESULTS / time.strftime("%Y%m%dT%H%M%SZ.json", time.gmtime())
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(report.to_json(facts, plan._asdict(), every))
    print(f"\nall figures: {path}")
    return 0


def measure(plan: Plan) -> list[Series]:
    """Measure everything once a round, so that a slow moment of the machine hits all alike."""
    ceilings: list[float] = []
    rates: dict[str, list[float]] = {name: [] for name in _SCENARIOS}
    for number in range(1, plan.rounds + 1):
        ceilings.append(ceiling.ceiling(ceiling.measure(plan.commands)))
        _progress(number, "ceiling", ceilings[-1])
        for name, scenario in _SCENARIOS.items():
            rates[name].append(scenario(plan.requests))
            _progress(number, name, rates[name][-1])
    return [
        Series("ceiling", ceilings, ceilings),
        *(Series(name, found, ceilings) for name, found in rates.items()),
    ]


def _progress(number: int, name: str, rate: float) -> None:
    print(f"round {number}: {name} {rate:,.0f}", file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measure inferq beside this machine's own Redis; see bench/README.md.",
    )
    parser.add_argument("--repeats", type=_positive, help="rounds; by default 3")
    parser.add_argument("--requests", type=_positive, help="for each scenario; by default 100,000")
    parser.add_argument(
        "--quick", action="store_true", help="one small round, to see that everything works"
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="where all figures go; by default bench/results/"
    )
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {text}")
    return number


if __name__ == "__main__":
    sys.exit(main())
