"""The command ``inferq``: one file for each group of commands.

Commands import what they need when they run, so that ``inferq --help`` and the shell's completion
answer at once.
"""

import os
import sys


def main() -> None:
    """Run the command line of this process and end it with the exit code."""
    # A stream that was closed before we began is None, and nobody asks about that.
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: PTH123, SIM115 - lives as long as we

    from inferq.cli.app import run

    sys.exit(run(sys.argv[1:]))
