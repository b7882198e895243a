"""What asks: producers, the wire contract and the command line of inferq."""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from inferq.contract.errors import (
    AnswerError,
    BusyError,
    Cancelled,
    Crashed,
    Expired,
    InferqError,
    InvalidRequest,
    InvalidSetting,
    ModelError,
    ModelUnfit,
    NoReply,
    NotFound,
    NotReady,
    QueueFull,
    RequestError,
    ServerUnfit,
    SetupError,
    TooLarge,
    Unavailable,
)

if TYPE_CHECKING:
    from inferq.aio import AsyncHandle, AsyncProducer
    from inferq.contract.replies import Reply
    from inferq.contract.tensors import TensorSpec
    from inferq.producer import Handle, Producer

__all__ = [
    "AnswerError",
    "AsyncHandle",
    "AsyncProducer",
    "BusyError",
    "Cancelled",
    "Crashed",
    "Expired",
    "Handle",
    "InferqError",
    "InvalidRequest",
    "InvalidSetting",
    "ModelError",
    "ModelUnfit",
    "NoReply",
    "NotFound",
    "NotReady",
    "Producer",
    "QueueFull",
    "Reply",
    "RequestError",
    "ServerUnfit",
    "SetupError",
    "TensorSpec",
    "TooLarge",
    "Unavailable",
]

# Imported when they are first used: they bring numpy, pydantic and redis, which the command line's
# help and completion do without.
_ELSEWHERE: Final = {
    "AsyncHandle": "inferq.aio",
    "AsyncProducer": "inferq.aio",
    "Handle": "inferq.producer",
    "Producer": "inferq.producer",
    "Reply": "inferq.contract.replies",
    "TensorSpec": "inferq.contract.tensors",
}


def __getattr__(name: str) -> Any:
    if name not in _ELSEWHERE:
        raise AttributeError(f"module 'inferq' has no attribute '{name}'")
    return getattr(import_module(_ELSEWHERE[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
