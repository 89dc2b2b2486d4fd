"""Errors of the service: refusals with Connect's HTTP code, and errors that mean an unreachable cluster."""

from __future__ import annotations

from barnabas.client.core.steps import ClusterUnreachable
from barnabas.core.errors import KafkaError

AWAY = (KafkaError, ClusterUnreachable, OSError)
"""Errors of a cluster that is out of reach for now; the operation is retried."""


class ServiceError(Exception):
    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
