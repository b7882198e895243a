"""A model's description travels whole, and is what requests and callers' values are held to."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferq.contract.description import MAX_EMPTY_ROWS, ModelDescription
from inferq.contract.errors import InvalidRequest, InvalidSetting
from inferq.contract.layouts import LayoutMemo, TensorHead
from inferq.contract.requests import Request, RequestReader, RequestWriter, Wanted
from inferq.contract.tensors import DATATYPES, TensorSpec

PIXELS = TensorSpec("pixels", "FP32", [2, 3])
MASK = TensorSpec("mask", "BOOL", [-1])
LABEL = TensorSpec("label", "INT64", [])
SCORES = TensorSpec("scores", "FP32", [10])


def described(*inputs: TensorSpec, outputs: tuple[TensorSpec, ...] = (LABEL,)) -> ModelDescription:
    return ModelDescription("digits", inputs, outputs, 32, 1024)


ONE = described(PIXELS)
TWO = described(PIXELS, MASK, outputs=(LABEL, SCORES))

specs = st.builds(
    TensorSpec,
    st.from_regex(r"[a-z_]{1,8}", fullmatch=True),
    st.sampled_from(DATATYPES),
    st.lists(st.integers(-1, 10), max_size=4),
)
spec_lists = st.lists(specs, min_size=1, max_size=3, unique_by=lambda spec: spec.name).map(tuple)


@given(
    inputs=spec_lists,
    outputs=spec_lists,
    limits=st.tuples(st.integers(1, 10**6), st.integers(1, 10**9)),
    version=st.none() | st.just("3"),
)
def test_what_is_published_is_read(
    inputs: tuple[TensorSpec, ...],
    outputs: tuple[TensorSpec, ...],
    limits: tuple[int, int],
    version: str | None,
) -> None:
    """A description comes back equal from what workers publish."""
    description = ModelDescription("m", inputs, outputs, *limits, version)
    assert ModelDescription.from_json(description.to_json()) == description


def test_what_is_published() -> None:
    """The published text is OIP metadata, whose shapes lead with the batch dimension, and limits."""
    assert json.loads(TWO.to_json()) == {
        "metadata": {
            "name": "digits",
            "platform": "inferq_python",
            "inputs": [
                {"name": "pixels", "datatype": "FP32", "shape": [-1, 2, 3]},
                {"name": "mask", "datatype": "BOOL", "shape": [-1, -1]},
            ],
            "outputs": [
                {"name": "label", "datatype": "INT64", "shape": [-1]},
                {"name": "scores", "datatype": "FP32", "shape": [-1, 10]},
            ],
        },
        "limits": {"max_batch_size": 32, "max_message_bytes": 1024},
        "profile": {},
    }


def changed(**members: Any) -> bytes:
    published = json.loads(ONE.to_json())
    for path, value in members.items():
        *folders, name = path.split("__")
        at = published
        for folder in folders:
            at = at[int(folder)] if isinstance(at, list) else at[folder]
        at[name] = value
    return json.dumps(published).encode()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", "not a model description: not JSON"),
        (b"\xff", "not a model description: not JSON"),
        (b"[]", "not a model description: message: input should be an object"),
        (b"{}", "not a model description: metadata: field required"),
        (changed(limits={}), "limits.max_batch_size: field required"),
        (changed(limits__max_batch_size=0), "limits.max_batch_size: .* greater than or equal to 1"),
        (changed(metadata__inputs=[]), "model 'digits': inputs lists no tensor"),
        (
            changed(metadata__inputs__0__name="a b"),
            "tensor name 'a b': expected a Python identifier",
        ),
        (changed(metadata__inputs__0__datatype="X"), "tensor 'pixels': unknown datatype 'X'"),
        (changed(metadata__inputs__0__shape=[]), r"metadata.inputs\[0\].shape: .* at least 1 item"),
        (changed(metadata__inputs__0__shape=[-1, -2]), "tensor 'pixels': shape"),
    ],
)
def test_what_is_no_description(text: bytes, words: str) -> None:
    """A text that is no description is refused in words."""
    with pytest.raises(InvalidSetting, match=words):
        ModelDescription.from_json(text)


def test_newer_descriptions_are_read() -> None:
    """Members that a newer worker adds are ignored."""
    assert ModelDescription.from_json(changed(zzz=1, metadata__zzz=2, limits__zzz=3)) == ONE


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("m", (), (LABEL,), 1, 1), "model 'm': inputs lists no tensor"),
        (("m", (PIXELS,), (), 1, 1), "model 'm': outputs lists no tensor"),
        (("m", (PIXELS, PIXELS), (LABEL,), 1, 1), "inputs names a tensor twice"),
        (("m", (PIXELS,), (LABEL,), 0, 1), "max_batch_size must be a whole number from 1, got 0"),
        (("m", (PIXELS,), (LABEL,), 1.5, 1), "max_batch_size must be a whole number"),
        (("m", (PIXELS,), (LABEL,), True, 1), "max_batch_size must be a whole number"),
        (("m", (PIXELS,), (LABEL,), 1, 0), "max_message_bytes must be a whole number from 1"),
    ],
)
def test_what_no_model_can_be(arguments: tuple[Any, ...], words: str) -> None:
    """A description that contradicts itself is refused where it is made."""
    with pytest.raises(InvalidSetting, match=words):
        ModelDescription(*arguments)


def head(name: str, datatype: str, *shape: int, size: int = 99) -> TensorHead:
    return TensorHead(name, datatype, shape, size)


GOOD_PIXELS = head("pixels", "FP32", 2, 2, 3, size=48)
GOOD_MASK = head("mask", "BOOL", 2, 5, size=10)


@pytest.mark.parametrize(
    "heads",
    [
        [GOOD_PIXELS, GOOD_MASK],
        [GOOD_MASK, GOOD_PIXELS],
        [head("pixels", "FP32", 0, 2, 3, size=0), head("mask", "BOOL", 0, 0, size=0)],
    ],
)
def test_requests_that_fit(heads: list[TensorHead]) -> None:
    """A request fits in any order of its tensors, with any number of rows."""
    TWO.check(LayoutMemo().layout(heads))


@pytest.mark.parametrize(
    ("heads", "words"),
    [
        ([GOOD_PIXELS], "missing tensor 'mask': digits takes 'pixels', 'mask'"),
        ([GOOD_MASK], "missing tensor 'pixels': digits takes"),
        ([head("x", "FP32", 1)], "unknown tensor 'x': digits takes 'pixels', 'mask'"),
        ([GOOD_PIXELS, GOOD_MASK, head("x", "FP32", 1)], "unknown tensor 'x'"),
        ([head("pixels", "FP64", 2, 2, 3)], "tensor 'pixels': expected FP32, got FP64"),
        ([head("pixels", "FP32", 2, 3)], r"'pixels': expected shape \[-1, 2, 3\], got \[2, 3\]"),
        ([head("pixels", "FP32", 2, 2, 4)], r"expected shape \[-1, 2, 3\], got \[2, 2, 4\]"),
        ([GOOD_PIXELS, head("mask", "BOOL", 3, 5)], "'mask' has 3 rows, 'pixels' has 2"),
    ],
)
def test_requests_that_do_not_fit(heads: list[TensorHead], words: str) -> None:
    """A request of other tensors is refused with the tensor's name and what was expected."""
    with pytest.raises(InvalidRequest, match=words):
        TWO.check(LayoutMemo().layout(heads))


