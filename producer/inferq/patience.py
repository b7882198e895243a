"""How long a server that is away is put up with. Pure; used by both producers."""

import math
from collections.abc import Iterator

from inferq.redis_link import pauses


class Patience:
    """One break of a connection after another, each with a limit.

    Args:
        limit_s: seconds a break may last while somebody waits.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._broken_since_s = math.inf
        self._pauses: Iterator[float] = pauses()

    def failed(self, now_s: float) -> float:
        """Note a failure; return the seconds to pause before the next try."""
        self._broken_since_s = min(self._broken_since_s, now_s)
        return next(self._pauses)

    def worked(self) -> None:
        """Note that the break, if there was one, is over."""
        if self._broken_since_s < math.inf:
            self._broken_since_s = math.inf
            self._pauses = pauses()

    def is_over(self, waiting_since_s: float, now_s: float) -> bool:
        """Tell whether somebody who waits since then has put up with the break for long enough."""
        return now_s >= max(self._broken_since_s, waiting_since_s) + self._limit_s
