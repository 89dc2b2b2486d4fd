"""Errors of single elements in a request for many.

Most administrative requests name several topics or resources. Each gets its own error code, and one failure
does not affect the others.
"""

from __future__ import annotations

import logging

from barnabas.core.clock import SystemClock
from barnabas.core.errors import NONE, KafkaError, UnknownServerError
from barnabas.core.reporting.log_text import cut
from barnabas.core.reporting.rate_limited_log import RateLimitedLogger

_limited_log = RateLimitedLogger(logging.getLogger(__name__), SystemClock())
"""Rate-limited, because a client that triggers a bug can repeat the request without end."""


def as_kafka_error(error: Exception, doing: str) -> KafkaError:
    """Error for the response. An unexpected one is logged, and its details are hidden from the client."""
    if isinstance(error, KafkaError):
        return error
    _limited_log.error("unforeseen", "%s failed", cut(doing), cause=error)
    return UnknownServerError("an unexpected error occurred; see the broker's log")


def code_and_message(error: KafkaError | None) -> tuple[int, str | None]:
    return (NONE, None) if error is None else (error.code, error.message)


def partition_code_and_message(error: KafkaError | None) -> tuple[int, str | None]:
    """The same for a partition. Ten thousand of them repeat the name of their topic, which may have 32 KB."""
    return (NONE, None) if error is None else (error.code, cut(error.message))
