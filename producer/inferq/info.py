"""What a queue looks like now: depths, workers, counters, and what they say of latency.

:func:`summarise` is the pure half: a :class:`Snapshot` of raw answers in, a :class:`ModelInfo` out.
:class:`InfoReader` takes the snapshot. Nothing here writes.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from inferq.calls import unknown_model
from inferq.contract.counters import (
    BATCH_EDGES,
    LATENCY_EDGES_S,
    SUCCEEDED,
    bucket_fields,
    outcome_field,
)
from inferq.contract.errors import (
    Cancelled,
    Crashed,
    Expired,
    InferqError,
    InvalidRequest,
    ModelError,
    ServerUnfit,
    TooLarge,
)
from inferq.contract.keys import Keys, check_model, models_key
from inferq.redis_link import Command, Link, command

PLACES: Final = ("high", "normal", "low", "returned", "suspects", "dead")
"""The lists whose lengths make up a model's depth."""

_REQUESTS: Final = outcome_field("")
# What a reply in Redis can hold: shown also while nothing of it has happened.
_OUTCOMES: Final = (
    SUCCEEDED,
    *(
        outcome_field(str(error.code))
        for error in (InvalidRequest, TooLarge, ModelError, Crashed, Expired, Cancelled)
    ),
)


@dataclass(frozen=True)
class Snapshot:
    """What Redis holds about one model, at about one moment.

    Attributes:
        lengths: of each of :data:`PLACES`.
        claims: owner and length of each claimed list.
        leases: worker -> end of its lease in ms of Redis time.
        now_ms: Redis time.
        about: worker -> what it tells about itself.
        counters: the model's metrics.
    """

    lengths: Mapping[str, int]
    claims: Sequence[tuple[str, int]] = ()
    leases: Mapping[str, float] = field(default_factory=dict)
    now_ms: float = 0
    about: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    counters: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class WorkerInfo:
    """One worker of a model.

    Attributes:
        id: its id.
        state: ``busy`` while it holds requests; ``lost`` once its lease has ended, until another
            worker recovers what it held; else what it says itself, ``idle`` or ``draining``.
        in_flight: requests it holds.
        lease_s: seconds its lease still lasts; negative if it is lost.
        host, pid, version: where it runs and what; ``None`` if that has expired.
    """

    id: str
    state: str
    in_flight: int
    lease_s: float
    host: str | None
    pid: int | None
    version: str | None


@dataclass(frozen=True)
class Quantiles:
    """Three quantiles of a duration in ms; ``None`` where nothing was observed."""

    p50: float | None
    p95: float | None
    p99: float | None


@dataclass(frozen=True)
class ModelInfo:
    """One model: its queue now, and what its workers have counted since the counters exist.

    Attributes:
        model: its name.
        depth: length of each of :data:`PLACES`. ``normal`` may be one too high: a wake-up token
            on that lane is an element like any other.
        in_flight: requests that workers hold.
        workers: its workers, by id.
        requests: requests by outcome: ``succeeded``, or the code of an error.
        batches, rows: model calls, and rows in them.
        batch_size: model calls by the requests in them; each bucket is named by its upper edge.
        queue_ms: from submission to the start of the model, of requests that say when that was.
        compute_ms: the model call a request was in.
        total_ms: from submission to the reply.
    """

    model: str
    depth: dict[str, int]
    in_flight: int
    workers: list[WorkerInfo]
    requests: dict[str, int]
    batches: int
    rows: int
    batch_size: dict[str, int]
    queue_ms: Quantiles
    compute_ms: Quantiles
    total_ms: Quantiles

    @property
    def waiting(self) -> int:
        """Requests that no worker holds and that will run."""
        return sum(self.depth.values()) - self.depth["dead"]

    def to_json(self) -> dict[str, Any]:
        """Return it as an object that JSON can hold, under the names of the attributes."""
        return asdict(self)


def summarise(model: str, seen: Snapshot) -> ModelInfo:
    """Make sense of a snapshot."""
    held: Counter[str] = Counter()
    for owner, length in seen.claims:
        held[owner] += length
    counters = seen.counters
    outcomes = dict.fromkeys(_OUTCOMES, 0) | {
        name: count for name, count in counters.items() if name.startswith(_REQUESTS)
    }
    buckets = bucket_fields("batch_size")
    return ModelInfo(
        model=model,
        depth={place: seen.lengths[place] for place in PLACES},
        in_flight=held.total(),
        workers=[_worker(worker, seen, held[worker]) for worker in sorted(seen.leases)],
        requests={name.removeprefix(_REQUESTS): count for name, count in outcomes.items()},
        batches=counters.get("batches", 0),
        rows=counters.get("rows", 0),
        batch_size={name.removeprefix("batch_size_le_"): counters.get(name, 0) for name in buckets},
        queue_ms=_quantiles_ms("queue", counters),
        compute_ms=_quantiles_ms("compute", counters),
        total_ms=_quantiles_ms("total", counters),
    )


def _worker(worker: str, seen: Snapshot, held: int) -> WorkerInfo:
    about = seen.about.get(worker, {})
    lease_s = round((seen.leases[worker] - seen.now_ms) / 1000, 3)
    state = "lost" if lease_s <= 0 else "busy" if held else about.get("state", "idle")
    pid = about.get("pid", "")
    return WorkerInfo(
        id=worker,
        state=state,
        in_flight=held,
        lease_s=lease_s,
        host=about.get("host"),
        pid=int(pid) if pid.isdecimal() else None,
        version=about.get("version"),
    )


