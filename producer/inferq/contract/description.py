"""What a model promises: its tensors and limits, published by its workers, checked by everyone.

The same object checks a request before it is sent, checks it again when a worker claims it, and
binds what a caller hands in (arrays, lists, one row or many) to the model's tensors.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from inferq.contract.errors import InvalidRequest, InvalidSetting
from inferq.contract.layouts import Layout
from inferq.contract.oip import describe
from inferq.contract.requests import Wanted
from inferq.contract.tensors import Array, TensorSpec, coerce, naming_tensor

PLATFORM = "inferq_python"
MAX_EMPTY_ROWS = 1_024
"""Rows of one request whose tensors are all of size zero."""


class Bound(NamedTuple):
    """A caller's inputs as (name, datatype, array with batch dimension), in the model's order.

    ``single`` tells that they came without a batch dimension; then ``rows`` is 1.
    """

    tensors: list[tuple[str, str, Array]]
    rows: int
    single: bool


@dataclass(frozen=True)
class ModelDescription:
    """A model's name, tensors (per row, without the batch dimension) and limits.

    ``max_batch_size`` is rows per model call; ``max_message_bytes`` bounds one request.

    Raises:
        InvalidSetting: no inputs or outputs, a tensor named twice, or a limit below 1.
    """

    name: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    max_batch_size: int
    max_message_bytes: int
    version: str | None = None

    def __post_init__(self) -> None:
        for kind, specs in (("inputs", self.inputs), ("outputs", self.outputs)):
            names = [spec.name for spec in specs]
            if not names:
                raise InvalidSetting(f"model '{self.name}': {kind} lists no tensor")
            if len(set(names)) != len(names):
                raise InvalidSetting(f"model '{self.name}': {kind} names a tensor twice: {names}")
        for limit in ("max_batch_size", "max_message_bytes"):
            value = getattr(self, limit)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InvalidSetting(
                    f"model '{self.name}': {limit} must be a whole number from 1, got {value!r}"
                )

    def check(self, layout: Layout) -> None:
        """Check a request's tensors against the model's.

        Raises:
            InvalidRequest: an unknown or missing tensor, another datatype or shape, or tensors
                that disagree about the number of rows; the message names the tensor.
        """
        specs = {spec.name: spec for spec in self.inputs}
        for head in layout.heads:
            spec = specs.pop(head.name, None)
            if spec is None:
                raise InvalidRequest(
                    f"unknown tensor '{head.name}': {self.name} takes {_listed(self.inputs)}"
                )
            if head.datatype != spec.datatype:
                raise InvalidRequest(
                    f"tensor '{head.name}': expected {spec.datatype}, got {head.datatype}"
                )
            if not head.shape or not spec.admits(head.shape[1:]):
                raise InvalidRequest(
                    f"tensor '{head.name}': expected shape {[-1, *spec.shape]}, "
                    f"got {list(head.shape)}"
                )
            if head.shape[0] != layout.rows:
                raise InvalidRequest(
                    f"tensor '{head.name}' has {head.shape[0]} rows, "
                    f"'{layout.heads[0].name}' has {layout.rows}"
                )
        if specs:
            raise self._missing(next(iter(specs)))
        _check_empty_rows(layout.rows, layout.size)

    def select(self, wanted: Sequence[Wanted] | None) -> tuple[Wanted, ...]:
        """Return the outputs that go into a reply; all of them, unless the request names some.

        Raises:
            InvalidRequest: an output this model does not have, or one named twice.
        """
        if not wanted:
            return tuple(Wanted(spec.name, None) for spec in self.outputs)
        known = {spec.name for spec in self.outputs}
        for index, want in enumerate(wanted):
            if want.name not in known:
                raise InvalidRequest(
                    f"unknown output '{want.name}': {self.name} gives {_listed(self.outputs)}"
                )
            if want.name in {other.name for other in wanted[:index]}:
                raise InvalidRequest(f"output '{want.name}' is named twice")
        return tuple(wanted)

    def bind(self, inputs: object) -> Bound:
        """Bind what a caller hands in to the model's inputs.

        ``inputs`` maps tensor names to arrays, lists or scalars; a model with one input takes the
        bare array too. An array of the spec's rank is one row, one rank more is a batch.

        Raises:
            InvalidRequest: see :meth:`check`; also values that do not fit the datatype.
        """
        if not isinstance(inputs, Mapping):
            if len(self.inputs) != 1:
                raise InvalidRequest(
                    f"{self.name} has several inputs: expected a mapping of {_listed(self.inputs)}"
                )
            inputs = {self.inputs[0].name: inputs}
        for name in inputs:
            if name not in {spec.name for spec in self.inputs}:
                raise InvalidRequest(
                    f"unknown tensor '{name}': {self.name} takes {_listed(self.inputs)}"
                )
        tensors = []
        singles = {}
        for spec in self.inputs:
            if spec.name not in inputs:
                raise self._missing(spec.name)
            with naming_tensor(spec.name):
                array = coerce(inputs[spec.name], spec.datatype)
            is_single = spec.admits(array.shape)
            if not is_single and not (array.ndim and spec.admits(array.shape[1:])):
                raise InvalidRequest(
                    f"tensor '{spec.name}': expected shape {list(spec.shape)} for one row or "
                    f"{[-1, *spec.shape]} for several, got {list(array.shape)}"
                )
            singles[spec.name] = is_single
            tensors.append((spec.name, spec.datatype, array[np.newaxis] if is_single else array))
        if len(set(singles.values())) > 1:
            raise InvalidRequest(
                "tensors disagree about the batch dimension: "
                + ", ".join(
                    f"'{name}' is {'one row' if is_single else 'a batch'}"
                    for name, is_single in singles.items()
                )
            )
        rows = {len(array) for _, _, array in tensors}
        if len(rows) > 1:
            raise InvalidRequest(
                "tensors disagree about the number of rows: "
                + ", ".join(f"'{name}' has {len(array)}" for name, _, array in tensors)
            )
        bound = Bound(tensors, rows.pop(), single=all(singles.values()))
        _check_empty_rows(bound.rows, sum(array.nbytes for _, _, array in tensors))
        return bound

    def _missing(self, name: str) -> InvalidRequest:
        return InvalidRequest(f"missing tensor '{name}': {self.name} takes {_listed(self.inputs)}")

    def to_json(self) -> bytes:
        """Return the text that workers publish under the model's description key."""
        published = PublishedModel(
            metadata=Metadata(
                name=self.name,
                versions=None if self.version is None else [self.version],
                platform=PLATFORM,
                inputs=[_published(spec) for spec in self.inputs],
                outputs=[_published(spec) for spec in self.outputs],
            ),
            limits=Limits(
                max_batch_size=self.max_batch_size, max_message_bytes=self.max_message_bytes
            ),
        )
        return published.model_dump_json(exclude_none=True).encode()

    @staticmethod
    def from_json(text: bytes) -> "ModelDescription":
        """Read what a worker published.

        Raises:
            InvalidSetting: the text is no model description.
        """
        try:
            published = PublishedModel.model_validate_json(text)
        except ValidationError as error:
            raise InvalidSetting(f"not a model description: {describe(error)}") from None
        metadata = published.metadata
        return ModelDescription(
            name=metadata.name,
            inputs=tuple(_spec(tensor) for tensor in metadata.inputs),
            outputs=tuple(_spec(tensor) for tensor in metadata.outputs),
            max_batch_size=published.limits.max_batch_size,
            max_message_bytes=published.limits.max_message_bytes,
            version=metadata.versions[0] if metadata.versions else None,
        )


