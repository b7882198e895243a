"""What answers: models and the workers that run them."""

from inferq.contract.tensors import TensorSpec
from inferq_worker.model import Model, model
from inferq_worker.server import InferenceMetrics, ModelServer
from inferq_worker.worker import Worker

__all__ = ["InferenceMetrics", "Model", "ModelServer", "TensorSpec", "Worker", "model"]
