"""Waiting for what gives no signal. For integration and fault tests; unit tests await events."""

import time
from collections.abc import Callable
from typing import TypeVar

# Not the brackets of Python 3.12: the suite runs on 3.11 too.
T = TypeVar("T")


def until(predicate: Callable[[], T], timeout_s: float = 10.0) -> T:
    """Return the first true value of ``predicate``, called every 10 ms for ``timeout_s``.

    Raises:
        AssertionError: it never was true; the message holds the last value.
    """
    deadline = time.monotonic() + timeout_s
    while not (value := predicate()):
        if time.monotonic() >= deadline:
            raise AssertionError(f"not within {timeout_s} s; the last value was {value!r}")
        time.sleep(0.01)
    return value
