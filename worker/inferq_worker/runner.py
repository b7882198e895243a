"""One batch through the model: group, pack, stack, predict, check, split.

Used by the worker and by :class:`inferq_worker.ModelServer` alike. It knows neither Redis nor
replies: requests in, one answer or error for each out. What the model does wrong (an exception,
other rows than asked for, an output that does not fit) is an error of the requests in that call;
a call of several is run again in halves, so that one bad request costs its neighbours nothing but
time.
"""

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from inferq.contract.description import ModelDescription
from inferq.contract.errors import InferqError, InvalidRequest, ModelError
from inferq.contract.layouts import Layout, LayoutMemo, TensorHead
from inferq.contract.requests import Request
from inferq.contract.tensors import Array, Buffer, coerce, dtype_of, item_size, pack, unpack
from inferq_worker.batching.packing import Segment, pack_rows, pack_segments
from inferq_worker.model import Model, first_line, takes_parameters

log = logging.getLogger(__name__)

_MOST_LAYOUTS = 512


class Answer(NamedTuple):
    """All outputs of one request: the layout and each tensor's raw bytes, in the model's order."""

    layout: Layout
    body: Sequence[Buffer]


class ModelCall(NamedTuple):
    """One call of ``predict``: how many requests and rows shared it, and how long it took."""

    requests: int
    rows: int
    compute_ns: int


class Outcome(NamedTuple):
    """What became of one request.

    ``call`` is the last model call it was in, if any, with the time of all its calls, also of
    those that failed.
    """

    result: Answer | InferqError
    call: ModelCall | None


class _Rows(NamedTuple):
    """The outputs of one segment: row shapes, and raw bytes, in the model's order."""

    rows: int
    shapes: tuple[tuple[int, ...], ...]
    raw: list[Buffer]


