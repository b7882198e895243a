"""What a model does wrong is an error of the requests at fault, and of no others."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferq.contract.errors import ModelError
from inferq_worker import TensorSpec, model
from inferq_worker.runner import Answer
from support.batches import Echo, arrays, error, read, request, row, run

# What a model may do once it meets a row of -1; the error's beginning.
WRONG: dict[str, tuple[Callable[[Any], Any], str]] = {
    "a row less": (lambda x: {"y": x[1:]}, "output 'y': the model returned {less} rows"),
    "a row more": (lambda x: {"y": np.vstack([x, x[:1]])}, "output 'y': the model returned"),
    "no rows": (lambda x: {"y": x[:0]}, "output 'y': the model returned 0 rows for a batch of 1"),
    "a scalar": (lambda _: {"y": np.float32(1)}, "output 'y': the model returned a scalar"),
    "no output": (lambda x: {"z": x}, "the model returned no output 'y'"),
    "another datatype": (lambda x: {"y": x.astype("S")}, "output 'y': FP32 cannot be made from"),
    "out of range": (lambda x: {"y": x.astype("f8") * -1e300}, "output 'y': a number is out of"),
    "another row shape": (
        lambda x: {"y": x[:, :1]},
        "output 'y': the model returned rows of shape",
    ),
    "one more dimension": (
        lambda x: {"y": x[:, :, None]},
        "output 'y': the model returned rows of",
    ),
    "ragged": (lambda _: {"y": [[1], [1, 2]]}, "output 'y': cannot make one array of this"),
    "nothing": (lambda _: None, "output 'y': FP32 cannot be made from values of type object"),
    "a list": (lambda _: ["y"], "output 'y': FP32 cannot be made from values of type <U1"),
    "an exception": (lambda _: 1 / 0, "the model raised ZeroDivisionError: division by zero"),
    "exit": (lambda _: exit_with(3), "the model raised SystemExit: 3"),
    "a panic": (lambda _: panic(), "the model raised Panic: index out of bounds"),
    "an array that refuses": (lambda _: {"y": Refusing()}, "the model raised RuntimeError: detach"),
    "a broken mapping": (lambda _: Refusing(), "the model raised RuntimeError: detach"),
}


class Panic(BaseException):
    """What compiled extensions raise: no Exception."""


class Refusing:
    """A tensor that will not become an array."""

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("detach it first\nand more")


def panic() -> None:
    raise Panic("index out of bounds")


def exit_with(code: int) -> None:
    raise SystemExit(code)


class Failing(Echo):
    """Does the wrong thing when -1 is among its rows."""

    def __init__(self, wrong: Callable[[Any], Any]) -> None:
        super().__init__()
        self.wrong = wrong

    def predict(self, x: Any) -> Any:
        super().predict(x)
        return self.wrong(x) if (x[:, 0] == -1).any() else {"y": x}


@pytest.mark.parametrize("case", WRONG)
def test_only_the_request_at_fault_gets_the_error(case: str) -> None:
    """Of 64 requests one makes the model go wrong: it gets a typed error, the others answers."""
    wrong, sentence = WRONG[case]
    failing = Failing(wrong)
    requests = [row(-1 if number == 41 else number) for number in range(64)]
    outcomes, calls = run(failing, requests)
    failure = error(outcomes.pop(41))
    assert isinstance(failure, ModelError)
    assert str(failure).startswith(sentence.format(less=0))
    assert [arrays(outcome)["y"][0, 0] for outcome in outcomes] == [
        number for number in range(64) if number != 41
    ]
    # Two halves at each of the six steps from 64 to 1.
    assert [call.requests for call in calls].count(1) == 2
    assert len(calls) == 1 + 2 * 6


def test_several_at_fault() -> None:
    """Each request at fault is found, and all others are answered."""
    bad = {0, 1, 17, 63}
    requests = [row(-1 if number in bad else number) for number in range(64)]
    outcomes, _ = run(Failing(lambda _: 1 / 0), requests)
    assert {
        number for number, outcome in enumerate(outcomes) if not isinstance(outcome.result, Answer)
    } == bad


def test_request_of_many_calls_fails_as_a_whole() -> None:
    """A request that fails in one of its calls gets the error alone, not half an answer."""
    values = [[0, 0]] * 5 + [[-1, 0]] + [[0, 0]] * 3
    outcomes, _ = run(
        Failing(lambda _: 1 / 0),
        [row(1, 2), request("long", ("x", "FP32", values)), row(2, 2)],
        max_batch_size=4,
    )
    assert "ZeroDivisionError" in str(error(outcomes[1]))
    assert len(arrays(outcomes[0])["y"]) == len(arrays(outcomes[2])["y"]) == 2


def test_rows_of_different_shapes_for_one_request() -> None:
    """Calls whose variable outputs differ in shape cannot be joined: a typed error says so."""

    @model(
        inputs=[TensorSpec("x", "FP32", [])],
        outputs=[TensorSpec("y", "FP32", [-1])],
        max_batch_size=2,
    )
    def widen(x: Any) -> Any:
        return {"y": np.zeros((len(x), int(x[0])), dtype="f4")}

    outcomes, _ = run(widen, [request("1", ("x", "FP32", [1, 1, 2]))])
    assert "rows of different shapes" in str(error(outcomes[0]))


def test_no_mapping_of_several_outputs() -> None:
    """A model with several outputs must return a mapping, and the error names what it lacks."""
    two = Echo()
    two.outputs = [TensorSpec("y", "FP32", [2]), TensorSpec("z", "FP32", [2])]
    two.predict = lambda x: x  # type: ignore[method-assign]
    outcomes, _ = run(two, [row(1)])
    assert str(error(outcomes[0])) == ("the model returned ndarray: expected a mapping of 'y', 'z'")


def test_exception_is_kept_as_the_cause() -> None:
    """The error carries what the model raised, so that the worker can log where."""
    outcomes, _ = run(Failing(lambda _: 1 / 0), [row(-1)])
    assert isinstance(error(outcomes[0]).__cause__, ZeroDivisionError)


def test_interrupt_is_no_answer() -> None:
    """Ctrl-C while the model runs ends the program; it is not an error of the requests."""

    def interrupt(_: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(Failing(interrupt), [row(-1)])


class Scribbler(Echo):
    """Writes into its inputs, then fails if -1 was among them."""

    def predict(self, x: Any) -> Any:
        bad = (x[:, 0] == -1).any()
        x *= 100
        super().predict(x)
        if bad:
            raise ValueError("scribbled and gone")
        return {"y": x}


def test_model_that_writes_into_its_inputs() -> None:
    """What a model writes into its inputs reaches no other call, nor the retry after a failure."""
    requests = [row(-1 if number == 5 else number) for number in range(8)]
    before = [bytes(each.body) for each in requests]
    outcomes, _ = run(Scribbler(), requests)
    assert [bytes(each.body) for each in requests] == before
    del outcomes[5]
    assert [arrays(outcome)["y"][0, 0] for outcome in outcomes] == [
        100 * number for number in range(8) if number != 5
    ]


def test_model_that_writes_into_json_inputs() -> None:
    """The same holds for requests in JSON form, and for one request split over calls."""
    text = (
        b'{"id":"j","inputs":[{"name":"x","datatype":"FP32","shape":[3,2],"data":[1,2,3,4,5,6]}]}'
    )
    outcomes, _ = run(Scribbler(), [read(text)], max_batch_size=2)
    assert arrays(outcomes[0])["y"].tolist() == [[100, 200], [300, 400], [500, 600]]


def test_compute_time_is_the_sum_of_all_calls() -> None:
    """A request's compute time is that of all the calls it was in, also of those that failed."""
    outcomes, calls = run(
        Failing(lambda _: 1 / 0), [row(1, 3), row(-1), row(2, 4)], max_batch_size=4
    )
    assert [(call.requests, call.rows) for call in calls] == [(2, 4), (1, 3), (1, 1), (1, 4)]
    shared, first, second, last = (call.compute_ns for call in calls)
    spent = [outcome.call.compute_ns for outcome in outcomes if outcome.call]
    assert spent == [shared + first, shared + second, last]


