"""Carries out the steps of the producers against a server that is a function of the command."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from inferq.contract.errors import InferqError
from inferq.redis_link import Command, Steps

T = TypeVar("T")
Words = tuple[Any, ...]


class FakeServer:
    """Answers commands by their first word; an error as answer is thrown into the steps.

    Attributes:
        sent: the commands of all flights, in order.
    """

    def __init__(self, **answers: Callable[[Words], Any]) -> None:
        self.answers = answers
        self.sent: list[Words] = []

    def carry_out(self, steps: Steps[T]) -> T:
        """Carry steps out to their value, or to the error they raise."""
        try:
            flight = next(steps)
            while True:
                try:
                    answers = self.fly(flight)
                except InferqError as error:
                    flight = steps.throw(error)
                else:
                    flight = steps.send(answers)
        except StopIteration as end:
            value: T = end.value
            return value

    def fly(self, flight: Sequence[Command]) -> list[Any]:
        """Answer one flight."""
        answers = []
        for command in flight:
            self.sent.append(command.words)
            answer = self.answers[str(command.words[0])](command.words)
            if isinstance(answer, InferqError):
                raise answer
            answers.append(answer)
        return answers

    def verbs(self) -> list[str]:
        """Return the first word of each command sent so far."""
        return [words[0] for words in self.sent]
