"""Redis time is estimated within half the fastest round trip."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferq.clock import REFRESH_S, ClockSample, ServerClock

delays = st.floats(0.0001, 0.5)


@given(
    offset=st.floats(-1e6, 1e6),
    start=st.floats(0, 1e6),
    trips=st.lists(st.tuples(delays, delays), min_size=1, max_size=5),
)
def test_error_is_bounded_by_the_fastest_trip(
    offset: float, start: float, trips: list[tuple[float, float]]
) -> None:
    """Whatever the two ways of a round trip take, the estimate is within half of the fastest."""
    samples = []
    now = start
    for there, back in trips:
        samples.append(ClockSample(now, now + there + back, now + there + offset))
        now += there + back
    clock = ServerClock()
    clock.adjust(samples)
    best = min(there + back for there, back in trips) / 2
    # Two milliseconds for the roundings: of the sum of floats, and to whole ms.
    assert abs(clock.now_ms(now) - (now + offset) * 1000) <= best * 1000 + 2


@pytest.mark.parametrize(
    ("answer", "server_s"),
    [
        ([b"1700000000", b"0"], 1_700_000_000.0),
        ([b"1700000000", b"250000"], 1_700_000_000.25),
        ([b"1", b"999999"], 1.999999),
    ],
)
def test_answers_of_time(answer: list[bytes], server_s: float) -> None:
    """Seconds and microseconds of the server make one reading."""
    sample = ClockSample.of(10.0, 10.5, answer)
    assert sample.server_s == pytest.approx(server_s, abs=1e-6)
    assert sample.error_s == 0.25


def test_staleness() -> None:
    """An estimate is due at first, and again when it has aged."""
    clock = ServerClock()
    assert clock.is_stale(-1e9)
    clock.adjust([ClockSample(5.0, 6.0, 100.0)])
    assert not clock.is_stale(6.0)
    assert not clock.is_stale(6.0 + REFRESH_S - 0.001)
    assert clock.is_stale(6.0 + REFRESH_S)


def test_the_latest_estimate_counts() -> None:
    """New samples replace what was estimated before: the server may be another one."""
    clock = ServerClock()
    clock.adjust([ClockSample(0.0, 0.0, 50.0)])
    assert clock.now_ms(1.0) == 51_000
    clock.adjust([ClockSample(10.0, 10.0, 5.0)])
    assert clock.now_ms(11.0) == 6_000
