"""What asks: producers, the wire contract and the command line of inferq."""

from inferq.aio import AsyncHandle, AsyncProducer
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
