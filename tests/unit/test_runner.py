"""One batch through the model: grouped, packed, stacked and split."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferq.contract.tensors import DATATYPES, dtype_of
from inferq_worker import Model, TensorSpec, model
from inferq_worker.runner import Answer
from support.batches import Echo, arrays, request, row, run

ROW_SHAPES = st.sampled_from([[], [1], [3], [0], [2, 2], [2, 0]])


def echo_of(datatype: str, shape: list[int]) -> Model:
    made = Echo()
    made.inputs = [TensorSpec("x", datatype, shape)]
    made.outputs = [TensorSpec("y", datatype, shape)]
    return made


@st.composite
def tensor(draw: st.DrawFn, datatype: str, shape: list[int]) -> Any:
    """Draw the rows of one request: any bit pattern of the datatype."""
    shape = [draw(st.integers(0, 5)), *shape]
    count = math.prod(shape)
    if datatype == "BYTES":
        array = np.empty(count, dtype=object)
        array[:] = draw(st.lists(st.binary(max_size=9), min_size=count, max_size=count))
        return array.reshape(shape)
    dtype = dtype_of(datatype)
    raw = draw(st.binary(min_size=count * dtype.itemsize, max_size=count * dtype.itemsize))
    if datatype == "BOOL":
        raw = bytes(octet & 1 for octet in raw)
    return np.frombuffer(raw, dtype=dtype).reshape(shape)


@pytest.mark.parametrize("datatype", DATATYPES)
@given(data=st.data())
def test_round_trip(datatype: str, data: st.DataObject) -> None:
    """Rows of every datatype come back bit by bit to the request they came from."""
    shape = data.draw(ROW_SHAPES)
    tensors = data.draw(st.lists(tensor(datatype, shape), min_size=1, max_size=6))
    requests = [request(str(n), ("x", datatype, rows)) for n, rows in enumerate(tensors)]
    max_rows = data.draw(st.integers(1, 7))
    outcomes, calls = run(echo_of(datatype, shape), requests, max_batch_size=max_rows)
    for sent, outcome in zip(requests, outcomes, strict=True):
        answer = outcome.result
        assert isinstance(answer, Answer)
        assert b"".join(answer.body) == bytes(sent.body)
        assert answer.layout.heads[0].shape == sent.layout.heads[0].shape
    assert sum(call.rows for call in calls) == sum(len(rows) for rows in tensors)


def test_one_call_for_all() -> None:
    """Single rows of many requests share one call, in order of arrival."""
    echo = Echo()
    outcomes, calls = run(echo, [row(value) for value in range(10)])
    assert [(call.requests, call.rows) for call in calls] == [(10, 10)]
    assert echo.calls == [[[value, value + 0.5] for value in range(10)]]
    assert [arrays(outcome)["y"].tolist() for outcome in outcomes] == [
        [[value, value + 0.5]] for value in range(10)
    ]


def test_rows_split_over_calls_and_joined() -> None:
    """Requests of several rows are cut at the maximum, and each gets all its rows, in order."""
    echo = Echo()
    outcomes, calls = run(echo, [row(1, 3), row(2, 7), row(3, 2)], max_batch_size=4)
    assert [(call.requests, call.rows) for call in calls] == [(2, 4), (1, 4), (2, 4)]
    assert [len(arrays(outcome)["y"]) for outcome in outcomes] == [3, 7, 2]
    for value, outcome in zip((1, 2, 3), outcomes, strict=True):
        assert (arrays(outcome)["y"] == [value, value + 0.5]).all()


def test_request_without_rows() -> None:
    """A request of no rows is answered with outputs of no rows, without a model call."""
    outcomes, calls = run(Echo(), [request("r", ("x", "FP32", np.zeros((0, 2))))])
    assert calls == []
    assert arrays(outcomes[0])["y"].shape == (0, 2)
    assert outcomes[0].call is None


def test_tensors_in_another_order() -> None:
    """Requests that list the same tensors in different orders share a call, unmixed."""

    @model(
        inputs=[TensorSpec("a", "INT32", []), TensorSpec("b", "FP32", [2])],
        outputs=[TensorSpec("sum", "FP32", [2])],
    )
    def add(a: Any, b: Any) -> Any:
        return {"sum": (a[:, None] + b).astype("f4")}

    one = request("1", ("a", "INT32", [1, 2]), ("b", "FP32", [[0.5, 0], [0, 0.25]]))
    other = request("2", ("b", "FP32", [[0, 0.125]]), ("a", "INT32", [40]))
    outcomes, calls = run(add, [one, other])
    assert [call.rows for call in calls] == [3]
    assert arrays(outcomes[0])["sum"].tolist() == [[1.5, 1], [2, 2.25]]
    assert arrays(outcomes[1])["sum"].tolist() == [[40, 40.125]]


def test_variable_dimensions_are_never_mixed() -> None:
    """Requests whose variable dimensions differ run in calls of their own."""
    ragged = echo_of("INT64", [-1])
    requests = [
        request(str(n), ("x", "INT64", [[n] * length])) for n, length in enumerate([2, 3, 2, 0, 3])
    ]
    outcomes, calls = run(ragged, requests)
    assert [(call.requests, call.rows) for call in calls] == [(2, 2), (2, 2), (1, 1)]
    assert [arrays(outcome)["y"].tolist() for outcome in outcomes] == [
        [[0, 0]],
        [[1, 1, 1]],
        [[2, 2]],
        [[]],
        [[4, 4, 4]],
    ]


@pytest.fixture
def scaled() -> tuple[Model, list[Any]]:
    seen: list[Any] = []

    @model(inputs=[TensorSpec("x", "FP32", [])], outputs=[TensorSpec("y", "FP32", [])])
    def scale(x: Any, parameters: dict[str, Any]) -> Any:
        seen.append((dict(parameters), len(x)))
        parameters.clear()
        return {"y": x}

    return scale, seen


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({}, {"by": 1}),
        ({"by": 1}, {"by": 2}),
        ({"by": 1}, {"by": True}),
        ({"by": 1}, {"by": 1.0}),
        ({"by": True}, {"by": 1.0}),
        ({"by": 0.0}, {"by": -0.0}),
        ({"by": 1}, {"by": "1"}),
        ({"by": 1}, {"to": 1}),
        ({"by": "a"}, {"by": "a", "to": "b"}),
    ],
)
def test_parameters_that_differ(
    scaled: tuple[Model, list[Any]], one: dict[str, Any], other: dict[str, Any]
) -> None:
    """Requests whose parameters differ, be it in type alone, never share a call."""
    scale, seen = scaled
    requests = [
        request(str(n), ("x", "FP32", [n]), parameters=p) for n, p in enumerate([one, other])
    ]
    _, calls = run(scale, requests)
    assert [call.requests for call in calls] == [1, 1]
    assert repr(seen) == repr([(one, 1), (other, 1)])


def test_equal_parameters_share_a_call(scaled: tuple[Model, list[Any]]) -> None:
    """Parameters are compared by what the model gets: not by order, nor by the contract's own."""
    scale, seen = scaled
    requests = [
        request("1", ("x", "FP32", [1]), parameters={"a": 1, "b": "x", "submitted_ms": 5}),
        request("2", ("x", "FP32", [2]), parameters={"b": "x", "a": 1, "inferq_note": 1}),
    ]
    run(scale, requests)
    assert seen == [({"a": 1, "b": "x"}, 2)]


