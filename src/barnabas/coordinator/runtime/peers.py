"""Interfaces to other brokers, for coordinators.

Requests are coroutines; `node` runs them as tasks, and cancels them when the broker stops.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from barnabas.protocol.schema.message import Message

Response = TypeVar("Response", bound=Message)

Start = Callable[[Coroutine[Any, Any, None]], object]
"""Starts a task that is not awaited."""


class Peers(Protocol):
    async def send(self, broker_id: int, request: Message, response_class: type[Response]) -> Response:
        """Response of a live broker; BROKER_NOT_AVAILABLE if it is not live."""
        ...
