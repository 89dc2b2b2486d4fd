"""Dead letters: records that failed for good, written to a topic of their own.

Key, value and headers are unchanged. Additional headers, named as in Kafka Connect, hold the coordinates of
the record and the error. A letter is acknowledged by all in-sync replicas before its record counts as done.
"""

from __future__ import annotations

import traceback
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from barnabas.client.extensions.records import Header, Record

PREFIX: Final = "__connect.errors."
TEXT_BYTES_MAX: Final = 4_000
"""Bound of the message and of the stack trace, each."""

Publish = Callable[[str, bytes | None, bytes | None, Sequence[Header]], Awaitable[object]]
"""Writes a record to a topic (key, value, headers), and returns when it is acknowledged."""


def letter_headers(record: Record[Any, Any], error: BaseException, name: str) -> list[Header]:
    """Headers of a letter: those of the record, then Connect's. `name` is the group."""
    kind = type(error)
    trace = "".join(traceback.format_exception(error))
    context = {
        "topic": record.topic,
        "partition": str(record.partition),
        "offset": str(record.offset),
        "connector.name": name,
        "task.id": "0",
        "stage": "TASK_PUT",
        "class.name": f"{kind.__module__}.{kind.__qualname__}",
        "exception.class.name": f"{kind.__module__}.{kind.__qualname__}",
        "exception.message": _cut(str(error)),
        "exception.stacktrace": _cut(trace, keeps_end=True),
    }
    return [*record.headers, *((PREFIX + key, text.encode()) for key, text in context.items())]


def _cut(text: str, *, keeps_end: bool = False) -> str:
    """At most TEXT_BYTES_MAX bytes of UTF-8."""
    data = text.encode(errors="replace")
    if len(data) > TEXT_BYTES_MAX:
        data = data[-TEXT_BYTES_MAX:] if keeps_end else data[:TEXT_BYTES_MAX]
    return data.decode(errors="ignore")
