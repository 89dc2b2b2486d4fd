"""Error isolation for periodic work: a failing element does not stop the others, or the next run.

A broker visits its logs, connections, transactions and replicas periodically. Two faults would turn an error
in one element into a standstill of all:
- a run that ends at the element, so that the elements behind it never have their turn. So each element is
  visited inside `with sweeping(what, element)`.
- a run that is not scheduled again. So a scheduler schedules the next run before this one begins, or catches
  its error: `Scheduler.every`, `ShardTimers.every`.

The log shows the error with its traceback, at a bounded rate, since each run may repeat it.
"""

from __future__ import annotations

import logging
from types import TracebackType

from barnabas.core.clock import SystemClock
from barnabas.core.errors import KafkaError
from barnabas.core.reporting.rate_limited_log import RateLimitedLogger

logger = logging.getLogger(__name__)

_limited_log = RateLimitedLogger(logger, SystemClock())


class sweeping:  # noqa: N801 - read as a statement
    """Logs an error of its body and ends it. `what` is one of few names in the code; `element` is only
    shown."""

    __slots__ = ("_element", "_what")

    def __init__(self, what: str, element: object = "") -> None:
        self._what = what
        self._element = element

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        complain(self._what, self._element, error)
        return True


def complain(what: str, element: object, error: Exception) -> None:
    """Log a KafkaError in one line, and any other error with its traceback."""
    if isinstance(error, KafkaError):
        _limited_log.warn(what, "%s %s: %s", what, element, error.message)
    else:
        _limited_log.error(what, "%s %s failed; the others continue", what, element, cause=error)
