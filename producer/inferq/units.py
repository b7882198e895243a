"""Durations and sizes as people write them: ``2ms``, ``30s``, ``5min``, ``64MiB``."""

import math
import re
from typing import Annotated

from pydantic import BeforeValidator, ByteSize, TypeAdapter, ValidationError

from inferq.contract.errors import InvalidSetting

_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3_600.0}
_SIZE = TypeAdapter(ByteSize)
_DURATION = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-z]*)\s*\Z")


def seconds(text: object) -> float:
    """Read a duration: a number of seconds, or a number with one of us, ms, s, min, h.

    Raises:
        InvalidSetting: anything else, or a negative or endless duration.
    """
    amount = _amount(text)
    if not 0 <= amount < math.inf:
        raise InvalidSetting(
            f"{str(text)!r} is not a duration: expected seconds, or a number with us, ms, s, min "
            "or h, such as 250ms"
        )
    return amount


def _amount(value: object) -> float:
    """Return a duration in seconds; NaN if it is none."""
    if isinstance(value, float):
        # Written out, a small one would have an exponent.
        return value
    match = _DURATION.match(str(value))
    if match is None or (match[2] and match[2] not in _SECONDS):
        return math.nan
    return float(match[1]) * _SECONDS.get(match[2], 1.0)


def size_bytes(text: object) -> int:
    """Read a size: a whole number of bytes, or a number with a unit such as KiB or MB.

    Raises:
        InvalidSetting: anything else.
    """
    try:
        # True is 1 to pydantic. A plain int comes out: redis-py's packer takes no subclass of it.
        return int(_SIZE.validate_python(None if isinstance(text, bool) else text))
    except ValidationError:
        raise InvalidSetting(
            f"{str(text)!r} is not a size: expected bytes, or a number with KiB, MiB, GiB, kB, MB "
            "or GB"
        ) from None


Seconds = Annotated[float, BeforeValidator(seconds)]
"""A settings field in seconds that also reads ``250ms``."""

Bytes = Annotated[int, BeforeValidator(size_bytes)]
"""A settings field in bytes that also reads ``64MiB``."""
