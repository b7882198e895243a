"""Who was promised what: every request by its number, and what its sender was told of it.

The ledger trusts nothing that a worker says. A request carries a number that no other has; the
reply must repeat it and its double, so a reply is judged by arithmetic alone.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from inferq import InferqError, Reply

SUCCEEDED = "succeeded"
_ONLY_SUCCESS = frozenset({SUCCEEDED})


@dataclass(frozen=True)
class Answer:
    """A reply as somebody saw it.

    Attributes:
        outcome: ``succeeded``, or the code of an error.
        id: what it says it answers, if it says so.
        numbers: the numbers it holds.
        doubles: and their doubles.
        text: everything, so that two sights of one reply can be compared.
    """

    outcome: str
    id: str | None
    numbers: tuple[int, ...]
    doubles: tuple[int, ...]
    text: str

    @staticmethod
    def of(result: Reply | InferqError) -> "Answer":
        """Look at a reply."""
        if isinstance(result, InferqError):
            return Answer(result.code or "error", None, (), (), str(result))
        numbers, doubles = (
            tuple(result[name].reshape(-1).tolist()) for name in ("number", "double")
        )
        text = f"{numbers} {doubles} {sorted(result.parameters.items())}"
        return Answer(SUCCEEDED, result.id, numbers, doubles, text)

    def fits(self, request_id: str, number: int) -> bool:
        """Tell whether it answers this request and no other."""
        if self.outcome != SUCCEEDED:
            return True
        return (self.id, self.numbers, self.doubles) == (request_id, (number,), (2 * number,))


class Ledger:
    """Keeps the books of one row; for any number of threads.

    Attributes:
        accepted: number of each request that was accepted, by id.
        first: the reply each sender saw first, by id.
        bare: ids that were pushed without a pending mark.
        refused: numbers told not to have been accepted: they must never run.
        unsure: numbers of which their sender could not know.
        forgotten: ids whose sender was told that nobody knows them.
        silent: ids whose sender gave up waiting.
        taken: how many numbers were given out.
        mark_each: mark every so many from now on; 0: none.
    """

    def __init__(self, *, mark_each: int = 0, marked: str = SUCCEEDED) -> None:
        self.accepted: dict[str, int] = {}
        self.first: dict[str, Answer] = {}
        self.bare: set[str] = set()
        self.refused: set[int] = set()
        self.unsure: set[int] = set()
        self.forgotten: set[str] = set()
        self.silent: set[str] = set()
        self.taken = 0
        self.mark_each = mark_each
        self._marked = frozenset({marked})
        self._deserved: dict[str, frozenset[str]] = {}
        self._changed: list[str] = []
        self._lock = threading.Lock()
        self._last_answer_s = time.monotonic()
        self._longest_silence_s = 0.0

    def take(self, count: int) -> list[int]:
        """Return numbers that nobody has; every so many is marked: negative."""
        with self._lock:
            first = self.taken + 1
            self.taken += count
        return [
            -number if self.mark_each and number % self.mark_each == 0 else number
            for number in range(first, first + count)
        ]

    def accept(self, request_id: str, number: int) -> None:
        """Note that a request was accepted."""
        with self._lock:
            self.accepted[request_id] = number

    def refuse(self, numbers: Iterable[int]) -> None:
        """Note that requests were refused."""
        with self._lock:
            self.refused.update(numbers)

    def doubt(self, numbers: Iterable[int]) -> None:
        """Note that it is not known whether requests were accepted."""
        with self._lock:
            self.unsure.update(numbers)

    def expect(self, request_id: str, outcomes: Iterable[str]) -> None:
        """Note that a request deserves one of these outcomes and no other."""
        with self._lock:
            self._deserved[request_id] = frozenset(outcomes)

    def deserved(self, request_id: str, number: int) -> frozenset[str]:
        """Return the outcomes that a request may have."""
        usual = self._marked if number < 0 else _ONLY_SUCCESS
        return self._deserved.get(request_id, usual)

    def saw(self, request_id: str, result: Reply | InferqError) -> None:
        """Note what a sender was given; the first sight counts, and none may differ from it."""
        answer = Answer.of(result)
        with self._lock:
            now_s = time.monotonic()
            silence_s = now_s - self._last_answer_s
            self._longest_silence_s = max(self._longest_silence_s, silence_s)
            self._last_answer_s = now_s
            if self.first.setdefault(request_id, answer) != answer:
                self._changed.append(request_id)

    def longest_silence_s(self) -> float:
        """Return the longest time between two answers since the last call."""
        with self._lock:
            silence_s = max(self._longest_silence_s, time.monotonic() - self._last_answer_s)
            self._longest_silence_s = 0.0
            self._last_answer_s = time.monotonic()
        return silence_s

    def changed(self, final: dict[str, Answer]) -> set[str]:
        """Return the ids whose reply was not always the same one."""
        changed = {
            request_id
            for request_id, answer in self.first.items()
            if request_id in final and final[request_id] != answer
        }
        return changed | set(self._changed)


def numbers_twice(final: dict[str, Answer]) -> dict[int, Sequence[str]]:
    """Return the numbers that were answered under more than one id: a submission was doubled."""
    ids: dict[int, list[str]] = defaultdict(list)
    for request_id, answer in final.items():
        for number in answer.numbers:
            ids[number].append(request_id)
    return {number: those for number, those in ids.items() if len(those) > 1}
