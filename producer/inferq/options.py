"""What a caller can say of requests besides their inputs, and the checks of it."""

import math
import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypedDict

from inferq.contract.errors import InvalidRequest
from inferq.contract.keys import LANES, check_id
from inferq.contract.requests import check_parameters

Priority = Literal["high", "normal", "low"]
Scalar = bool | int | float | str

_SHORTEST_REPLY_TTL_S: Final = 60
# Thirty years. Beyond a few hundred the system's own waits overflow.
_LONGEST_S: Final = 1e9


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


@dataclass(frozen=True)
class Terms:
    """The options of one call, checked once for all its requests.

    Attributes:
        parameters: what travels in each message, the contract's names for it included.
        lane: the lane to submit to.
        outputs: names of the outputs to return, ``None`` for all.
        request_id: the id given, ``None`` to make one for each request.
        timeout_s: seconds until the model must have started; infinite without a limit.
    """

    parameters: dict[str, Scalar]
    lane: str
    outputs: tuple[str, ...] | None
    request_id: str | None
    timeout_s: float

    @staticmethod
    def of(options: RequestOptions) -> "Terms":
        """Check what a caller gave.

        Raises:
            InvalidRequest: a value is not allowed; the message names it.
            TypeError: there is no such option.
        """
        unknown = sorted(options.keys() - RequestOptions.__annotations__.keys())
        if unknown:
            known = ", ".join(RequestOptions.__annotations__)
            raise TypeError(f"there is no option '{unknown[0]}': the options are {known}")
        parameters = _own_parameters(options)
        timeout = options.get("timeout")
        timeout_s = math.inf if timeout is None else check_seconds("timeout", timeout)
        if timeout_s < math.inf:
            # Redis time has microseconds here, and none of them would mean "no timeout".
            parameters["timeout"] = max(1, int(timeout_s * 1e6))
        reply_ttl = options.get("reply_ttl")
        if reply_ttl is not None:
            if check_seconds("reply_ttl", reply_ttl) < _SHORTEST_REPLY_TTL_S:
                raise InvalidRequest(f"reply_ttl must be at least 60 s, got {reply_ttl}")
            parameters["reply_ttl"] = int(reply_ttl)
        lane = options.get("priority", "normal")
        if lane not in LANES:
            raise InvalidRequest(f"priority must be one of {', '.join(LANES)}, got {lane!r}")
        request_id = options.get("request_id")
        if request_id is not None:
            check_id(request_id)
        return Terms(parameters, lane, _outputs(options), request_id, timeout_s)


def check_seconds(name: str, value: object) -> float:
    """Return a positive number of seconds, at most thirty years of them.

    Raises:
        InvalidRequest: anything else.
    """
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    # Compared before it is converted: an int may be too large for a float.
    if is_number and 0 < value <= _LONGEST_S:  # type: ignore[operator]
        return float(value)  # type: ignore[arg-type]
    raise InvalidRequest(
        f"{name} must be a positive number of seconds, at most {_LONGEST_S:.0e}, got {value!r}"
    )


def _own_parameters(options: RequestOptions) -> dict[str, Scalar]:
    given: object = options.get("parameters")
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise InvalidRequest(f"parameters must be a mapping of names to scalars, got {given!r}")
    return check_parameters(given)


def _outputs(options: RequestOptions) -> tuple[str, ...] | None:
    given: object = options.get("outputs")
    if given is None:
        return None
    # A string is a sequence of strings too, and would ask for outputs of one letter each.
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise InvalidRequest(f"outputs must be a list of names, got {given!r}")
    return tuple(given)
