"""``inferq check``: a doctor for the server and its queues, and a probe for workers."""

import json
from typing import Annotated

import typer

from inferq.cli.choices import Choices, command
from inferq.cli.exits import Exit
from inferq.cli.linked import linked


def add_to(app: typer.Typer) -> None:
    """Add the command of this file."""
    command(app, "check", check)


def check(
    choices: Choices,
    *,
    worker: Annotated[
        bool,
        typer.Option(
            "--worker",
            help="Only tell whether the workers of this machine and user turn; asks no server.",
        ),
    ] = False,
) -> None:
    """Look the server and the queues over; each finding comes with its remedy.

    Ends with 0 if all is well, 1 if something is bad, 69 if the server cannot be reached.
    """
    is_well = _workers(choices) if worker else _server(choices)
    if not is_well:
        raise typer.Exit(Exit.FAILED)


def _server(choices: Choices) -> bool:
    from dataclasses import asdict

    from inferq.cli.terminal import console
    from inferq.doctor import Doctor, Weight
    from inferq_worker.settings import WorkerSettings

    colours = {Weight.FINE: "green", Weight.NOTE: "yellow", Weight.BAD: "red"}
    is_well = True
    block_s = choices.settings(WorkerSettings).block_s
    out = console(plain=choices.no_color)
    with linked(choices) as (link, prefix):
        for finding in Doctor(link, prefix, block_s).examine():
            is_well = is_well and finding.weight is not Weight.BAD
            if choices.as_json:
                print(json.dumps(asdict(finding)))
                continue
            remedy = f"; {finding.remedy}" if finding.remedy else ""
            out.print(f"{finding.weight:<5}", style=colours[finding.weight], end="")
            out.print(f"{finding.subject:<12} {finding.fact}{remedy}", markup=False)
    return is_well


def _workers(choices: Choices) -> bool:
    from inferq_worker.pulse import read_pulses

    pulses = read_pulses()
    is_well = bool(pulses) and all(pulse.is_beating for pulse in pulses)
    if choices.as_json:
        print(json.dumps({"alive": is_well, "workers": [pulse.to_json() for pulse in pulses]}))
        return is_well
    for pulse in pulses:
        print(pulse.line())
    if not pulses:
        print("no worker runs here")
    return is_well
