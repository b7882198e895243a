"""What INPUT and the flags of ``inferq infer`` and ``submit`` come to."""

import contextlib
import io
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferq.cli.inputs import Asked, combine, parse, parse_tensor, scalar
from inferq.contract.errors import InvalidRequest
from inferq.contract.requests import RequestWriter

TENSOR = {"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1, 2.5]}


def npy(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def oip(**members: Any) -> bytes:
    return json.dumps({"inputs": [TENSOR], **members}).encode()


class TestForms:
    def test_npy_is_the_bare_array(self) -> None:
        """An .npy is told by its content and stands for a model's only input."""
        array = np.arange(6, dtype=np.float32).reshape(2, 3)
        asked = parse(npy(array))
        np.testing.assert_array_equal(asked.inputs, array)
        assert asked.options == {}

    def test_object_of_tensors(self) -> None:
        """A JSON object maps tensor names to data as it stands."""
        assert parse(b'{"x": [1, 2], "y": "text"}') == Asked({"x": [1, 2], "y": "text"}, {})

    def test_a_tensor_may_be_called_inputs(self) -> None:
        """An object whose member inputs holds no objects is no OIP request."""
        assert parse(b'{"inputs": [1, 2]}').inputs == {"inputs": [1, 2]}

    def test_oip_json(self) -> None:
        """An OIP request becomes arrays with their batch dimension, and keeps its id."""
        asked = parse(oip(id="r1"))
        assert list(asked.inputs) == ["x"]
        np.testing.assert_array_equal(asked.inputs["x"], np.array([[1, 2.5]], dtype=np.float32))
        assert asked.options["request_id"] == "r1"

    @pytest.mark.parametrize("before", [b"", b"  \n", b"\xef\xbb\xbf"])
    def test_oip_without_an_id(self, before: bytes) -> None:
        """The protocol's id is optional here: one is made."""
        asked = parse(before + oip())
        assert asked.options["request_id"]
        assert asked.inputs["x"].shape == (1, 2)

    def test_oip_numbers_survive(self) -> None:
        """An integer beyond what a float holds arrives unchanged, with or without an id."""
        tensor = {"name": "x", "datatype": "UINT64", "shape": [1], "data": [2**64 - 1]}
        for given_id in ({}, {"id": "r"}):
            asked = parse(json.dumps({"inputs": [tensor], **given_id}).encode())
            assert asked.inputs["x"].tolist() == [2**64 - 1]

    def test_frame(self) -> None:
        """The binary form is read as well, NaN included."""
        array = np.array([[np.nan, 1]], dtype=np.float32)
        asked = parse(RequestWriter().write("r1", [("x", "FP32", array)], {}))
        np.testing.assert_array_equal(asked.inputs["x"], array)
        assert asked.options["request_id"] == "r1"


class TestOptionsOfARequest:
    def test_what_it_says_of_itself(self) -> None:
        """Budget, lane, reply's life, outputs and own parameters are taken over in our units."""
        asked = parse(
            oip(
                id="r",
                outputs=[{"name": "b"}, {"name": "a"}],
                parameters={"timeout": 1_500_000, "priority": 1, "reply_ttl": 90, "top": 3},
            )
        )
        assert asked.options == {
            "request_id": "r",
            "outputs": ["b", "a"],
            "timeout": 1.5,
            "priority": "high",
            "reply_ttl": 90,
            "parameters": {"top": 3},
        }

    @pytest.mark.parametrize(
        ("number", "lane"), [(0, "normal"), (1, "high"), (2, "normal"), (3, "low"), (9, "low")]
    )
    def test_lane(self, number: int, lane: str) -> None:
        """Triton's priority chooses the lane as it does over HTTP."""
        assert parse(oip(parameters={"priority": number})).options["priority"] == lane

    def test_what_a_producer_writes_itself(self) -> None:
        """A stamp, an inbox and the like are the producer's business and are left out."""
        parameters = {"submitted_ms": 5, "reply_to": "box", "binary_data_output": True}
        assert parse(oip(id="r", parameters=parameters)).options == {
            "request_id": "r",
            "parameters": {},
        }

    def test_no_timeout(self) -> None:
        """A timeout of 0 means none."""
        assert "timeout" not in parse(oip(parameters={"timeout": 0})).options


class TestRefusals:
    @pytest.mark.parametrize(
        ("content", "words"),
        [
            (b"", "empty"),
            (b"  \n", "empty"),
            (b"{", "neither .npy nor JSON"),
            (b"PK\x03\x04 a zip", "neither .npy nor JSON"),
            (b"\xff\xfe\x00", "neither .npy nor JSON"),
            (b"[1, 2]", "no object"),
            (b"3", "no object"),
            (b'{"x": [1, NaN]}', "NaN"),
            (b'{"x": [-Infinity]}', "-Infinity"),
            (b'{"x": [1], "x": [2]}', "'x' is given twice"),
            (b'{"x":' + b"[" * 100_000, "nested too deeply"),
            (b"\x93NUMPY", "no sound .npy"),
            (npy(np.arange(4))[:-1], "no sound .npy"),
            (b'{"inputs": []}', "inputs"),
            (oip(id="not allowed"), "id"),
            (oip(inputs=[{**TENSOR, "shape": [1, 3]}]), "needs 3 elements"),
            (oip(inputs=[{**TENSOR, "datatype": "FP33"}]), "datatype"),
            (oip(inputs=[{**TENSOR, "datatype": "BF16"}]), "BF16 has no JSON form"),
            (oip(inputs=[TENSOR, TENSOR]), "x"),
            (b"OIP1", "frame"),
        ],
    )
    def test_what_is_wrong(self, content: bytes, words: str) -> None:
        """Whatever is no input is refused in a sentence that says why."""
        with pytest.raises(InvalidRequest, match=words.replace(".", r"\.")):
            parse(content)

    def test_pickles(self) -> None:
        """An array that would run code when it is loaded is not loaded."""
        with pytest.raises(InvalidRequest, match="allow_pickle"):
            parse(npy(np.array([{}], dtype=object)))

    @given(st.binary(max_size=60))
    def test_any_bytes(self, content: bytes) -> None:
        """No bytes raise anything but a refusal."""
        for start in (b"", b"{", b"OIP1", b"\x93NUMPY\x01\x00", b'{"inputs":[{'):
            with contextlib.suppress(InvalidRequest):
                parse(start + content)


class TestNamedTensors:
    def test_data_of_one_tensor(self) -> None:
        """A tensor is .npy or JSON data."""
        assert parse_tensor(b"[1, 2]") == [1, 2]
        assert parse_tensor(b"3") == 3
        np.testing.assert_array_equal(parse_tensor(npy(np.arange(3))), np.arange(3))

    def test_alone(self) -> None:
        """Without INPUT they are the request."""
        assert combine(None, {"a": [1], "b": [2]}) == Asked({"a": [1], "b": [2]}, {})

    def test_beside_an_object(self) -> None:
        """They add to the tensors of INPUT and leave its options."""
        both = combine(Asked({"a": [1]}, {"timeout": 2.0}), {"b": [2]})
        assert both == Asked({"a": [1], "b": [2]}, {"timeout": 2.0})

    def test_beside_an_npy(self) -> None:
        """An array without a name cannot be told from the others."""
        with pytest.raises(InvalidRequest, match="--input NAME=FILE"):
            combine(Asked(np.arange(3), {}), {"b": [2]})

    def test_twice(self) -> None:
        """One tensor from two places is a mistake."""
        with pytest.raises(InvalidRequest, match="'a' is given twice"):
            combine(Asked({"a": [1]}, {}), {"a": [2]})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("-0.5", -0.5),
        ("true", True),
        ('"3"', "3"),
        ("greedy", "greedy"),
        ("", ""),
        ("NaN", "NaN"),
        ("null", "null"),
        ("[1]", "[1]"),
        ('{"a": 1}', '{"a": 1}'),
    ],
)
def test_scalars(text: str, value: object) -> None:
    """A parameter is a JSON scalar where it reads as one, else the text itself."""
    found = scalar(text)
    assert found == value
    assert type(found) is type(value)


def test_number_beyond_all_numbers() -> None:
    """A number that would silently become infinite is refused like Infinity itself."""
    with pytest.raises(InvalidRequest, match="1e400 is more than a number can hold"):
        parse(b'{"x": [1, 1e400]}')
