"""The command ``inferq``: one file for each group of commands.

Commands import what they need when they run, so that ``inferq --help`` and the shell's completion
answer at once.
"""

import sys


def main() -> None:
    """Run the command line of this process and end it with the exit code."""
    from inferq.cli.app import run

    sys.exit(run(sys.argv[1:]))
