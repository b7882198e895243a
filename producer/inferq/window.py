"""The window of a ``map``: what is under way, what waits to be, and how much to try. Pure."""

from collections import deque
from collections.abc import Sequence

from inferq.contract.errors import InvalidRequest, RequestError
from inferq.options import RequestOptions
from inferq.outstanding import Slot


class Window:
    """The requests of one ``map``, in order.

    It is refilled by halves: large enough to submit many at once, and never empty meanwhile. Of a
    full queue it learns to ask for less.

    Args:
        size: the most requests under way.

    Attributes:
        under_way: requests submitted, and the errors of inputs that could not be.
        held: inputs taken from the source and not submitted yet.
        is_stuck: the queue takes not even one request, and no reply of ours will make room.
    """

    def __init__(self, size: int) -> None:
        self.under_way: deque[Slot | RequestError] = deque()
        self.held: list[object] = []
        self.is_stuck = False
        self._size = size
        self._portion = size

    @staticmethod
    def check(size: int, options: RequestOptions) -> "Window":
        """Return a new window for a call of ``map``.

        Raises:
            InvalidRequest: the size is below 1, or an id is given for all requests.
        """
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise InvalidRequest(f"window must be a whole number from 1, got {size!r}")
        if "request_id" in options:
            raise InvalidRequest("map makes its own ids: request_id is not allowed")
        return Window(size)

    def wanted(self) -> int:
        """Return how many more inputs to take from the source now."""
        if len(self.under_way) > self._size // 2:
            return 0
        return max(0, self._size - len(self.under_way) - len(self.held))

    def portion(self) -> list[object]:
        """Return the inputs to submit now; none while more than half the window is under way."""
        room = self._size - len(self.under_way)
        return self.held[: min(room, self._portion)] if room >= self._size - self._size // 2 else []

    def submitted(self, asked: int, accepted: Sequence[Slot | RequestError]) -> None:
        """Note what became of a portion of ``asked`` inputs: a first part of it was accepted."""
        self.under_way.extend(accepted)
        del self.held[: len(accepted)]
        if len(accepted) == asked:
            self._portion = min(self._size, self._portion * 2)
        else:
            self._portion = max(1, len(accepted), asked // 2)
        self.is_stuck = asked == 1 and not self.under_way
