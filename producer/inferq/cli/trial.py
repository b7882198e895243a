"""The demo's load: a real worker of two processes, each held-out image a request, each reply checked.

Throughput and latency are the client's: from handing an image to the producer to having its
label, with a fixed number of requests under way.
"""

import contextlib
import os
import secrets
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

import numpy as np
from numpy.typing import NDArray

from inferq.contract.errors import InferqError, NotFound
from inferq.contract.keys import Keys, models_key
from inferq.endpoint import open_endpoint
from inferq.info import InfoReader, batch_size_bucket
from inferq.producer import Handle, Producer
from inferq.redis_link import Link, command
from inferq.settings import ProducerSettings
from inferq_worker.demo.digits import Digits
from inferq_worker.demo.heldout import held_out

WORKERS: Final = 2
"""Processes of the worker."""
OUTSTANDING: Final = 256
"""Requests under way at any time."""

_MODEL: Final = "digits"
_TARGET: Final = "inferq_worker.demo.digits:Digits"
_START_S: Final = 60.0
_STOP_S: Final = 10.0
_LOOK_EACH_S: Final = 0.05
_PATIENCE_S: Final = 10.0
# The shortest that the contract allows: nobody will ask again.
_REPLY_TTL_S: Final = 60
# Ends workers whose demo was killed.
_MAX_IDLE: Final = "30s"


@dataclass(frozen=True)
class Images:
    """Held-out images: ``pixels`` FP32 ``[N, 64]``, and two labels ``[N]`` for each.

    ``expected`` is what the model says when it is called directly, ``truth`` what it should say.
    """

    pixels: NDArray[np.float32]
    expected: NDArray[np.int64]
    truth: NDArray[np.int64]

    @staticmethod
    def load() -> "Images":
        """Read the images, and ask the model itself."""
        pixels, truth = held_out()
        model = Digits()
        model.load()
        return Images(pixels, model.predict(pixels)["label"], truth)


@dataclass
class Tally:
    """What came back of a load.

    Attributes:
        requests: how many were sent.
        answered: how many got a label; the others are lost.
        wrong: labels that are not the model's own for that image.
        right: labels that are true.
        latencies_ms: of each answered request.
        batch_sizes: answered requests by how many shared their model call.
        elapsed_s: from the first request to the last reply.
        failure: the first error in place of a label.
    """

    requests: int = 0
    answered: int = 0
    wrong: int = 0
    right: int = 0
    latencies_ms: list[float] = field(default_factory=list)
    batch_sizes: Counter[int] = field(default_factory=Counter)
    elapsed_s: float = 0.0
    failure: InferqError | None = None


@dataclass(frozen=True)
class Report:
    """One load in figures.

    Attributes:
        requests, answered, wrong: see :class:`Tally`.
        accuracy: share of the answered requests whose label is true.
        throughput_rps: answered requests per second.
        p50_ms, p99_ms: latency with :data:`OUTSTANDING` requests under way.
        mean_batch, largest_batch: requests in a model call.
        batch_size: model calls by the requests in them; see :class:`inferq.info.ModelInfo`.
        failure: the first error in place of a label.
    """

    requests: int
    answered: int
    wrong: int
    accuracy: float
    throughput_rps: float
    p50_ms: float
    p99_ms: float
    mean_batch: float
    largest_batch: int
    batch_size: dict[str, int]
    failure: InferqError | None

    @property
    def lost(self) -> int:
        """Requests without a label."""
        return self.requests - self.answered


def run(
    url: str,
    images: Images,
    max_batch_size: int,
    seconds: float,
    progress: Callable[[float], object],
) -> Report:
    """Put the load on a worker of its own and report.

    Args:
        url: the server's address; the keys are under a prefix that nobody else uses.
        images: what to send, over and over, always all of them.
        max_batch_size: the worker's limit.
        seconds: for how long, at least; whatever that is, all images are sent once.
        progress: called now and then with the share of ``seconds`` that is over.

    Raises:
        Unavailable: Redis is away.
        InferqError: the workers do not start.
    """
    prefix = f"demo-{secrets.token_hex(6)}"
    with open_endpoint(url) as endpoint:
        link = Link(endpoint)
        reader = InfoReader(link, prefix)
        try:
            with (
                _workers(url, prefix, max_batch_size, reader),
                Producer(url, settings=ProducerSettings(prefix=prefix)) as producer,
            ):
                tally = _send(producer, images, seconds, progress)
        finally:
            _clean(link, Keys(prefix, _MODEL))
            link.close()
    return _report(tally)


