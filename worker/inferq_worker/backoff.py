"""When to start a child again that died: at once, then ever later, until one has worked."""

from dataclasses import dataclass

_FIRST_S = 0.5
_LONGEST_S = 5.0


@dataclass
class Backoff:
    """Pauses before a restart, in seconds: 0, 0.5, 1, 2, 4, 5, 5, ...; 0 again after success."""

    _next_s: float = 0.0

    def died(self, *, after_work: bool) -> float:
        """Return how long to wait; ``after_work`` says that the child completed a batch."""
        pause_s = 0.0 if after_work else self._next_s
        self._next_s = min(_LONGEST_S, max(_FIRST_S, 2 * pause_s))
        return pause_s
