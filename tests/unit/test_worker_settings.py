"""What can be set from outside on the answering side."""

from typing import Any

import pytest

from inferq.contract.errors import InvalidSetting
from inferq_worker.settings import WorkerSettings


def test_defaults() -> None:
    """Without a word from outside the settings are those of the documentation."""
    settings = WorkerSettings()
    assert (settings.lease_s, settings.max_attempts, settings.drain_timeout_s) == (15, 4, 30)
    assert (settings.reply_ttl_s, settings.reply_ttl_max_s) == (600, 86_400)
    assert (settings.max_message_bytes, settings.claim_bytes) == (16 * 1024**2, 64 * 1024**2)
    assert (settings.dead_limit, settings.max_batch_size) == (1_000, None)


def test_block_is_a_third_of_the_lease() -> None:
    """An idle block never outlasts the lease that was renewed before it."""
    settings = WorkerSettings(lease_s=6)
    assert (settings.lease_ms, settings.block_s) == (6_000, 2)


def test_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings come from the environment with their units, and arguments go before it."""
    monkeypatch.setenv("INFERQ_LEASE_S", "500ms")
    monkeypatch.setenv("INFERQ_MAX_MESSAGE_BYTES", "1MiB")
    monkeypatch.setenv("INFERQ_MAX_BATCH_SIZE", "7")
    settings = WorkerSettings(max_batch_size=9)
    assert (settings.lease_s, settings.max_message_bytes) == (0.5, 1024**2)
    assert settings.max_batch_size == 9


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("lease_s", 0.2),
        ("max_attempts", 0),
        ("max_batch_size", 0),
        ("max_batch_size", 100_001),
        ("reply_ttl_s", 59),
        ("dead_limit", 0),
        ("max_message_bytes", "513MiB"),
        ("max_message_bytes", 0),
        ("claim_bytes", 0),
        ("drain_timeout_s", -1),
    ],
)
def test_values_that_must_not_be(setting: str, value: Any) -> None:
    """A value that cannot work is refused with the name of its setting."""
    with pytest.raises(InvalidSetting, match=f"setting .*{setting}"):
        WorkerSettings(**{setting: value})


def test_replies_that_would_live_too_long() -> None:
    """The usual life of a reply cannot be above the most a sender may ask for."""
    with pytest.raises(InvalidSetting, match="reply_ttl_s 100 is above reply_ttl_max_s 90"):
        WorkerSettings(reply_ttl_s=100, reply_ttl_max_s=90)