class MetadataTensor(BaseModel):
    """A tensor of a model, as Open Inference Protocol metadata has it."""

    name: str = Field(description="Requests and replies name the tensor so.")
    datatype: str = Field(description="Open Inference Protocol datatype, or BF16.")
    shape: Annotated[list[int], Field(min_length=1)] = Field(
        description="Extents; -1 is any. The first is -1, the batch dimension."
    )


class Metadata(BaseModel):
    """Open Inference Protocol model metadata."""

    name: str = Field(description="The model's name, as in its keys.")
    versions: list[str] | None = Field(
        default=None, description="The version served; absent for a model without versions."
    )
    platform: str = Field(default=PLATFORM, description="What serves the model.")
    inputs: list[MetadataTensor] = Field(description="All of them are required.")
    outputs: list[MetadataTensor] = Field(description="In the order of a reply.")


class Limits(BaseModel):
    """What a request may be, and what a batch can be."""

    max_batch_size: int = Field(ge=1, description="Rows in one model call.")
    max_message_bytes: int = Field(ge=1, description="Bytes of one request message.")


class PublishedModel(BaseModel):
    """What a model's workers publish about it."""

    model_config = ConfigDict(extra="ignore")

    metadata: Metadata
    limits: Limits
    profile: dict[str, Any] = Field(
        default_factory=dict, description="Measured by workers; no promise."
    )


def _check_empty_rows(rows: int, size: int) -> None:
    # Rows of no bytes cost their sender nothing, and a worker its model calls.
    if size == 0 and rows > MAX_EMPTY_ROWS:
        raise InvalidRequest(
            f"{rows} rows without a byte of data: expected {MAX_EMPTY_ROWS} at most"
        )


def _published(spec: TensorSpec) -> MetadataTensor:
    return MetadataTensor(name=spec.name, datatype=spec.datatype, shape=[-1, *spec.shape])


def _spec(tensor: MetadataTensor) -> TensorSpec:
    return TensorSpec(tensor.name, tensor.datatype, tensor.shape[1:])


def _listed(specs: Sequence[TensorSpec]) -> str:
    return ", ".join(f"'{spec.name}'" for spec in specs)
