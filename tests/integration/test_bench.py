"""The benchmark as a program, with few requests."""

import json
import os
import sys
from pathlib import Path

from support.processes import Programs

ROOT = Path(__file__).resolve().parents[2]

# Stands in for redis-benchmark, which not every machine has; the gate runs the real one.
TOOL = f"""#!{sys.executable}
print('"test","rps"')
for command in ("SET", "GET", "RPUSH", "LPOP"):
    print(f'"{{command}}","1000000.0"')
"""


def test_quick_round(programs: Programs, tmp_path: Path) -> None:
    """A quick round answers every request, prints a table, and writes all figures as JSON."""
    tool = tmp_path / "redis-benchmark"
    tool.write_text(TOOL)
    tool.chmod(0o755)
    figures = tmp_path / "new" / "figures.json"
    program = programs.python(
        "-m", "bench", "--quick", "--repeats", "2", "--requests", "200", "--json", figures,
        cwd=ROOT, env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
    )  # fmt: skip
    assert program.wait(60.0) == 0, program.output("stderr")
    printed = program.output("stdout")
    assert "| ceiling    | 250,000 |" in printed
    known = json.loads(figures.read_text())
    assert known["run"]["requests"] == 200
    scenarios = {each["scenario"]: each for each in known["scenarios"]}
    assert scenarios.keys() == {"ceiling", "drain", "end to end"}
    for name, scenario in scenarios.items():
        assert f"| {name} " in printed
        assert len(scenario["rates_rps"]) == 2
        assert min(scenario["rates_rps"]) > 0


def test_missing_program(programs: Programs, tmp_path: Path) -> None:
    """Without redis-benchmark nothing is measured, and one sentence says what to install."""
    program = programs.python("-m", "bench", "--quick", cwd=ROOT, env={"PATH": str(tmp_path)})
    assert program.wait(30.0) == 69
    assert program.output("stdout") == ""
    (sentence,) = program.output("stderr").splitlines()
    assert "redis-tools" in sentence
