"""What a user writes: models as classes, instances and decorated functions."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from inferq.contract.errors import InvalidRequest, InvalidSetting, ModelUnfit
from inferq_worker import Model, TensorSpec, model
from inferq_worker.model import (
    describe_model,
    first_line,
    import_model,
    load_model,
    model_name,
    takes_parameters,
)
from support.batches import Echo

INPUTS = [TensorSpec("x", "FP32", [2])]
OUTPUTS = [TensorSpec("y", "FP32", [2])]

SOURCE = """
from inferq_worker import Model, TensorSpec, model

class Echo(Model):
    inputs = [TensorSpec("x", "FP32", [2])]
    outputs = [TensorSpec("y", "FP32", [2])]
    def predict(self, x): return x

class Needy(Echo):
    def __init__(self, path): ...

class Group:
    inner = Echo()

instance = Echo()
instance.name = "given"

@model(inputs=Echo.inputs, outputs=Echo.outputs)
def Twice(x): return x * 2

def plain(x): return x
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory whose modules are forgotten after the test."""
    monkeypatch.chdir(tmp_path)
    path, modules = list(sys.path), set(sys.modules)
    yield tmp_path
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def predicting(predict: Any) -> Echo:
    """Return a model of this predict."""
    made = Echo()
    made.__dict__["predict"] = predict
    return made


def describe(target: Model) -> Any:
    return describe_model(target, name="m", max_message_bytes=1_000)


class TestDecorator:
    def test_function_becomes_a_model(self) -> None:
        """A decorated function is a model with what the decorator said, and its own predict."""

        @model(inputs=INPUTS, outputs=OUTPUTS, max_batch_size=7, version="3")
        def Twice(x: Any) -> Any:  # noqa: N802 - a name with a capital
            """Double it."""
            return x * 2

        assert isinstance(Twice, Model)
        assert (Twice.name, Twice.version, Twice.max_batch_size) == ("twice", "3", 7)
        assert Twice.__doc__ == "Double it."
        assert Twice.predict(x=4) == 8

    def test_it_can_still_be_called(self) -> None:
        """The function can be called as it was written, by place or keyword."""

        @model(inputs=INPUTS, outputs=OUTPUTS)
        def twice(x: int, *, more: int = 0) -> int:
            return x * 2 + more

        assert twice(4, more=1) == 9

    def test_defaults(self) -> None:
        """Without a word about them, batch size and version are those of any model."""

        @model(inputs=INPUTS, outputs=OUTPUTS)
        def plain(x: Any) -> Any:
            return x

        assert (plain.max_batch_size, plain.version) == (Model.max_batch_size, None)


class TestName:
    def test_class_name_in_lower_case(self) -> None:
        """A class goes by its own name in lower case."""
        assert model_name(Echo()) == "echo"

    def test_attribute(self) -> None:
        """The name attribute comes before the class name, and keeps its case."""
        named = Echo()
        named.name = "My-Model.v2"
        assert model_name(named) == "My-Model.v2"

    def test_argument_of_the_decorator(self) -> None:
        """The decorator's name comes before the function's."""

        @model(inputs=INPUTS, outputs=OUTPUTS, name="other")
        def plain(x: Any) -> Any:
            return x

        assert model_name(plain) == "other"

    @pytest.mark.parametrize("name", ["two words", "a:b", "{a}", "-a", "a\n", "stats", "x" * 129])
    def test_names_that_are_not_allowed(self, name: str) -> None:
        """A name that cannot be part of a key is refused, whoever chose it."""
        named = Echo()
        named.name = name
        with pytest.raises(InvalidRequest):
            model_name(named)


class TestDescription:
    def test_what_it_tells(self) -> None:
        """The description holds the model's tensors, limits and version."""
        described = describe(Echo())
        assert described.inputs == tuple(Echo.inputs)
        assert described.outputs == tuple(Echo.outputs)
        assert (described.max_batch_size, described.max_message_bytes) == (64, 1_000)

    @pytest.mark.parametrize(
        ("attribute", "value", "sentence"),
        [
            ("inputs", [], "inputs lists no tensor"),
            ("outputs", [], "outputs lists no tensor"),
            ("inputs", INPUTS * 2, "inputs names a tensor twice"),
            ("inputs", 5, "'int' object is not iterable"),
            ("max_batch_size", 0, "max_batch_size must be a whole number from 1, got 0"),
            ("max_batch_size", True, "max_batch_size must be a whole number from 1, got True"),
            ("max_batch_size", "8", "max_batch_size must be a whole number from 1, got '8'"),
        ],
    )
    def test_attributes_that_are_unsound(self, attribute: str, value: Any, sentence: str) -> None:
        """A model that declares nonsense is refused with a sentence before it is loaded."""
        unsound = Echo()
        setattr(unsound, attribute, value)
        with pytest.raises(ModelUnfit, match=sentence):
            describe(unsound)

    @pytest.mark.parametrize("shape", [[-2], [1.5], [True], ["8"]])
    def test_shapes_that_are_none(self, shape: Any) -> None:
        """A tensor's shape holds whole numbers and -1 only."""
        with pytest.raises(InvalidSetting, match="may hold whole numbers from 0, and -1"):
            TensorSpec("x", "FP32", shape)

    @pytest.mark.parametrize(
        "predict",
        [
            pytest.param(lambda: None, id="nothing"),
            pytest.param(lambda y: y, id="another name"),
            pytest.param(lambda x, y: (x, y), id="one too many"),
            pytest.param(lambda x, /: x, id="by place only"),
        ],
    )
    def test_predict_that_does_not_take_the_inputs(self, predict: Any) -> None:
        """A predict that would fail on every call is refused at the start, naming what it lacks."""
        with pytest.raises(ModelUnfit, match=r"predict\(\) must take x as keywords"):
            describe(predicting(predict))

    @pytest.mark.parametrize(
        "predict",
        [
            pytest.param(lambda x: x, id="by name"),
            pytest.param(lambda **tensors: tensors, id="any name"),
            pytest.param(lambda x, y=None: (x, y), id="with defaults"),
            pytest.param(lambda *, x: x, id="keyword only"),
        ],
    )
    def test_predict_that_takes_the_inputs(self, predict: Any) -> None:
        """Any signature that can be called with the inputs as keywords will do."""
        assert describe(predicting(predict)).inputs == tuple(Echo.inputs)

    def test_no_predict(self) -> None:
        """A class that forgot its predict is refused, although the base class has one."""

        class Forgetful(Model):
            inputs = INPUTS
            outputs = OUTPUTS

        with pytest.raises(ModelUnfit, match=r"model Forgetful has no predict\(\)"):
            describe(Forgetful())

    def test_predict_without_a_signature(self) -> None:
        """A predict that Python cannot tell the signature of is refused with a sentence."""

        class Opaque:
            __signature__ = "nobody knows"

            def __call__(self, x: Any) -> Any:
                return x

        with pytest.raises(ModelUnfit, match=r"cannot tell what predict\(\) takes"):
            describe(predicting(Opaque()))


