"""Every error inferq raises, in one tree; who is at fault is the first split.

::

    InferqError
    ├── RequestError             you asked for something that cannot be answered
    │   ├── InvalidRequest       invalid_request   not OIP, unknown tensor, wrong type or shape
    │   ├── TooLarge             too_large         message over the byte limit
    │   ├── NotFound             not_found         unknown model, or unknown request id
    │   └── Cancelled            cancelled         withdrawn before it ran
    ├── AnswerError              the model could not answer this request
    │   ├── ModelError           model_error       it raised, or returned something else
    │   └── Crashed              crashed           the request killed its worker again and again
    ├── BusyError                try again later, under a new id
    │   ├── Expired              expired           ``timeout`` ran out before the model started
    │   ├── QueueFull            queue_full        refused at submission
    │   ├── NoReply              no_reply          this caller stopped waiting
    │   ├── NotReady             (not on the wire) the reply is still pending
    │   └── Unavailable          unavailable       Redis is away, or refuses to work
    └── SetupError               the program is set up wrongly; exit code 78
        ├── InvalidSetting       a setting has a value that it must not have
        ├── ServerUnfit          the Redis server is too old, or its keys belong to another program
        └── ModelUnfit           the model does not import, load, or fit its own description

``code`` and ``retryable`` are the wire contract's; a class without a code never travels.
"""

from typing import Any, ClassVar


class InferqError(Exception):
    """Root of every error that inferq raises."""

    code: ClassVar[str | None] = None
    retryable: ClassVar[bool] = False


class RequestError(InferqError):
    """The request itself is at fault; sending it again gives the same answer."""


class InvalidRequest(RequestError, ValueError):
    """The request breaks a rule of the contract or of the model's description."""

    code = "invalid_request"


class TooLarge(RequestError, ValueError):
    """The message is over the byte limit."""

    code = "too_large"


class NotFound(RequestError, LookupError):
    """No worker ever published this model, or no request with this id is known."""

    code = "not_found"


class Cancelled(RequestError):
    """The request was withdrawn before its result was written."""

    code = "cancelled"


class AnswerError(InferqError):
    """The request was well formed and the model could not answer it."""


class ModelError(AnswerError):
    """The model raised on this request, alone, or returned what it did not promise.

    ``row`` is the index of the failing row where one call carried several inputs
    (:class:`inferq_worker.ModelServer`), otherwise ``None``.
    """

    code = "model_error"

    def __init__(self, message: str, *, row: int | None = None) -> None:
        super().__init__(message)
        self.row = row


class Crashed(AnswerError):
    """The request killed the process that ran it, as often as is allowed."""

    code = "crashed"


class BusyError(InferqError):
    """Nothing is wrong with the request; later, under a new id, it may well succeed."""

    retryable = True


class Expired(BusyError):
    """The request's ``timeout`` ran out before the model started on it."""

    code = "expired"


class QueueFull(BusyError):
    """The queue is at its limit, or the server's memory is.

    ``retry_after_ms`` is a hint: how long to wait before the next try, in milliseconds.
    ``accepted`` holds the handles of what a large ``submit_many`` had submitted before; else
    nothing was submitted.
    """

    code = "queue_full"

    def __init__(self, message: str, *, retry_after_ms: int = 1_000) -> None:
        super().__init__(message)
        self.retry_after_ms = retry_after_ms
        self.accepted: tuple[Any, ...] = ()


class NoReply(BusyError, TimeoutError):
    """The caller stopped waiting; the request itself may still be answered."""

    code = "no_reply"


class NotReady(BusyError):
    """The request is known and its reply is not written yet."""


class Unavailable(BusyError, ConnectionError):
    """Redis cannot be reached, or refuses to work for now."""

    code = "unavailable"


class SetupError(InferqError):
    """The program is configured in a way that cannot work; a restart changes nothing."""


class InvalidSetting(SetupError, ValueError):
    """A setting has a value it must not have; the message names both."""


class ServerUnfit(SetupError):
    """The Redis server cannot serve as inferq's broker."""


class ModelUnfit(SetupError):
    """The model target does not import or load, or contradicts its own description."""


_LONGEST_SENTENCE = 500


def sentence(error: BaseException) -> str:
    """Return an error's text as it may be sent and logged: one line, printable, at most 500 long.

    It may quote a name that some sender chose, or what a model raised: line breaks and terminal
    codes are spelled out, so that no log line can be forged.
    """
    # Cut before as well: the text may be megabytes.
    text = str(error)[: _LONGEST_SENTENCE + 1]
    if not text.isprintable():
        text = "".join(
            char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
        )
    return text if len(text) <= _LONGEST_SENTENCE else text[: _LONGEST_SENTENCE - 3] + "..."


WIRE_ERRORS: dict[str, type[InferqError]] = {
    cls.code: cls
    for cls in (
        InvalidRequest,
        TooLarge,
        ModelError,
        Crashed,
        Expired,
        Cancelled,
        QueueFull,
        NoReply,
        NotFound,
        Unavailable,
    )
    if cls.code is not None
}
"""Error class of each code in the wire contract."""


def from_wire(code: object, message: str, parameters: dict[str, Any]) -> InferqError:
    """Rebuild the error that an error reply describes.

    A code this version does not know gives a plain :class:`AnswerError`, so that a newer worker
    can add codes.
    """
    after_ms = parameters.get("retry_after_ms")
    # A hint that is none must not hide the error it came with.
    if code == QueueFull.code and isinstance(after_ms, int) and after_ms >= 0:
        return QueueFull(message, retry_after_ms=after_ms)
    return WIRE_ERRORS.get(str(code), AnswerError)(message)