def test_rows_of_nothing_are_few() -> None:
    """Rows without a byte of data cost their sender nothing, so there may not be many."""
    model = described(MASK)
    model.check(LayoutMemo().layout([head("mask", "BOOL", MAX_EMPTY_ROWS, 0, size=0)]))
    assert model.bind(np.zeros((MAX_EMPTY_ROWS, 0), bool)).rows == MAX_EMPTY_ROWS
    with pytest.raises(InvalidRequest, match="1025 rows without a byte of data: expected 1024"):
        model.check(LayoutMemo().layout([head("mask", "BOOL", MAX_EMPTY_ROWS + 1, 0, size=0)]))
    with pytest.raises(InvalidRequest, match="rows without a byte of data"):
        model.bind(np.zeros((MAX_EMPTY_ROWS + 1, 0), bool))
    # With a byte each they are what the byte limit allows.
    model.check(LayoutMemo().layout([head("mask", "BOOL", 2**20, 1, size=2**20)]))


@pytest.mark.parametrize("wanted", [None, ()])
def test_all_outputs(wanted: tuple[Wanted, ...] | None) -> None:
    """A request that names no output gets all of them, in the model's order."""
    assert TWO.select(wanted) == (Wanted("label", None), Wanted("scores", None))


def test_some_outputs() -> None:
    """A request that names outputs gets these, in its own order."""
    wanted = [Wanted("scores", binary=True), Wanted("label", binary=None)]
    assert TWO.select(wanted) == tuple(wanted)


