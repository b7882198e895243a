"""The two producers are twins: who knows one knows the other."""

import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest

from inferq import AsyncHandle, AsyncProducer, Handle, Producer

TWINS = [(Producer, AsyncProducer), (Handle, AsyncHandle)]
# What makes an object a context manager has two names in Python.
_RENAMED = {"__enter__": "__aenter__", "__exit__": "__aexit__"}


def methods(kind: type) -> dict[str, Callable[..., Any]]:
    """Return the public methods that a class defines, the constructor and ``with`` included."""
    public = {*_RENAMED, *_RENAMED.values(), "__init__"}
    return {
        name: member
        for name, member in vars(kind).items()
        if inspect.isfunction(member) and (name in public or not name.startswith("_"))
    }


PAIRS = [
    pytest.param(
        member, methods(asynchronous)[_RENAMED.get(name, name)], id=f"{blocking.__name__}.{name}"
    )
    for blocking, asynchronous in TWINS
    for name, member in methods(blocking).items()
    if _RENAMED.get(name, name) in methods(asynchronous)
]


def parameters(method: Callable[..., Any]) -> list[tuple[str, str, Any]]:
    return [
        (each.name, each.kind.description, each.default)
        for each in inspect.signature(method).parameters.values()
    ]


def sections(method: Callable[..., Any]) -> dict[str, str]:
    """Return a docstring's parts by their titles, ``""`` being what stands before all of them."""
    text = (inspect.getdoc(method) or "").replace("AsyncProducer", "Producer")
    title, _, rest = re.sub(r"^(Args|Raises):\n", r"\0\1\n", text, flags=re.MULTILINE).partition(
        "\0"
    )
    parts = {"": title}
    for part in filter(None, rest.split("\0")):
        name, _, body = part.partition("\n")
        parts[name] = body
    return {name: " ".join(body.split()) for name, body in parts.items()}


def arguments(documented: str) -> list[str]:
    return re.findall(r"(?:^| )(\**[a-z_]+):", documented)


@pytest.mark.parametrize(("blocking", "asynchronous"), TWINS)
def test_the_same_methods(blocking: type, asynchronous: type) -> None:
    """Neither has a public method that the other lacks."""
    assert {_RENAMED.get(name, name) for name in methods(blocking)} == set(methods(asynchronous))


@pytest.mark.parametrize(("blocking", "asynchronous"), PAIRS)
def test_the_same_parameters(
    blocking: Callable[..., Any], asynchronous: Callable[..., Any]
) -> None:
    """Each method takes the same parameters, in the same order, with the same defaults."""
    assert parameters(blocking) == parameters(asynchronous)


@pytest.mark.parametrize(("blocking", "asynchronous"), PAIRS)
def test_the_same_documentation(
    blocking: Callable[..., Any], asynchronous: Callable[..., Any]
) -> None:
    """Each method says the same of itself: what it does, what it takes, what it raises."""
    said, said_too = sections(blocking), sections(asynchronous)
    assert said[""] == said_too[""]
    assert said.get("Raises") == said_too.get("Raises")
    # The descriptions may differ: one source of a map is more than the other.
    assert arguments(said.get("Args", "")) == arguments(said_too.get("Args", ""))


@pytest.mark.parametrize(("blocking", "asynchronous"), PAIRS)
def test_everything_that_talks_to_redis_is_awaited(
    blocking: Callable[..., Any], asynchronous: Callable[..., Any]
) -> None:
    """No method of an asynchronous twin blocks: each is a coroutine or an asynchronous generator."""
    is_awaited = inspect.iscoroutinefunction(asynchronous) or inspect.isasyncgenfunction(
        asynchronous
    )
    assert is_awaited != (blocking.__name__ == "__init__")


def test_the_comparison_compares() -> None:
    """The parts of a docstring are found, so that none of the above compares nothing."""
    found = sections(Producer.map)
    assert found[""].startswith("Submit any number of requests")
    assert arguments(found["Args"]) == ["model", "many", "window", "return_errors", "**options"]
    assert "NotFound" in found["Raises"]
    assert len(PAIRS) >= 13
