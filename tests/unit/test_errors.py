"""The error tree: one root, the wire's codes, and sentences that can be sent and logged."""

import inspect
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferq.contract import errors
from inferq.contract.errors import (
    WIRE_ERRORS,
    AnswerError,
    BusyError,
    InferqError,
    ModelError,
    QueueFull,
    RequestError,
    SetupError,
    from_wire,
    sentence,
)

TREE = [
    each
    for _, each in inspect.getmembers(errors, inspect.isclass)
    if issubclass(each, InferqError) and each is not InferqError
]
FAMILIES = (RequestError, AnswerError, BusyError, SetupError)

# The contract's table: code and whether the same request may succeed later, under a new id.
CODES = {
    "invalid_request": False,
    "too_large": False,
    "model_error": False,
    "crashed": False,
    "expired": True,
    "cancelled": False,
    "queue_full": True,
    "no_reply": True,
    "not_found": False,
    "unavailable": True,
}


@pytest.mark.parametrize("error", TREE)
def test_the_tree_is_drawn(error: type[InferqError]) -> None:
    """Every class is in the picture at the top of the module, in exactly one family."""
    assert errors.__doc__ is not None
    assert f" {error.__name__} " in errors.__doc__
    assert sum(issubclass(error, family) for family in FAMILIES) == 1
    assert error.__doc__


def test_codes() -> None:
    """The codes and what is retryable are the contract's."""
    assert {code: WIRE_ERRORS[code].retryable for code in WIRE_ERRORS} == CODES
    coded = {each for each in TREE if each.code is not None}
    assert set(WIRE_ERRORS.values()) == coded


@pytest.mark.parametrize("code", CODES)
def test_codes_round_trip(code: str) -> None:
    """An error of each code comes back as its class with its sentence."""
    error = from_wire(code, "what happened", {})
    assert type(error) is WIRE_ERRORS[code]
    assert (error.code, str(error)) == (code, "what happened")


@pytest.mark.parametrize(
    ("name", "builtin"),
    [
        ("InvalidRequest", ValueError),
        ("TooLarge", ValueError),
        ("NotFound", LookupError),
        ("NoReply", TimeoutError),
        ("Unavailable", ConnectionError),
        ("InvalidSetting", ValueError),
    ],
)
def test_errors_are_also_what_python_calls_them(name: str, builtin: type[Exception]) -> None:
    """Code that knows nothing of inferq can catch them by Python's own names."""
    assert issubclass(getattr(errors, name), builtin)


def test_what_some_errors_carry() -> None:
    """A failing row, and a hint when to come back, travel with their errors."""
    assert ModelError("x").row is None
    assert ModelError("x", row=3).row == 3
    assert QueueFull("x").retry_after_ms == 1_000
    assert QueueFull("x", retry_after_ms=5).retry_after_ms == 5
    assert from_wire("queue_full", "x", {"retry_after_ms": 7}).retry_after_ms == 7  # type: ignore[attr-defined]


@pytest.mark.parametrize("error", TREE)
def test_errors_cross_processes(error: type[InferqError]) -> None:
    """Errors can be pickled, as process pools and job queues do."""
    again = pickle.loads(pickle.dumps(error("what happened")))
    assert type(again) is error
    assert str(again) == "what happened"


@given(text=st.text(alphabet=st.characters(exclude_categories=()), max_size=600))
def test_any_sentence(text: str) -> None:
    """A sentence is one printable line of bounded length that UTF-8 can hold."""
    shown = sentence(InferqError(text))
    assert shown.isprintable()
    assert len(shown.encode()) <= 500 * 10
    if text.isprintable() and len(text) <= 500:
        assert shown == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("tensor 'a\nb': no", "tensor 'a\\nb': no"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("\u2028", "\\u2028"),
        ("\udcff", "\\udcff"),
        ("é 😀", "é 😀"),
        ("a" * 501, "a" * 497 + "..."),
    ],
)
def test_sentences_forge_no_lines(text: str, shown: str) -> None:
    """Line breaks and terminal codes in a quoted name are spelled out."""
    assert sentence(InferqError(text)) == shown