class TestParameters:
    def test_asked_for_by_name(self) -> None:
        """A model gets the sender's parameters exactly if its predict names them."""
        asking = predicting(lambda x, parameters: (x, parameters))
        assert takes_parameters(asking)
        assert describe(asking)
        assert not takes_parameters(Echo())

    def test_not_for_any_keyword(self) -> None:
        """A predict that takes any keyword does not thereby ask for parameters."""
        assert not takes_parameters(predicting(lambda **tensors: tensors))

    def test_tensor_of_that_name(self) -> None:
        """An input called parameters is a tensor, as it was declared."""
        named = predicting(lambda parameters: parameters)
        named.inputs = [TensorSpec("parameters", "FP32", [2])]
        assert not takes_parameters(named)
        assert describe(named)


class TestImport:
    @pytest.mark.parametrize(
        ("target", "name"),
        [
            ("served_1:Echo", "echo"),
            ("served_1:instance", "given"),
            ("served_1:Twice", "twice"),
            ("served_1:Group.inner", "echo"),
        ],
    )
    def test_from_the_working_directory(self, folder: Path, target: str, name: str) -> None:
        """A class, an instance, a decorated function or a member of something is a model."""
        (folder / "served_1.py").write_text(SOURCE)
        found = import_model(target)
        assert isinstance(found, Model)
        assert model_name(found) == name

    @pytest.mark.parametrize(
        ("target", "sentence"),
        [
            ("served_2", "expected MODULE:OBJECT, such as digits:Digits"),
            (":Echo", "expected MODULE:OBJECT"),
            ("served_2:", "expected MODULE:OBJECT"),
            ("", "expected MODULE:OBJECT"),
            ("no_such_module:X", "ModuleNotFoundError: No module named 'no_such_module'"),
            ("served_2:Missing", "AttributeError: module 'served_2' has no attribute 'Missing'"),
            ("served_2:a:b", "AttributeError: module 'served_2' has no attribute 'a:b'"),
            ("served_2:Needy", "TypeError: Needy.__init__() missing 1 required"),
            ("served_2:plain", "is a function: expected an inferq_worker.Model class or instance"),
            ("served_2:SOME", "is a int: expected an inferq_worker.Model class or instance"),
            ("broken:X", "SyntaxError: "),
            ("raising:X", "ValueError: first line"),
            ("leaving:X", "SystemExit: 3"),
            ("..served_2:X", "does not import"),
        ],
    )
    def test_targets_that_are_none(self, folder: Path, target: str, sentence: str) -> None:
        """Whatever is wrong with a target is one line that names it and the reason."""
        (folder / "served_2.py").write_text(SOURCE + "\nSOME = 5\n")
        (folder / "broken.py").write_text("def f(:\n")
        (folder / "raising.py").write_text("raise ValueError('first line\\nsecond line')")
        (folder / "leaving.py").write_text("raise SystemExit(3)")
        with pytest.raises(ModelUnfit) as caught:
            import_model(target)
        said = str(caught.value)
        assert sentence in said
        assert repr(target) in said
        assert "\n" not in said


