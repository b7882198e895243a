"""Durations and sizes read as people write them, and nothing else does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferq.contract.errors import InvalidSetting
from inferq.units import seconds, size_bytes


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("0", 0.0),
        ("5", 5.0),
        ("1.5", 1.5),
        (" 5 ", 5.0),
        ("250us", 0.00025),
        ("2ms", 0.002),
        ("250 ms", 0.25),
        ("30s", 30.0),
        ("5min", 300.0),
        ("1.5h", 5400.0),
        (5, 5.0),
        (0.25, 0.25),
        (1e-05, 1e-05),
        (1e16, 1e16),
    ],
)
def test_durations(text: object, amount: float) -> None:
    """A number is seconds; a unit behind it scales it."""
    assert seconds(text) == pytest.approx(amount, rel=1e-12)


@pytest.mark.parametrize(
    "text",
    ["", "ms", "-1", "+1", "1e3", "5 parsecs", "5MS", "5.", ".5", "1,5", "\u0665", "5\nms x", "9" * 400,
     "nan", "inf", -1, -0.5, float("nan"), float("inf"), 10**400, True, None, b"5", [5]],
)  # fmt: skip
def test_what_is_no_duration(text: object) -> None:
    """Everything else is refused with what was expected."""
    with pytest.raises(InvalidSetting, match="not a duration: expected seconds, or a number with"):
        seconds(text)


@given(amount=st.floats(0, 1e12))
def test_any_number_is_itself(amount: float) -> None:
    """A number that is a duration already is not touched."""
    assert seconds(amount) == amount


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (0, 0),
        (5, 5),
        ("5", 5),
        ("5b", 5),
        ("1kB", 1_000),
        ("2 MB", 2_000_000),
        ("1GB", 10**9),
        ("16KiB", 16_384),
        ("1.5 MiB", 1_572_864),
        ("64MiB", 67_108_864),
        ("1GiB", 2**30),
    ],
)
def test_sizes(text: object, size: int) -> None:
    """A number is bytes; a unit behind it scales it, by 1,000 or by 1,024."""
    read = size_bytes(text)
    assert read == size
    assert type(read) is int


@pytest.mark.parametrize("text", ["", "x", "-5", -5, "1e3", "5 parsecs", "MiB", 1.5, True, None])
def test_what_is_no_size(text: object) -> None:
    """Everything else is refused with what was expected."""
    with pytest.raises(InvalidSetting, match="not a size: expected bytes, or a number with KiB"):
        size_bytes(text)
