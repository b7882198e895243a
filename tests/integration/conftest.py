"""Fixtures of the integration tests; defined beside what they make."""

from support.commands import inferq
from support.producers import connect, producer
from support.worker_programs import worker_programs
from support.workers import workers

__all__ = ["connect", "inferq", "producer", "worker_programs", "workers"]
