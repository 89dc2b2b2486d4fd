"""Errors of single items in a request for many.

Most administrative requests name several topics or resources, and each gets its own error
code: one that fails must not spoil the others.
"""

from __future__ import annotations

import logging

from barnabas.core.clock import SystemClock
from barnabas.core.complaints import Complaints
from barnabas.core.errors import NONE, KafkaError, UnknownServerError
from barnabas.core.log_text import cut

_complaints = Complaints(logging.getLogger(__name__), SystemClock())
"""Whoever found a fault of ours can send the same request again and again."""


def as_kafka_error(error: Exception, doing: str) -> KafkaError:
    """The error to answer with; one that was not foreseen is logged and not shown to the client."""
    if isinstance(error, KafkaError):
        return error
    _complaints.error("unforeseen", "%s failed", cut(doing), cause=error)
    return UnknownServerError("the broker met an unexpected error; its log says more")


def code_and_message(error: KafkaError | None) -> tuple[int, str | None]:
    return (NONE, None) if error is None else (error.code, error.message)