def _report(tally: Tally) -> Report:
    # Each model call is told of once by every request in it.
    calls = {size: count / size for size, count in tally.batch_sizes.items()}
    batch_size: Counter[str] = Counter()
    for size, count in calls.items():
        batch_size[batch_size_bucket(size)] += round(count)
    latencies_ms = tally.latencies_ms or [0.0]
    return Report(
        requests=tally.requests,
        answered=tally.answered,
        wrong=tally.wrong,
        accuracy=tally.right / max(1, tally.answered),
        throughput_rps=tally.answered / tally.elapsed_s,
        p50_ms=float(np.percentile(latencies_ms, 50)),
        p99_ms=float(np.percentile(latencies_ms, 99)),
        mean_batch=tally.answered / max(1, sum(calls.values())),
        largest_batch=max(calls, default=0),
        batch_size=dict(batch_size),
        failure=tally.failure,
    )


def _send(
    producer: Producer, images: Images, seconds: float, progress: Callable[[float], object]
) -> Tally:
    """Keep requests under way until the time is over, and look at each reply."""
    tally = Tally()
    started_s = time.perf_counter()
    source = _passes(len(images.pixels), started_s + seconds)
    window: deque[tuple[Handle, int, float]] = deque()
    patience_s = _PATIENCE_S
    while True:
        # Refilled by halves: many requests to a round trip, and the workers never run dry.
        if len(window) <= OUTSTANDING // 2:
            progress((time.perf_counter() - started_s) / seconds)
            portion = list(islice(source, OUTSTANDING - len(window)))
            sent_s = time.perf_counter()
            inputs = [{"pixels": images.pixels[index]} for index in portion]
            handles = producer.submit_many(_MODEL, inputs, reply_ttl=_REPLY_TTL_S)
            window += [(*pair, sent_s) for pair in zip(handles, portion, strict=True)]
            tally.requests += len(portion)
        if not window:
            break
        handle, index, sent_s = window.popleft()
        try:
            reply = handle.result(timeout=patience_s)
        except InferqError as error:
            tally.failure = tally.failure or error
            # Where one reply is lost, the rest need not be waited for one by one.
            patience_s = _LOOK_EACH_S
            source = iter(())
            continue
        label = int(reply["label"])
        tally.latencies_ms.append((time.perf_counter() - sent_s) * 1000)
        tally.answered += 1
        tally.wrong += label != int(images.expected[index])
        tally.right += label == int(images.truth[index])
        tally.batch_sizes[reply.parameters["batch_size"]] += 1
    tally.elapsed_s = time.perf_counter() - started_s
    return tally


def _passes(count: int, until_s: float) -> Iterator[int]:
    """Yield the places of all images, over and over; whole passes, so that all count alike."""
    while True:
        yield from range(count)
        if time.perf_counter() >= until_s:
            return


@contextlib.contextmanager
def _workers(url: str, prefix: str, max_batch_size: int, reader: InfoReader) -> Iterator[None]:
    """Start a worker, and yield once all of its processes serve."""
    command_line = (
        sys.executable, "-m", "inferq", "worker", _TARGET, "--log-level", "warning",
        "--processes", str(WORKERS), "--max-batch-size", str(max_batch_size),
        "--max-idle", _MAX_IDLE,
    )  # fmt: skip
    # Not as flags: other users of the machine can read those.
    environment = {**os.environ, "INFERQ_REDIS_URL": url, "INFERQ_PREFIX": prefix}
    # In a session of its own: Ctrl-C is for the demo, which stops it in order.
    process = subprocess.Popen(  # noqa: S603 - this very program
        command_line, stdin=subprocess.DEVNULL, env=environment, start_new_session=True
    )
    try:
        _await_workers(process, reader)
        yield
    finally:
        process.terminate()
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _await_workers(process: "subprocess.Popen[bytes]", reader: InfoReader) -> None:
    give_up_s = time.monotonic() + _START_S
    while True:
        with contextlib.suppress(NotFound):
            if len(reader.read(_MODEL).workers) == WORKERS:
                return
        code = process.poll()
        if code is not None:
            raise InferqError(f"the demo's worker ended with code {code} before it served")
        if time.monotonic() >= give_up_s:
            raise InferqError(f"the demo's worker does not serve after {_START_S:g} s")
        time.sleep(_LOOK_EACH_S)


def _clean(link: Link, keys: Keys) -> None:
    """Delete what would stay for ever; the replies expire within a minute."""
    forever = (models_key(keys.prefix), keys.description, keys.metrics)
    with contextlib.suppress(InferqError):
        link.run(*(command("UNLINK", key) for key in forever))