def test_parameters_of_a_model_that_does_not_ask() -> None:
    """A model that takes no parameters batches requests whatever theirs are."""
    requests = [request(str(n), ("x", "FP32", [[0, 0]]), parameters={"n": n}) for n in range(3)]
    _, calls = run(Echo(), requests)
    assert [call.requests for call in calls] == [3]


def test_bare_array_of_a_single_output() -> None:
    """A model with one output may return the array itself."""
    bare = Echo()
    bare.predict = lambda x: x * 2  # type: ignore[method-assign]
    outcomes, _ = run(bare, [row(1)])
    assert arrays(outcomes[0])["y"].tolist() == [[2, 3]]


def test_outputs_that_share_memory() -> None:
    """Outputs that alias each other, or one buffer used for every call, keep their values."""
    buffer = np.zeros((2, 2), dtype="f4")

    @model(
        inputs=[TensorSpec("x", "FP32", [2])],
        outputs=[TensorSpec("y", "FP32", [2]), TensorSpec("z", "FP32", [2])],
        max_batch_size=2,
    )
    def reuse(x: Any) -> Any:
        np.multiply(x, 10, out=buffer[: len(x)])
        return {"y": buffer[: len(x)], "z": buffer[: len(x)][:, ::-1]}

    outcomes, _ = run(reuse, [row(value) for value in range(5)])
    for value, outcome in enumerate(outcomes):
        found = arrays(outcome)
        assert found["y"].tolist() == [[10 * value, 10 * value + 5]]
        assert found["z"].tolist() == [[10 * value + 5, 10 * value]]


@pytest.mark.parametrize(
    "cast",
    [
        pytest.param(lambda y: y.astype(">f4"), id="big-endian"),
        pytest.param(lambda y: y.astype("f8"), id="wider"),
        pytest.param(np.asfortranarray, id="Fortran order"),
        pytest.param(lambda y: y.tolist(), id="lists"),
        pytest.param(lambda y: y[::1, ::-1][:, ::-1], id="negative strides"),
    ],
)
def test_outputs_in_other_forms(cast: Callable[[Any], Any]) -> None:
    """Numbers that fit the promised datatype are taken in whatever form they come."""
    loose = Echo()
    loose.predict = lambda x: {"y": cast(x)}  # type: ignore[method-assign]
    outcomes, _ = run(loose, [row(1), row(2)])
    assert [arrays(outcome)["y"].tolist() for outcome in outcomes] == [[[1, 1.5]], [[2, 2.5]]]


def test_call_of_an_outcome_is_the_last() -> None:
    """An outcome tells the size of the last call its request was in."""
    outcomes, _ = run(Echo(), [row(1, 3), row(2, 3)], max_batch_size=4)
    assert [(outcome.call.requests, outcome.call.rows) for outcome in outcomes if outcome.call] == [
        (2, 4),
        (1, 2),
    ]