class TestLoad:
    def test_exception(self) -> None:
        """A load that fails is one line with the class of the model and of the exception."""

        class Broken(Echo):
            def load(self) -> None:
                raise OSError("no weights\nbut a traceback")

        with pytest.raises(ModelUnfit) as caught:
            load_model(Broken())
        assert str(caught.value) == "model Broken does not load: OSError: no weights"
        assert isinstance(caught.value.__cause__, OSError)

    def test_exit(self) -> None:
        """A load that calls exit is a model that does not load."""

        class Leaving(Echo):
            def load(self) -> None:
                sys.exit(2)

        with pytest.raises(ModelUnfit, match="SystemExit: 2"):
            load_model(Leaving())


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("one\ntwo"), "ValueError: one"),
        (ValueError("\n  one  \ntwo"), "ValueError: one  "),
        (ValueError(), "ValueError"),
        (KeyError("k"), "KeyError: 'k'"),
    ],
)
def test_first_line(error: BaseException, line: str) -> None:
    """An exception is shown as its class and the first line of its text."""
    assert first_line(error) == line


def test_first_line_of_an_error_that_cannot_be_shown() -> None:
    """An exception whose text raises is shown by its class."""

    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert first_line(Mute()) == "Mute"


def test_datatype_whose_package_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A BF16 model without ml-dtypes is unfit at the start, not at its first request."""
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)

    class Brain(Model):
        inputs = [TensorSpec("x", "BF16", [2])]
        outputs = [TensorSpec("y", "FP32", [])]

        def predict(self, x: Any) -> Any:
            return x

    with pytest.raises(ModelUnfit, match="ml-dtypes"):
        describe_model(Brain(), name="brain", max_message_bytes=1)


def test_unfit_promises() -> None:
    """An async predict and a version that is no text are found at the start."""

    class Later(Echo):
        async def predict(self, x: Any) -> Any:
            return x

    with pytest.raises(ModelUnfit, match="not async"):
        describe_model(Later(), name="m", max_message_bytes=1)
    numbered = Echo()
    numbered.version = 5  # type: ignore[assignment]
    with pytest.raises(ModelUnfit, match="version must be a string"):
        describe_model(numbered, name="m", max_message_bytes=1)
