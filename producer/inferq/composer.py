"""Turns what a caller hands in into messages. Pure."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from inferq.contract.description import ModelDescription
from inferq.contract.errors import RequestError, TooLarge
from inferq.contract.requests import RequestWriter, Wanted
from inferq.ids import new_request_id
from inferq.options import Scalar, Terms

_MESSAGES_PER_CALL: Final = 1_000
_BYTES_PER_CALL: Final = 64 * 1024**2


class Outgoing(NamedTuple):
    """A request ready to go; ``single`` tells that it came as a row without a batch dimension."""

    id: str
    message: bytes
    single: bool


class Composer:
    """Turns inputs into messages.

    Args:
        box: the inbox that replies are announced in.
    """

    def __init__(self, box: str) -> None:
        self._box = box
        self._writer = RequestWriter()

    def compose(
        self, description: ModelDescription, many: Sequence[object], terms: Terms, now_ms: int
    ) -> list[Outgoing | RequestError]:
        """Check and encode requests to one model; a wrong one is its error, in its place.

        The errors are :class:`InvalidRequest`, for inputs or outputs that do not fit the model,
        and :class:`TooLarge`, for a message over the model's limit.
        """
        parameters = {"submitted_ms": now_ms, "reply_to": self._box, **terms.parameters}
        composed: list[Outgoing | RequestError] = []
        for inputs in many:
            try:
                composed.append(self._message(description, inputs, terms, parameters))
            except RequestError as error:
                composed.append(error)
        return composed

    def _message(
        self,
        description: ModelDescription,
        inputs: object,
        terms: Terms,
        parameters: Mapping[str, Scalar],
    ) -> Outgoing:
        if terms.outputs is not None:
            description.select([Wanted(name, None) for name in terms.outputs])
        bound = description.bind(inputs)
        request_id = terms.request_id or new_request_id()
        message = self._writer.write(request_id, bound.tensors, parameters, terms.outputs)
        if len(message) > description.max_message_bytes:
            raise TooLarge(
                f"message of {len(message)} bytes is over {description.name}'s limit of "
                f"{description.max_message_bytes}"
            )
        return Outgoing(request_id, message, bound.single)


def cut(outgoing: Sequence[Outgoing]) -> list[list[Outgoing]]:
    """Cut requests into parts that one script call can carry."""
    parts: list[list[Outgoing]] = []
    size = 0
    for each in outgoing:
        size += len(each.message)
        if not parts or len(parts[-1]) == _MESSAGES_PER_CALL or size > _BYTES_PER_CALL:
            parts.append([])
            size = len(each.message)
        parts[-1].append(each)
    return parts
