"""Redis time on the local monotonic clock: the only clock that two hosts may compare.

Pure: readings in, an estimate out. The round trips are made by whoever owns a connection.
"""

from dataclasses import dataclass

SAMPLES = 5
"""Round trips for one estimate; the fastest of them bounds the error best."""

REFRESH_S = 30.0
"""Age at which an estimate is made anew: local clocks drift by tens of ppm."""


@dataclass(frozen=True, slots=True)
class ClockSample:
    """One round trip of ``TIME``: local clock before and after in s, the server's answer in s."""

    sent_s: float
    received_s: float
    server_s: float

    @staticmethod
    def of(sent_s: float, received_s: float, answer: list[bytes]) -> "ClockSample":
        """Read the answer of ``TIME``: seconds and microseconds."""
        return ClockSample(sent_s, received_s, int(answer[0]) + int(answer[1]) / 1e6)

    @property
    def error_s(self) -> float:
        """Half the round trip: the server's reading lies within this of the midpoint."""
        return (self.received_s - self.sent_s) / 2


class ServerClock:
    """Estimates Redis time from samples."""

    def __init__(self) -> None:
        self._offset_s = 0.0
        self._stale_at_s = float("-inf")

    def is_stale(self, local_s: float) -> bool:
        """Tell whether new samples are due; so it is at first."""
        return local_s >= self._stale_at_s

    def adjust(self, samples: list[ClockSample]) -> None:
        """Take the estimate of the fastest round trip."""
        best = min(samples, key=lambda sample: sample.error_s)
        self._offset_s = best.server_s - (best.sent_s + best.received_s) / 2
        self._stale_at_s = best.received_s + REFRESH_S

    def now_ms(self, local_s: float) -> int:
        """Return Redis time in ms at a reading of the local monotonic clock."""
        return int((local_s + self._offset_s) * 1000)
