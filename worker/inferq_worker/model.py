"""What a user writes: a model, as a class or as a decorated function.

A model declares its tensors per row and answers whole batches::

    class Digits(Model):
        inputs = [TensorSpec("pixels", "FP32", [64])]
        outputs = [TensorSpec("label", "INT64", [])]
        max_batch_size = 64

        def load(self):
            self.weights = np.load("weights.npy")

        def predict(self, pixels):             # FP32 [rows, 64]
            return {"label": (pixels @ self.weights).argmax(axis=1)}
"""

import importlib
import inspect
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from inferq.contract.description import ModelDescription
from inferq.contract.errors import InferqError, ModelUnfit
from inferq.contract.keys import check_model
from inferq.contract.tensors import TensorSpec, dtype_of


class Model:
    """Base class of models.

    What a model can rely on, and what it must keep:

    * ``load`` is called once, in the process that will run the model, before the first request.
    * ``predict`` gets one keyword per input: an array with a leading batch dimension of 1 to
      ``max_batch_size`` rows, which it owns and may change.
    * It returns a mapping of output name to array, or the bare array where there is one output,
      with exactly as many rows as it was given, in the same order.
    * Rows belong to different senders: row ``i`` of the result must depend on row ``i`` only.
    * If it takes a keyword ``parameters``, it gets the sender's parameters as a dict, and requests
      whose parameters differ never share a call.
    * An exception is an answer: the batch is run again in halves until the request at fault is
      alone, and only that one gets the error. So a call may be repeated.

    Attributes:
        name: how requests address the model; by default the class name in lower case.
        version: shown in metadata and replies; ``None`` for a model without versions.
        inputs, outputs: its tensors per row, without the batch dimension.
        max_batch_size: most rows in one call.
    """

    name: str | None = None
    version: str | None = None
    inputs: Sequence[TensorSpec] = ()
    outputs: Sequence[TensorSpec] = ()
    max_batch_size: int = 32

    def load(self) -> None:
        """Load weights, warm up; by default nothing."""

    def predict(self, *args: Any, **kwargs: Any) -> Any:
        """Answer one batch."""
        raise NotImplementedError(f"{type(self).__name__} has no predict()")


class FunctionModel(Model):
    """A model made from a function by :func:`model`; calling it calls the function."""

    def __init__(self, function: Callable[..., Any], **attributes: Any) -> None:
        self._function = function
        self.name = attributes.pop("name", None) or function.__name__.lower()
        for attribute, value in attributes.items():
            setattr(self, attribute, value)
        self.__doc__ = function.__doc__

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """Call the function as it was written."""
        return self._function(*arguments, **keywords)

    @property
    def predict(self) -> Callable[..., Any]:
        """The function itself, so that its signature says what it takes."""
        return self._function


def model(
    *,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    max_batch_size: int = Model.max_batch_size,
    name: str | None = None,
    version: str | None = None,
) -> Callable[[Callable[..., Any]], FunctionModel]:
    """Turn a function that answers a batch into a model.

    The function keeps the rules of :meth:`Model.predict`; see :class:`Model` for the arguments.
    """

    def wrap(function: Callable[..., Any]) -> FunctionModel:
        return FunctionModel(
            function,
            name=name,
            version=version,
            inputs=inputs,
            outputs=outputs,
            max_batch_size=max_batch_size,
        )

    return wrap


def model_name(target: Model) -> str:
    """Return the name a model goes by unless the command line gives another.

    Raises:
        InvalidRequest: the name is not allowed.
    """
    return check_model(target.name or type(target).__name__.lower())


def describe_model(target: Model, *, name: str, max_message_bytes: int) -> ModelDescription:
    """Return what the model promises, once its class attributes and signature are sound.

    Raises:
        ModelUnfit: it declares no tensors, or ``predict`` is missing or does not take its inputs.
    """
    try:
        description = ModelDescription(
            name=name,
            inputs=tuple(target.inputs),
            outputs=tuple(target.outputs),
            max_batch_size=target.max_batch_size,
            max_message_bytes=max_message_bytes,
            version=target.version,
        )
        for spec in (*description.inputs, *description.outputs):
            # BF16 needs a package that may be missing; better now than at the first request.
            dtype_of(spec.datatype)
    except (InferqError, TypeError) as error:
        raise ModelUnfit(str(error)) from None
    if inspect.iscoroutinefunction(target.predict):
        raise ModelUnfit(f"model '{name}': predict() must be an ordinary function, not async")
    if target.version is not None and not isinstance(target.version, str):
        raise ModelUnfit(f"model '{name}': version must be a string, got {target.version!r}")
    keywords: dict[str, Any] = {spec.name: None for spec in description.inputs}
    if takes_parameters(target):
        keywords["parameters"] = None
    try:
        _signature(target).bind(**keywords)
    except TypeError as error:
        raise ModelUnfit(
            f"model '{name}': predict() must take {', '.join(keywords)} as keywords ({error})"
        ) from None
    return description


def takes_parameters(target: Model) -> bool:
    """Tell whether ``predict`` asks for the sender's parameters."""
    is_tensor = "parameters" in {spec.name for spec in target.inputs}
    return not is_tensor and "parameters" in _signature(target).parameters


def _signature(target: Model) -> inspect.Signature:
    """Return the signature of ``predict``.

    Raises:
        ModelUnfit: there is no ``predict``, or Python cannot tell what it takes.
    """
    if getattr(target.predict, "__func__", None) is Model.predict:
        raise ModelUnfit(f"model {type(target).__name__} has no predict()")
    try:
        return inspect.signature(target.predict)
    except (TypeError, ValueError) as error:
        raise ModelUnfit(
            f"model {type(target).__name__}: cannot tell what predict() takes ({error})"
        ) from None


def import_model(target: str) -> Model:
    """Import ``MODULE:OBJECT``: a :class:`Model` class, an instance, or a decorated function.

    The working directory is on the import path, as with other servers that take such a target.

    Raises:
        ModelUnfit: the target does not import, or is no model; the message is one sentence.
    """
    module_name, colon, attribute = target.partition(":")
    if not (module_name and colon and attribute):
        raise ModelUnfit(f"target {target!r}: expected MODULE:OBJECT, such as digits:Digits")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(module_name)
        for part in attribute.split("."):
            found = getattr(found, part)
        if isinstance(found, type) and issubclass(found, Model):
            found = found()
    except (Exception, SystemExit) as error:
        raise ModelUnfit(f"target {target!r} does not import: {first_line(error)}") from error
    if not isinstance(found, Model):
        raise ModelUnfit(
            f"target {target!r} is a {type(found).__name__}: expected an inferq_worker.Model "
            "class or instance, or a function decorated with @model"
        )
    return found


def load_model(target: Model) -> None:
    """Call ``load``.

    Raises:
        ModelUnfit: it raised; the message is one sentence.
    """
    try:
        target.load()
    except (Exception, SystemExit) as error:
        raise ModelUnfit(
            f"model {type(target).__name__} does not load: {first_line(error)}"
        ) from error


def first_line(error: BaseException) -> str:
    """Return an exception as one line: its class and the first line of its text."""
    try:
        text = str(error).strip().partition("\n")[0]
    except Exception:  # noqa: BLE001 - the text is the model's code too
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