@pytest.mark.parametrize(
    ("named", "words"),
    [
        (["x"], "unknown output 'x': digits gives 'label', 'scores'"),
        (["label", "label"], "output 'label' is named twice"),
        (["label"] * 100_000, "output 'label' is named twice"),
    ],
)
def test_outputs_there_are_not(named: list[str], words: str) -> None:
    """An unknown or doubled output is refused with what there is."""
    with pytest.raises(InvalidRequest, match=words):
        TWO.select([Wanted(name, None) for name in named])


ROW = np.zeros((2, 3))
BOUND: list[tuple[ModelDescription, Any, int, bool]] = [
    (ONE, ROW, 1, True),
    (ONE, ROW.tolist(), 1, True),
    (ONE, {"pixels": ROW}, 1, True),
    (ONE, np.zeros((4, 2, 3)), 4, False),
    (ONE, np.zeros((0, 2, 3)), 0, False),
    (ONE, np.zeros((1, 2, 3), np.int8), 1, False),
    (TWO, {"pixels": ROW, "mask": [True]}, 1, True),
    (TWO, {"mask": np.ones((2, 5), bool), "pixels": np.zeros((2, 2, 3))}, 2, False),
    (described(LABEL), 7, 1, True),
    (described(LABEL), [7, 8], 2, False),
    (described(TensorSpec("text", "BYTES", [])), "hello", 1, True),
    (described(TensorSpec("text", "BYTES", [])), ["a", "bc"], 2, False),
]


@pytest.mark.parametrize(("model", "inputs", "rows", "single"), BOUND)
def test_rows_and_batches(model: ModelDescription, inputs: Any, rows: int, *, single: bool) -> None:
    """A value of the spec's rank is one row, one rank more is a batch; either way it has rows."""
    bound = model.bind(inputs)
    assert (bound.rows, bound.single) == (rows, single)
    assert [name for name, _, _ in bound.tensors] == [spec.name for spec in model.inputs]
    assert {len(array) for _, _, array in bound.tensors} == {rows}


@pytest.mark.parametrize(("model", "inputs", "rows", "single"), BOUND)
def test_what_is_bound_passes_the_check(
    model: ModelDescription, inputs: Any, rows: int, *, single: bool
) -> None:
    """What a producer binds and writes is what a worker's check lets through."""
    del single
    message = RequestWriter().write("r1", model.bind(inputs).tensors, {})
    found = RequestReader(1024**2).read(message)
    assert isinstance(found, Request)
    model.check(found.layout)
    assert found.rows == rows


@pytest.mark.parametrize(
    ("model", "inputs", "words"),
    [
        (ONE, {}, "missing tensor 'pixels': digits takes 'pixels'"),
        (ONE, {"pixel": ROW}, "unknown tensor 'pixel': digits takes 'pixels'"),
        (ONE, {"pixels": ROW, 5: ROW}, "unknown tensor '5'"),
        (TWO, ROW, "digits has several inputs: expected a mapping of 'pixels', 'mask'"),
        (TWO, {"pixels": ROW}, "missing tensor 'mask'"),
        (ONE, np.zeros((3, 2)), r"tensor 'pixels': expected shape \[2, 3\] for one row or"),
        (ONE, np.zeros((1, 1, 2, 3)), r"\[-1, 2, 3\] for several, got \[1, 1, 2, 3\]"),
        (ONE, 5.0, r"for several, got \[\]"),
        (ONE, [[1, 2, 3], [4, 5]], "tensor 'pixels': cannot make one array of this"),
        (ONE, [["a", "b", "c"]] * 2, "tensor 'pixels': FP32 cannot be made from values of type"),
        (ONE, ROW + 1e300, "tensor 'pixels': a number is out of the range of FP32"),
        (TWO, {"pixels": ROW, "mask": [[True]]}, "'pixels' is one row, 'mask' is a batch"),
        (TWO, {"pixels": ROW[None], "mask": [[True]] * 2}, "'pixels' has 1, 'mask' has 2"),
    ],
)
def test_values_that_do_not_fit(model: ModelDescription, inputs: Any, words: str) -> None:
    """A caller's value that does not fit is refused with the tensor's name and both shapes."""
    with pytest.raises(InvalidRequest, match=words):
        model.bind(inputs)