@given(st.lists(st.integers(0, 6), max_size=12), st.integers(1, 5), st.sets(st.integers(0, 11)))
def test_answers_in_order_whatever_fails(counts: list[int], max_rows: int, bad: set[int]) -> None:
    """For any requests of which any fail, each gets its own rows or an error, in order."""
    requests = [row(-1 if number in bad else number, count) for number, count in enumerate(counts)]
    outcomes, calls = run(Failing(lambda _: 1 / 0), requests, max_batch_size=max_rows)
    assert len(outcomes) == len(requests)
    assert all(1 <= call.rows <= max_rows for call in calls)
    for number, (count, outcome) in enumerate(zip(counts, outcomes, strict=True)):
        if number in bad and count:
            assert "ZeroDivisionError" in str(error(outcome))
        else:
            found = arrays(outcome)["y"]
            assert found.shape == (count, 2)
            assert number in bad or (found[:, 0] == number).all()


def test_bool_that_is_neither() -> None:
    """A BOOL output that holds other bytes than 0 and 1 is the model's error, and named."""

    @model(inputs=[TensorSpec("x", "FP32", [])], outputs=[TensorSpec("y", "BOOL", [])])
    def broken(x: Any) -> Any:
        return np.full(len(x), 2, np.uint8).view(np.bool_)

    (outcome,), _ = run(broken, [request("r", ("x", "FP32", [1]))])
    assert "output 'y': the model returned BOOL that is not 0 or 1" in str(error(outcome))


def test_masked_output() -> None:
    """Values under a mask are not answered as if they were there."""

    @model(inputs=[TensorSpec("x", "FP32", [])], outputs=[TensorSpec("y", "FP32", [])])
    def masking(x: Any) -> Any:
        return np.ma.masked_array(x, mask=[True] * len(x))

    (outcome,), _ = run(masking, [request("r", ("x", "FP32", [1]))])
    assert "output 'y'" in str(error(outcome))
