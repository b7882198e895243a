"""Text for people: consoles with the right colours, and bars."""

import sys
from typing import Final

from rich.console import Console

from inferq.cli import logs

WIDTH: Final = 30
"""Characters of the longest bar."""


def console(*, plain: bool) -> Console:
    """Return a console on stdout that never wraps or cuts a line.

    Args:
        plain: the user's ``--no-color``.
    """
    coloured = logs.colour_wanted(sys.stdout, plain=plain)
    # Not no_color, which keeps bold and dim.
    return Console(color_system="auto" if coloured else None, highlight=False, soft_wrap=True)


def bar(value: float, most: float) -> str:
    """Draw a value against the largest one; anything above 0 is visible."""
    if value <= 0 or most <= 0:
        return ""
    block = "█" if (sys.stdout.encoding or "").lower().startswith("utf") else "#"
    return block * max(1, round(WIDTH * value / most))