def _quantiles_ms(histogram: str, counters: Mapping[str, int]) -> Quantiles:
    counts = [counters.get(name, 0) for name in bucket_fields(histogram)]
    found = [quantile(LATENCY_EDGES_S, counts, share) for share in (0.50, 0.95, 0.99)]
    return Quantiles(*(None if each is None else round(each * 1000, 3) for each in found))


def quantile(edges: Sequence[float], counts: Sequence[int], share: float) -> float | None:
    """Estimate the value that a share of all observations stay under; ``None`` without any.

    The observations of a bucket are taken to lie evenly between its edges, the first bucket
    beginning at 0. Of those in the open last bucket only the edge before it is known, which is
    returned: the true value is higher.

    Args:
        edges: upper edge of each bucket but the last.
        counts: observations in each bucket, not cumulated; one more than edges.
        share: between 0 and 1.
    """
    rank = share * sum(counts)
    if not rank:
        return None
    below = 0
    lower = 0.0
    for edge, count in zip(edges, counts, strict=False):
        if count and below + count >= rank:
            return lower + (edge - lower) * (rank - below) / count
        below += count
        lower = edge
    return lower


def batch_size_ranges() -> list[tuple[str, str]]:
    """Return each bucket of the batch sizes: its name in :class:`ModelInfo`, and its range."""
    ranges = []
    lower = 1
    for edge in BATCH_EDGES:
        ranges.append((str(edge), str(edge) if lower == edge else f"{lower}-{edge}"))
        lower = edge + 1
    return [*ranges, ("inf", f"{lower}+")]


def batch_size_bucket(size: int) -> str:
    """Return the name that :class:`ModelInfo` gives to the bucket of a batch size."""
    return next((str(edge) for edge in BATCH_EDGES if size <= edge), "inf")


class InfoReader:
    """Reads what there is to know about the models under one prefix."""

    def __init__(self, link: Link, prefix: str) -> None:
        self._link = link
        self._prefix = prefix

    def models(self) -> list[str]:
        """Return the names of all models that workers have published.

        Raises:
            Unavailable: Redis is away.
            ServerUnfit: the key is not inferq's.
        """
        (names,) = self._ask([command("SMEMBERS", models_key(self._prefix))])
        return sorted(name for name in map(_text, names) if _is_name(name))

    def read(self, model: str) -> ModelInfo:
        """Look at one model.

        Raises:
            NotFound: no worker has ever published it, and nothing waits for it.
            Unavailable: Redis is away.
            ServerUnfit: a key of the model is not inferq's; the message names it.
            InvalidRequest: no model may be called that.
        """
        keys = Keys(self._prefix, check_model(model))
        seen, is_published = self._look(keys)
        if not is_published and not any(seen.lengths.values()):
            raise unknown_model(model, self.models())
        return summarise(model, seen)

    def _look(self, keys: Keys) -> tuple[Snapshot, bool]:
        lists = [keys.lane(place) for place in ("high", "normal", "low")]
        lists += [keys.returned, keys.suspects, keys.dead]
        *lengths, claims, leases, time, counters, is_published = self._ask(
            [
                *(command("LLEN", key) for key in lists),
                command("HGETALL", keys.claims),
                command("ZRANGE", keys.workers, 0, -1, "WITHSCORES"),
                command("TIME"),
                command("HGETALL", keys.metrics),
                command("EXISTS", keys.description),
            ]
        )
        ends = {worker: float(end) for worker, end in _pairs(leases).items()}
        owners = {name: owner.partition(" ")[0] for name, owner in _pairs(claims).items()}
        found = self._ask(
            [
                *(command("LLEN", name) for name in owners),
                *(command("HGETALL", keys.worker(worker)) for worker in ends),
            ]
        )
        snapshot = Snapshot(
            lengths=dict(zip(PLACES, lengths, strict=True)),
            claims=list(zip(owners.values(), found, strict=False)),
            leases=ends,
            now_ms=int(time[0]) * 1000 + int(time[1]) // 1000,
            about=dict(zip(ends, map(_pairs, found[len(owners) :]), strict=True)),
            counters={name: int(count) for name, count in _pairs(counters).items()},
        )
        return snapshot, bool(is_published)

    def _ask(self, flight: Sequence[Command]) -> list[Any]:
        answers = self._link.once(flight) if flight else []
        for sent, answer in zip(flight, answers, strict=True):
            if isinstance(answer, ServerUnfit) and len(sent.words) > 1:
                raise ServerUnfit(f"key {sent.words[1]!r}: {answer}")
            if isinstance(answer, InferqError):
                raise answer
        return answers


def _text(raw: bytes) -> str:
    return raw.decode(errors="replace")


def _pairs(flat: Sequence[bytes]) -> dict[str, str]:
    """Read an answer of name, value, name, value, ..."""
    texts = [_text(raw) for raw in flat]
    return dict(zip(texts[::2], texts[1::2], strict=True))


def _is_name(name: str) -> bool:
    try:
        check_model(name)
    except InvalidRequest:
        return False
    return True
