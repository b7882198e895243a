"""How long a break of the connection is put up with."""

import itertools

from inferq.patience import Patience


def test_it_counts_from_the_first_failure() -> None:
    """A break ends a wait once it has lasted for the limit."""
    patience = Patience(10.0)
    patience.failed(100.0)
    patience.failed(105.0)
    assert not patience.is_over(0.0, 109.9)
    assert patience.is_over(0.0, 110.0)


def test_a_late_comer_has_its_own() -> None:
    """Who began to wait during a break puts up with it as long as everybody else."""
    patience = Patience(10.0)
    patience.failed(100.0)
    assert not patience.is_over(105.0, 114.9)
    assert patience.is_over(105.0, 115.0)


def test_success_ends_the_break() -> None:
    """After an answer the next break is a new one."""
    patience = Patience(10.0)
    patience.failed(100.0)
    patience.worked()
    patience.failed(200.0)
    assert not patience.is_over(0.0, 209.9)
    assert patience.is_over(0.0, 210.0)


def test_no_patience() -> None:
    """With a limit of 0 the first failure is the end."""
    patience = Patience(0.0)
    patience.failed(100.0)
    assert patience.is_over(50.0, 100.0)


def test_pauses_grow_and_stay_bounded() -> None:
    """Tries become rarer, never rarer than once a second, and quick again after an answer."""
    patience = Patience(10.0)
    assert patience.failed(0.0) <= 0.01
    assert all(patience.failed(0.0) <= 1.0 for _ in range(50))
    assert any(patience.failed(0.0) > 0.01 for _ in itertools.repeat(None, 50))
    patience.worked()
    assert patience.failed(0.0) <= 0.01
