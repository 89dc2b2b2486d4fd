"""How a coordinator asks who is not on this broker: other brokers, and the coordination store.

The questions are coroutines; `node` runs them as tasks, and cancels them when the broker stops.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from barnabas.protocol.schema import Message

Response = TypeVar("Response", bound=Message)

Start = Callable[[Coroutine[Any, Any, None]], object]
"""Begins a task that nobody awaits."""


class Peers(Protocol):
    async def send(self, broker_id: int, request: Message, response_class: type[Response]) -> Response:
        """The answer of a live broker; BROKER_NOT_AVAILABLE if it is not one."""
        ...
