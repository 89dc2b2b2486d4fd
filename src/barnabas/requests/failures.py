"""Errors of single items in a request for many.

Most administrative requests name several topics or resources, and each gets its own error
code: one that fails must not spoil the others.
"""

from __future__ import annotations

import logging

from barnabas.core.errors import NONE, KafkaError, UnknownServerError

logger = logging.getLogger(__name__)


def as_kafka_error(error: Exception, doing: str) -> KafkaError:
    """The error to answer with; one that was not foreseen is logged and not shown to the client."""
    if isinstance(error, KafkaError):
        return error
    logger.error("%s failed", doing, exc_info=error)
    return UnknownServerError("the broker met an unexpected error; its log says more")


def code_and_message(error: KafkaError | None) -> tuple[int, str | None]:
    return (NONE, None) if error is None else (error.code, error.message)
