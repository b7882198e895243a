"""The pure half of both producers: arguments in, script calls out; answers in, values out."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal, NamedTuple, TypedDict

from inferq.contract import scripts
from inferq.contract.description import ModelDescription
from inferq.contract.errors import Cancelled, InvalidRequest, NotFound, QueueFull, TooLarge
from inferq.contract.keys import LANES, Keys, check_id
from inferq.contract.replies import ReplyWriter
from inferq.contract.requests import RequestWriter, Wanted, check_parameters
from inferq.ids import new_request_id
from inferq.redis_link import Command, call
from inferq.settings import ProducerSettings

Priority = Literal["high", "normal", "low"]
Scalar = bool | int | float | str

_MESSAGES_PER_CALL = 1_000
_BYTES_PER_CALL = 64 * 1024**2
# Longer than any worker needs to see that something was cancelled.
_CANCEL_HINT_MS = 60_000
_SHORTEST_REPLY_TTL_S = 60


class RequestOptions(TypedDict, total=False):
    """What can be said of a request besides its inputs.

    Attributes:
        timeout: seconds until the model must have started; past it the request is answered
            :class:`Expired` without running. ``infer`` also stops waiting then.
        priority: the lane it waits in: ``high``, ``normal`` (default) or ``low``.
        parameters: scalars for a model whose ``predict`` takes ``parameters``.
        outputs: names of the outputs to return; all by default.
        reply_ttl: seconds the reply is kept; 60 s to the worker's limit (a day by default).
        request_id: an id of one's own. An id that is still known joins the earlier request,
            whatever its inputs: submitting twice runs once.
    """

    timeout: float | None
    priority: Priority
    parameters: Mapping[str, Scalar]
    outputs: Sequence[str] | None
    reply_ttl: float | None
    request_id: str


class Outgoing(NamedTuple):
    """A request ready to go; ``single`` tells that it came as a row without a batch dimension."""

    id: str
    message: bytes
    single: bool


class State:
    """What ``submit.lua`` says of a message."""

    PUSHED = 1
    PENDING = 2
    ANSWERED = 3


@dataclass(frozen=True)
class _Checked:
    """The options of one call, checked once for all its requests."""

    parameters: dict[str, Scalar]
    lane: str
    outputs: Sequence[str] | None

    @staticmethod
    def of(options: RequestOptions) -> "_Checked":
        parameters = check_parameters(options.get("parameters") or {})
        timeout = options.get("timeout")
        if timeout is not None:
            parameters["timeout"] = max(1, int(check_seconds("timeout", timeout) * 1e6))
        reply_ttl = options.get("reply_ttl")
        if reply_ttl is not None:
            if check_seconds("reply_ttl", reply_ttl) < _SHORTEST_REPLY_TTL_S:
                raise InvalidRequest(f"reply_ttl must be at least 60 s, got {reply_ttl}")
            parameters["reply_ttl"] = int(reply_ttl)
        lane = options.get("priority", "normal")
        if lane not in LANES:
            raise InvalidRequest(f"priority must be one of {', '.join(LANES)}, got {lane!r}")
        return _Checked(parameters, lane, options.get("outputs"))


def check_seconds(name: str, value: object) -> float:
    """Return a positive, finite number of seconds.

    Raises:
        InvalidRequest: anything else.
    """
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or value <= 0:  # type: ignore[operator, arg-type]
        raise InvalidRequest(f"{name} must be a positive number of seconds, got {value!r}")
    return float(value)  # type: ignore[arg-type]


class Composer:
    """Turns calls of a producer into messages and commands, and their answers into values.

    Args:
        settings: limits and lives.
        box: the inbox that replies are announced in.
    """

    def __init__(self, settings: ProducerSettings, box: str) -> None:
        self._settings = settings
        self._box = box
        self._writer = RequestWriter()

    def compose(
        self,
        description: ModelDescription,
        many: Sequence[object],
        options: RequestOptions,
        now_ms: int,
    ) -> tuple[list[Outgoing], str]:
        """Check and encode requests to one model; return them and the lane they go to.

        Raises:
            InvalidRequest: the inputs do not fit the model, or an option is wrong.
            TooLarge: a message is over the model's limit.
        """
        checked = _Checked.of(options)
        if checked.outputs is not None:
            description.select([Wanted(name, None) for name in checked.outputs])
        parameters = {
            "submitted_ms": now_ms,
            "reply_to": self._box,
            **checked.parameters,
        }
        given_id = options.get("request_id")
        if given_id is not None:
            check_id(given_id)
        outgoing = []
        for inputs in many:
            bound = description.bind(inputs)
            request_id = new_request_id() if given_id is None else given_id
            message = self._writer.write(request_id, bound.tensors, parameters, checked.outputs)
            if len(message) > description.max_message_bytes:
                raise TooLarge(
                    f"message of {len(message)} bytes is over {description.name}'s limit of "
                    f"{description.max_message_bytes}"
                )
            outgoing.append(Outgoing(request_id, message, bound.single))
        return outgoing, checked.lane

    def submit(self, keys: Keys, lane: str, part: Sequence[Outgoing]) -> Command:
        """Build the call that submits at most 1,000 requests, all of them or none."""
        return call(
            scripts.load("submit"),
            (keys.lane(lane), keys.normal, *(keys.reply(each.id) for each in part)),
            (
                self._settings.queue_limit,
                int(self._settings.pending_ttl_s * 1000),
                *(each.message for each in part),
            ),
        )

    def submitted(self, model: str, answer: Sequence[int]) -> list[int]:
        """Return the :class:`State` of each request of a submission.

        Raises:
            QueueFull: the lane is at its limit, and nothing was pushed.
        """
        if answer[0] == -1:
            raise QueueFull(
                f"the queue of {model} holds {answer[1]} requests, its limit is "
                f"{self._settings.queue_limit}"
            )
        return list(answer[1:])


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


def cancel(keys: Keys, request_id: str) -> Command:
    """Build the call that withdraws a request.

    The reply it writes is a function of the id alone, so that a repeated call knows its own.
    """
    error = Cancelled("the request was withdrawn before its result was written")
    reply = ReplyWriter(keys.model, None).error(request_id, error)
    return call(
        scripts.load("cancel"),
        (keys.reply(request_id), keys.cancelled, keys.metrics),
        (reply, _CANCEL_HINT_MS),
    )


def cancelled(answer: int, model: str, request_id: str) -> bool:
    """Tell whether a cancellation came in time.

    Raises:
        NotFound: no such request is known.
    """
    if answer == -1:
        raise unknown_request(model, request_id)
    return answer == 1


def unknown_request(model: str, request_id: str) -> NotFound:
    """Return the error of a request nobody knows (any more)."""
    return NotFound(
        f"no request '{request_id}' of model '{model}' is known: never submitted, pushed without "
        "a pending mark and still waiting, or its reply has expired"
    )


def unknown_model(model: str, known: Sequence[str]) -> NotFound:
    """Return the error of a model that no worker has published."""
    listed = ", ".join(sorted(known)) or "none"
    return NotFound(f"no worker has ever published a model '{model}' here; known models: {listed}")


def take(source: Iterator[object], count: int) -> list[object]:
    """Take up to ``count`` items from an iterator."""
    return list(islice(source, max(0, count)))


class DescriptionCache:
    """Model descriptions, each trusted for a while.

    Args:
        ttl_s: for how long.
    """

    def __init__(self, ttl_s: float) -> None:
        self._ttl_s = ttl_s
        self._known: dict[str, tuple[float, ModelDescription]] = {}

    def get(self, model: str, now_s: float) -> ModelDescription | None:
        """Return a description read less than ``ttl_s`` ago."""
        read_at_s, description = self._known.get(model, (-math.inf, None))
        return description if now_s - read_at_s < self._ttl_s else None

    def put(self, model: str, text: bytes, now_s: float) -> ModelDescription:
        """Keep what was just read, and return it.

        Raises:
            InvalidSetting: the text is no model description.
        """
        description = ModelDescription.from_json(text)
        self._known[model] = (now_s, description)
        return description

    def drop(self, model: str) -> None:
        """Forget a model's description."""
        self._known.pop(model, None)