class Runner:
    """Runs batches of checked requests through one loaded model."""

    def __init__(self, model: Model, description: ModelDescription) -> None:
        self._model = model
        self._outputs = description.outputs
        self._max_rows = description.max_batch_size
        self._takes_parameters = takes_parameters(model)
        self._layouts = LayoutMemo()
        self._known: dict[object, Layout] = {}
        self._dtypes = [dtype_of(spec.datatype) for spec in description.outputs]

    def run(self, requests: Sequence[Request]) -> tuple[list[Outcome], list[ModelCall]]:
        """Answer each request, in order, and report the model calls that took.

        The requests have passed :meth:`ModelDescription.check`.
        """
        batch = _Batch(requests)
        for places in self._groups(requests):
            rows = [(place, requests[place].layout.rows) for place in places]
            self._run_all(batch, pack_rows(rows, self._max_rows))
        outcomes = [
            Outcome(self._joined(batch.parts[place]) if error is None else error, call)
            for place, (error, call) in enumerate(zip(batch.errors, batch.calls, strict=True))
        ]
        return outcomes, batch.all_calls

    def _groups(self, requests: Sequence[Request]) -> list[list[int]]:
        """Sort the places of requests by what lets them share a call, in order of arrival."""
        if not self._takes_parameters and len({request.layout for request in requests}) <= 1:
            return [list(range(len(requests)))]
        groups: dict[object, list[int]] = {}
        for place, request in enumerate(requests):
            key: object = request.layout.signature
            if self._takes_parameters:
                # repr tells 1 from True and 1.0, which are equal as keys but not to a model.
                key = (key, repr(sorted(request.parameters.for_model().items())))
            groups.setdefault(key, []).append(place)
        return list(groups.values())

    def _call(self, batch: "_Batch", segments: list[Segment]) -> bool:
        """Run one call; cut it smaller when it fails, down to the request at fault.

        Returns whether it went through as a whole.
        """
        rows = sum(segment.rows for segment in segments)
        result, elapsed_ns = self._attempt(batch, segments)
        call = ModelCall(len(segments), rows, elapsed_ns)
        batch.all_calls.append(call)
        for segment in segments:
            batch.note(segment.place, call)
        if not isinstance(result, ModelError):
            for segment, share in zip(segments, result, strict=True):
                batch.parts[segment.place].append(share)
            return True
        if rows > 1 and is_out_of_memory(result.__cause__):
            # Believed only once all of it goes through in smaller calls: a row that fails alone,
            # whatever it says, tells nothing about the size of a batch.
            if self._run_all(batch, pack_segments(segments, rows // 2)):
                self._shrink(rows // 2)
        elif len(segments) == 1:
            batch.errors[segments[0].place] = result
        else:
            half = len(segments) // 2
            self._run_all(batch, [segments[:half], segments[half:]])
        return False

    def _run_all(self, batch: "_Batch", calls: list[list[Segment]]) -> bool:
        """Run calls in order; one packed before the cap was lowered is packed again.

        Returns whether each went through as a whole.
        """
        went_through = True
        for segments in calls:
            if sum(segment.rows for segment in segments) <= self._max_rows:
                went_through &= self._call(batch, segments)
            else:
                went_through = False
                self._run_all(batch, pack_segments(segments, self._max_rows))
        return went_through

    def _shrink(self, max_rows: int) -> None:
        """Remember what the memory does not hold: later batches are cut to what it does."""
        self._max_rows = min(self._max_rows, max_rows)
        log.warning("out of memory: batches are cut to %d rows from now on", self._max_rows)

    def _attempt(
        self, batch: "_Batch", segments: list[Segment]
    ) -> tuple[list[_Rows] | ModelError, int]:
        """Return the segments' shares of one call or what went wrong, and the model's time in ns."""
        elapsed_ns = 0
        started_ns = time.perf_counter_ns()
        try:
            try:
                returned = self._predict(batch, segments)
            finally:
                elapsed_ns = time.perf_counter_ns() - started_ns
            # What comes back is the model's too: looking at it may raise as well.
            return self._split(returned, segments), elapsed_ns
        except ModelError as error:
            return error, elapsed_ns
        except KeyboardInterrupt:
            raise
        except BaseException as raised:  # noqa: BLE001 - exit(), or a panic in compiled code
            wrapped = ModelError(f"the model raised {first_line(raised)}")
            wrapped.__cause__ = raised
            return wrapped, elapsed_ns

    def _predict(self, batch: "_Batch", segments: list[Segment]) -> Any:
        keywords: dict[str, Any] = stack(batch.requests, segments, batch.unpacked)
        if self._takes_parameters:
            keywords["parameters"] = batch.requests[segments[0].place].parameters.for_model()
        return self._model.predict(**keywords)

    def _split(self, returned: Any, segments: list[Segment]) -> list[_Rows]:
        """Check what the model returned and cut it into the segments' shares."""
        rows = sum(segment.rows for segment in segments)
        arrays = self._checked(returned, rows)
        shapes = tuple(array.shape[1:] for array in arrays)
        columns = [
            _cut(array, spec.datatype, segments)
            for array, spec in zip(arrays, self._outputs, strict=True)
        ]
        return [
            _Rows(segment.rows, shapes, list(raw))
            for segment, raw in zip(segments, zip(*columns, strict=True), strict=True)
        ]

    def _checked(self, returned: Any, rows: int) -> list[Array]:
        """Return the outputs in order, each with the promised datatype, rows and shape."""
        if not isinstance(returned, Mapping):
            if len(self._outputs) != 1:
                raise ModelError(
                    f"the model returned {type(returned).__name__}: expected a mapping of "
                    + ", ".join(f"'{spec.name}'" for spec in self._outputs)
                )
            returned = {self._outputs[0].name: returned}
        arrays = []
        for spec, dtype in zip(self._outputs, self._dtypes, strict=True):
            if spec.name not in returned:
                raise ModelError(f"the model returned no output '{spec.name}'")
            array = returned[spec.name]
            if type(array) is not np.ndarray or array.dtype != dtype or spec.datatype == "BYTES":
                try:
                    array = coerce(array, spec.datatype)
                except InvalidRequest as error:
                    raise ModelError(f"output '{spec.name}': {error}") from None
            if spec.datatype == "BOOL" and array.size and array.view(np.uint8).max() > 1:
                raise ModelError(
                    f"output '{spec.name}': the model returned BOOL that is not 0 or 1"
                )
            if not array.ndim or len(array) != rows:
                got = f"{len(array)} rows" if array.ndim else "a scalar"
                raise ModelError(
                    f"output '{spec.name}': the model returned {got} for a batch of {rows}"
                )
            if not spec.admits(array.shape[1:]):
                raise ModelError(
                    f"output '{spec.name}': the model returned rows of shape "
                    f"{list(array.shape[1:])}, promised {list(spec.shape)}"
                )
            arrays.append(array)
        return arrays

    def _joined(self, parts: list[_Rows]) -> Answer | InferqError:
        """Put the shares of one request back together, in order."""
        if not parts:
            shapes = tuple(tuple(max(extent, 0) for extent in spec.shape) for spec in self._outputs)
            return self._answer(0, shapes, [b""] * len(self._outputs))
        if len(parts) == 1:
            return self._answer(*parts[0])
        if len({part.shapes for part in parts}) > 1:
            return ModelError("the model returned rows of different shapes for one request")
        raw = [b"".join(pieces) for pieces in zip(*(part.raw for part in parts), strict=True)]
        return self._answer(sum(part.rows for part in parts), parts[0].shapes, raw)

    def _answer(
        self, rows: int, shapes: tuple[tuple[int, ...], ...], raw: Sequence[Buffer]
    ) -> Answer:
        # Most requests of a busy queue have one row, and all of them the same layout.
        key = (rows, shapes, tuple(map(len, raw)))
        layout = self._known.get(key)
        if layout is None:
            if len(self._known) >= _MOST_LAYOUTS:
                self._known.clear()
            layout = self._known[key] = self._layouts.layout(
                [
                    TensorHead(spec.name, spec.datatype, (rows, *shape), len(piece))
                    for spec, shape, piece in zip(self._outputs, shapes, raw, strict=True)
                ]
            )
        return Answer(layout, raw)


class _Batch:
    """What is known of a batch while its calls run, by place of the request."""

    def __init__(self, requests: Sequence[Request]) -> None:
        self.requests = requests
        # BYTES tensors of requests that are cut, taken apart once and not for every call.
        self.unpacked: dict[tuple[int, str], Array] = {}
        self.parts: list[list[_Rows]] = [[] for _ in requests]
        self.errors: list[InferqError | None] = [None] * len(requests)
        self.calls: list[ModelCall | None] = [None] * len(requests)
        self.all_calls: list[ModelCall] = []

    def note(self, place: int, call: ModelCall) -> None:
        """Charge a call to a request; one whose rows took several has waited for all of them."""
        before = self.calls[place]
        if before is not None:
            call = call._replace(compute_ns=call.compute_ns + before.compute_ns)
        self.calls[place] = call


def is_out_of_memory(error: BaseException | None) -> bool:
    """Tell whether a model failed for want of memory, its host's or its device's.

    Libraries have no class in common for it: Python's own, classes of that name (PyTorch, CuPy),
    and others that only say so.
    """
    if error is None:
        return False
    names = {kind.__name__ for kind in type(error).__mro__}
    if names & {"MemoryError", "OutOfMemoryError"}:
        return True
    # Only of the class that device libraries raise: the text of others may quote a request.
    return type(error) is RuntimeError and "out of memory" in str(error).lower()


def stack(
    requests: Sequence[Request],
    segments: Sequence[Segment],
    unpacked: dict[tuple[int, str], Array] | None = None,
) -> dict[str, Array]:
    """Build the inputs of one call: each tensor of all segments, rows one below the other.

    The arrays own their memory. All requests have the signature of the first. ``unpacked`` keeps,
    from one call of a batch to the next, tensors that can only be cut once they are taken apart.
    """
    known = {} if unpacked is None else unpacked
    first = requests[segments[0].place].layout
    rows = sum(segment.rows for segment in segments)
    inputs = {}
    for index, head in enumerate(first.heads):
        pieces = [
            _piece(requests[segment.place], segment, (head.name, index), known)
            for segment in segments
        ]
        # A bytearray, because an array on bytes would be read-only and the model may write.
        raw = bytearray().join(pieces)
        inputs[head.name] = unpack(head.datatype, (rows, *head.shape[1:]), raw)
    return inputs


def _piece(
    request: Request,
    segment: Segment,
    tensor: tuple[str, int],
    unpacked: dict[tuple[int, str], Array],
) -> Buffer:
    """Return the raw bytes of one segment's rows of a tensor, given by name and likely place."""
    layout = request.layout
    name, index = tensor
    if layout.heads[index].name != name:
        # Senders may list the tensors of one signature in different orders.
        index = next(place for place, head in enumerate(layout.heads) if head.name == name)
    start, end = layout.spans[index]
    raw = request.body if len(layout.heads) == 1 else request.body[start:end]
    if segment.rows == layout.rows:
        return raw
    head = layout.heads[index]
    if item_size(head.datatype) is None:
        array = unpacked.get((segment.place, name))
        if array is None:
            array = unpacked[segment.place, name] = unpack(head.datatype, head.shape, raw)
        return pack(array[segment.start : segment.stop], head.datatype)
    row_size = len(raw) // layout.rows
    return raw[segment.start * row_size : segment.stop * row_size]


def _cut(array: Array, datatype: str, segments: Sequence[Segment]) -> list[Buffer]:
    """Cut one output of a call into the raw bytes of each segment."""
    pieces: list[Buffer] = []
    start = 0
    if datatype == "BYTES":
        for segment in segments:
            pieces.append(pack(array[start : start + segment.rows], datatype))
            start += segment.rows
        return pieces
    raw = pack(array, datatype)
    row_size = len(raw) // len(array)
    for segment in segments:
        end = start + segment.rows * row_size
        pieces.append(raw[start:end])
        start = end
    return pieces
