"""Refusals of the service, with the HTTP code that Connect uses, and how an absent store shows."""

from __future__ import annotations

from barnabas.client.steps import ClusterUnreachable
from barnabas.core.errors import KafkaError

AWAY = (KafkaError, ClusterUnreachable, OSError)
"""How it is told that the store is out of reach; it will be asked again."""


class ServiceError(Exception):
    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
