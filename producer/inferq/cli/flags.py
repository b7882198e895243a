"""Values of flags that typer does not know: durations, and NAME=VALUE pairs."""

from collections.abc import Sequence

import typer

from inferq.contract.errors import InvalidSetting


def positive_seconds(flag: str, text: str) -> float:
    """Read a duration that is not zero.

    Raises:
        typer.BadParameter: it is none.
    """
    value = seconds_or_zero(flag, text)
    if value <= 0:
        raise typer.BadParameter("must be longer than 0", param_hint=flag)
    return value


def seconds_or_zero(flag: str, text: str) -> float:
    """Read a duration.

    Raises:
        typer.BadParameter: it is none.
    """
    from inferq.units import seconds

    try:
        return seconds(text)
    except InvalidSetting as error:
        raise typer.BadParameter(str(error), param_hint=flag) from None


def pairs(flag: str, texts: Sequence[str] | None) -> dict[str, str]:
    """Take NAME=VALUE apart.

    Raises:
        typer.BadParameter: one is no such pair, or a name is given twice.
    """
    found: dict[str, str] = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise typer.BadParameter(f"expected NAME=VALUE, got '{text}'", param_hint=flag)
        if name in found:
            raise typer.BadParameter(f"'{name}' is given twice", param_hint=flag)
        found[name] = value
    return found
