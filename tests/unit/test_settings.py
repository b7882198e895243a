"""Settings come from the constructor, the environment and defaults, and wrong ones are named."""

import subprocess
import sys
from typing import Any

import pytest

from inferq.contract.errors import InvalidSetting
from inferq.settings import ConnectionSettings, ProducerSettings

NAMES = ("INFERQ_REDIS_URL", "REDIS_URL", "INFERQ_PREFIX", "INFERQ_POLL_S", "INFERQ_MAP_WINDOW")


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)


def test_defaults() -> None:
    """Without a word from anybody the contract's defaults hold."""
    settings = ProducerSettings()
    assert settings.redis_url == "redis://localhost:6379/0"
    assert settings.prefix == "inferq"
    assert settings.queue_limit == 1_000_000
    assert settings.pending_ttl_s == 86_400
    assert settings.poll_s == 1.0
    assert settings.metadata_ttl_s == 60.0


@pytest.mark.parametrize(
    ("environment", "url"),
    [
        ({"INFERQ_REDIS_URL": "redis://a"}, "redis://a"),
        ({"REDIS_URL": "redis://b"}, "redis://b"),
        ({"INFERQ_REDIS_URL": "redis://a", "REDIS_URL": "redis://b"}, "redis://a"),
        ({"INFERQ_REDIS_URL": "embedded"}, "embedded"),
    ],
)
def test_where_the_address_comes_from(
    environment: dict[str, str], url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INFERQ_REDIS_URL comes before REDIS_URL, and the constructor before both."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert ConnectionSettings().redis_url == url
    assert ConnectionSettings(redis_url="redis://c").redis_url == "redis://c"


def test_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each field is INFERQ_ and its name, durations with units."""
    monkeypatch.setenv("INFERQ_PREFIX", "team:a")
    monkeypatch.setenv("INFERQ_POLL_S", "250ms")
    monkeypatch.setenv("INFERQ_MAP_WINDOW", "8")
    settings = ProducerSettings()
    assert (settings.prefix, settings.poll_s, settings.map_window) == ("team:a", 0.25, 8)
    assert ProducerSettings(poll_s=2).poll_s == 2.0


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"prefix": "{x}"}, "prefix: prefix .*expected 1 to 64 letters"),
        ({"prefix": ""}, "prefix: prefix .*expected 1 to 64 letters"),
        ({"prefix": 5}, "prefix: input should be a valid string"),
        ({"redis_url": "localhost"}, "expected redis://HOST:PORT/DB"),
        ({"redis_url": ""}, "expected redis://HOST:PORT/DB"),
        ({"queue_limit": 0}, "queue_limit: input should be greater than or equal to 1"),
        ({"queue_limit": "many"}, "queue_limit: input should be a valid integer"),
        ({"poll_s": "soon"}, "poll_s: 'soon' is not a duration"),
        ({"poll_s": "1ms"}, "poll_s: input should be greater than or equal to 0.05"),
        ({"pending_ttl_s": "1h"}, "pending_ttl_s: input should be greater than or equal to 86400"),
        ({"patience_s": "-1"}, "patience_s: .*is not a duration"),
        ({"map_window": 0}, "map_window: input should be greater than or equal to 1"),
    ],
)
def test_wrong_values(values: dict[str, Any], words: str) -> None:
    """A wrong value is refused in a sentence that names the setting and what was expected."""
    with pytest.raises(InvalidSetting, match=f"^setting .*{words}"):
        ProducerSettings(**values)


def test_a_wrong_value_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong variable is refused like a wrong argument."""
    monkeypatch.setenv("INFERQ_POLL_S", "x")
    with pytest.raises(InvalidSetting, match=r"^setting .*poll_s: 'x' is not a"):
        ProducerSettings()


@pytest.mark.parametrize(
    "url", ["redis://user:s3cret@h:1", "redis://user:s3cret@h:x", "redis://user:s3/cret@h"]
)
def test_passwords_stay_out_of_sight(url: str) -> None:
    """No representation of settings, nor an error about them, holds the password."""
    try:
        texts = [repr(settings := ProducerSettings(redis_url=url)), str(settings)]
    except InvalidSetting as error:
        texts = [str(error), repr(error)]
    assert not any("s3" in text or "cret" in text for text in texts)


def test_settings_do_not_change() -> None:
    """Settings that were checked once stay as they are."""
    with pytest.raises(ValueError, match="frozen"):
        ProducerSettings().poll_s = 2.0


def test_importing_reads_no_environment() -> None:
    """A wrong variable hurts who makes settings, not who imports."""
    program = "import inferq.settings"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"INFERQ_PREFIX": "{", "REDIS_URL": "junk"},
        check=False,
        capture_output=True,
    )
    assert (done.returncode, done.stderr) == (0, b"")
