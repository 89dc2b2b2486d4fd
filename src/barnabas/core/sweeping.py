"""What happens from time to time goes on happening, whatever one run or one element of it meets.

A broker looks after many things by passing over all of them now and then: logs, connections, transactions,
replicas. Two faults would turn an error in one of them into a standstill of all: a pass that ends there, so
that the elements behind it never have their turn, and a pass that is not asked for again. Against the first,
each element is looked at within `with sweeping(what, element)`. Against the second, whoever runs passes asks
for the next one before this one begins, or catches what comes: `Scheduler.every`, `ShardTimers.every`.

What was caught is told with its traceback, at a bounded rate, since it may come back with every pass.
"""

from __future__ import annotations

import logging
from types import TracebackType

from barnabas.core.clock import SystemClock
from barnabas.core.complaints import Complaints
from barnabas.core.errors import KafkaError

logger = logging.getLogger(__name__)

_complaints = Complaints(logger, SystemClock())


class sweeping:  # noqa: N801 - read as a statement
    """`what` is one of few names in the code; `element` is only shown."""

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
    """A refusal that has a name is told in a line, anything else with where it came from."""
    if isinstance(error, KafkaError):
        _complaints.warn(what, "%s %s: %s", what, element, error.message)
    else:
        _complaints.error(what, "%s %s failed, and goes on", what, element, cause=error)
