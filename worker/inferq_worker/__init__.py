"""What answers: models and the workers that run them."""

from inferq.contract.tensors import TensorSpec
from inferq_worker.model import Model, model

__all__ = ["Model", "TensorSpec", "model"]
