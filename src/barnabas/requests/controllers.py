"""Requests that only the controller answers.

On one node this broker is the controller. In a cluster a client that asks another broker gets
NOT_CONTROLLER, looks up who the controller is, and asks there.
"""

from __future__ import annotations

from barnabas.core.errors import NotController
from barnabas.requests.context import RequestContext


def check_is_controller(context: RequestContext) -> None:
    controller = context.broker.controller
    if controller is not None and not controller.is_active:
        raise NotController("this is not the controller of this cluster")


class Deadline:
    """What is left of a request's `timeout_ms`, which counts for all that it asks for."""

    def __init__(self, context: RequestContext, timeout_ms: float) -> None:
        self._clock = context.broker.clock
        self._deadline_ms = self._clock.monotonic_ms() + timeout_ms

    def left_ms(self) -> float:
        return max(0.0, self._deadline_ms - self._clock.monotonic_ms())
