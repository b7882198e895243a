"""What callers say of requests: a table of what is taken, and what is refused in which words."""

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from inferq.contract.errors import InvalidRequest
from inferq.options import RequestOptions, Terms, check_seconds


def terms(**options: Any) -> Terms:
    given: RequestOptions = options  # type: ignore[assignment]
    return Terms.of(given)


def test_nothing_said() -> None:
    """Without options a request waits in the normal lane without a limit, and nothing travels."""
    assert terms() == Terms({}, "normal", None, None, math.inf)


def test_none_is_nothing_said() -> None:
    """``None`` for an option that may be left out means that it is left out."""
    given = dict.fromkeys(("timeout", "outputs", "reply_ttl", "parameters", "request_id"))
    assert terms(**given) == terms()


def test_everything_said() -> None:
    """Each option becomes what the wire contract calls it, in its unit."""
    assert terms(
        timeout=1.5,
        priority="high",
        parameters={"beam": 4, "greedy": True, "scale": 0.5, "language": "de"},
        outputs=["label"],
        reply_ttl=90.9,
        request_id="r:1",
    ) == Terms(
        parameters={
            "beam": 4,
            "greedy": True,
            "scale": 0.5,
            "language": "de",
            "timeout": 1_500_000,
            "reply_ttl": 90,
        },
        lane="high",
        outputs=("label",),
        request_id="r:1",
        timeout_s=1.5,
    )


def test_the_shortest_timeout_is_one() -> None:
    """A timeout below a microsecond does not become 0, which means none on the wire."""
    assert terms(timeout=1e-9).parameters == {"timeout": 1}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"timeout": 0}, "timeout must be a positive number of seconds"),
        ({"timeout": -1}, "timeout must be a positive number of seconds"),
        ({"timeout": math.nan}, "got nan"),
        ({"timeout": math.inf}, "got inf"),
        ({"timeout": 10**400}, "timeout must be a positive number of seconds"),
        ({"timeout": True}, "got True"),
        ({"timeout": "2s"}, "got '2s'"),
        ({"priority": "urgent"}, "priority must be one of high, normal, low, got 'urgent'"),
        ({"priority": 1}, "priority must be one of high, normal, low, got 1"),
        ({"priority": ["high"]}, "priority must be one of high, normal, low"),
        ({"reply_ttl": 59.9}, "reply_ttl must be at least 60 s, got 59.9"),
        ({"reply_ttl": -1}, "reply_ttl must be a positive number of seconds"),
        ({"reply_ttl": 2**63}, "reply_ttl must be a positive number of seconds"),
        ({"parameters": {"timeout": 1}}, "'timeout' is reserved"),
        ({"parameters": {"reply_to": "x"}}, "'reply_to' is reserved"),
        ({"parameters": {"submitted_ms": 1}}, "'submitted_ms' is reserved"),
        ({"parameters": {"inferq_x": 1}}, "'inferq_x' is reserved"),
        ({"parameters": {"x": math.nan}}, "'x' must be finite"),
        ({"parameters": {"x": -math.inf}}, "'x' must be finite"),
        ({"parameters": {"x": None}}, "'x' must be a string, number or boolean"),
        ({"parameters": {"x": [1]}}, "'x' must be a string, number or boolean"),
        ({"parameters": {1: "x"}}, "parameter 1 must have a Unicode string as its name"),
        ({"parameters": ["x"]}, "parameters must be a mapping"),
        ({"parameters": {"x": "\ud800"}}, "'x' must be valid Unicode"),
        ({"parameters": {"x": 2**64}}, "'x' must fit into 64 bits"),
        ({"outputs": "label"}, "outputs must be a list of names, got 'label'"),
        ({"outputs": 1}, "outputs must be a list of names"),
        ({"request_id": ""}, "request id '' is not allowed"),
        ({"request_id": "a b"}, "request id 'a b' is not allowed"),
        ({"request_id": "x\n"}, "is not allowed"),
        ({"request_id": "{x}"}, "is not allowed"),
        ({"request_id": "x" * 129}, "is not allowed"),
        ({"request_id": 7}, "request id 7 is not allowed"),
    ],
    ids=str,
)
def test_what_is_refused(options: dict[str, Any], words: str) -> None:
    """A value that cannot be meant is refused, and the sentence names the option or the value."""
    with pytest.raises(InvalidRequest) as raised:
        terms(**options)
    assert words in str(raised.value)


def test_an_unknown_option_is_a_mistake() -> None:
    """A misspelled option is refused like any unknown keyword, and the known ones are listed."""
    with pytest.raises(TypeError, match=r"'timout'.*timeout, priority"):
        terms(timout=1)


@pytest.mark.parametrize("seconds", [1, 0.25, Fraction(1, 4), np.float32(2), np.int64(3), 1e9])
def test_seconds_of_any_real_type(seconds: Any) -> None:
    """Seconds may come as any real number, numpy's included."""
    checked = check_seconds("timeout", seconds)
    assert type(checked) is float
    assert checked == seconds
