"""Fixtures of the integration tests; defined beside what they make."""

from support.producers import connect, producer
from support.workers import workers

__all__ = ["connect", "producer", "workers"]
