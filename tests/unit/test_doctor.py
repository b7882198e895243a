"""The doctor's judgement: facts in, findings with remedies out."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from inferq.doctor import Finding, ServerFacts, Weight, examine_model, examine_server
from inferq.info import PLACES, Snapshot, summarise

HEALTHY = {"redis_version": "7.2.4", "aof_enabled": "1", "used_memory": "1000"}


WELL = ServerFacts(info=HEALTHY, missing=(), idle_timeout_s=0, clock_s=0.0)


def server(facts: ServerFacts) -> list[Finding]:
    return list(examine_server(facts, "redis://here", block_s=5))


def test_healthy_server() -> None:
    """Of a server as it should be nothing but good is said, and no remedy given."""
    findings = server(WELL)
    assert {finding.weight for finding in findings} == {Weight.FINE}
    assert not any(finding.remedy for finding in findings)


@pytest.mark.parametrize(
    ("info", "facts", "subject", "words", "weight"),
    [
        ({"redis_version": "6.2.1"}, {}, "version", "too old", Weight.BAD),
        ({**HEALTHY, "maxmemory_policy": "allkeys-lru"}, {}, "eviction", "allkeys-lru", Weight.BAD),
        (
            {**HEALTHY, "maxmemory": "1000", "used_memory": "950"},
            {}, "memory", "95% of maxmemory", Weight.BAD,
        ),
        ({"redis_version": "7.0.0"}, {}, "persistence", "no append-only file", Weight.NOTE),
        (
            {**HEALTHY, "aof_last_write_status": "err"},
            {}, "persistence", "cannot be written", Weight.BAD,
        ),
        (
            {"redis_version": "7.0.0", "rdb_last_bgsave_status": "err"},
            {}, "persistence", "MISCONF", Weight.BAD,
        ),
        (HEALTHY, {"missing": ("BLMOVE",)}, "commands", "no BLMOVE", Weight.BAD),
        (HEALTHY, {"idle_timeout_s": 5}, "timeout", "after 5 s", Weight.BAD),
        (HEALTHY, {"idle_timeout_s": None}, "timeout", "does not tell", Weight.NOTE),
        (HEALTHY, {"clock_s": -600.0}, "clock", "-600.0 s", Weight.NOTE),
    ],
)  # fmt: skip
def test_ailments(
    info: Mapping[str, str], facts: dict[str, Any], subject: str, words: str, weight: Weight
) -> None:
    """Each ailment of a server is found, weighed, and comes with a remedy."""
    (finding,) = (
        each for each in server(replace(WELL, info=info, **facts)) if each.weight is not Weight.FINE
    )
    assert (finding.subject, finding.weight) == (subject, weight)
    assert words in finding.fact
    assert finding.remedy or subject == "timeout"


def model(
    lengths: Mapping[str, int] | None = None,
    leases: Mapping[str, float] | None = None,
    claims: Sequence[tuple[str, int]] = (),
) -> list[Finding]:
    every = dict.fromkeys(PLACES, 0) | dict(lengths or {})
    seen = Snapshot(lengths=every, now_ms=1_000, leases=leases or {}, claims=claims)
    return list(examine_model(summarise("m", seen)))


def test_healthy_model() -> None:
    """A model whose worker lives and holds requests is fine, however many wait."""
    findings = model(lengths={"normal": 9}, leases={"w": 5_000}, claims=[("w", 3)])
    assert [(each.weight, each.fact) for each in findings] == [
        (Weight.FINE, "9 waiting, 1 workers")
    ]


def test_stale_claims() -> None:
    """Requests of a worker whose lease has ended, or that is not even listed, are stale."""
    findings = model(leases={"w": 900, "v": 5_000}, claims=[("w", 3), ("v", 1), ("gone", 2)])
    assert findings[0].weight is Weight.BAD
    assert "5 requests are held" in findings[0].fact


def test_nobody_serves() -> None:
    """Requests that wait without a live worker are a finding that names the model."""
    findings = model(lengths={"low": 2})
    assert findings[0].weight is Weight.BAD
    assert "2 requests wait" in findings[0].fact
    assert "--model m" in findings[0].remedy


def test_dead_requests() -> None:
    """What was given up on is worth a note, with the command that lists it."""
    findings = model(lengths={"dead": 4})
    assert findings[0] == Finding(
        Weight.NOTE, "m", "4 requests were given up on", "inferq dead list m"
    )
