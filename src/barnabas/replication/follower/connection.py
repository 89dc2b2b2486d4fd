"""What a follower needs of the network: a connection to another broker, handed in as time and files are.

The server opens sockets (`client.channel`), a simulator hands over messages on its own time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from barnabas.core.ids import BrokerId
from barnabas.protocol.schema import Message

Response = TypeVar("Response", bound=Message)


class Connection(Protocol):
    @property
    def is_closed(self) -> bool: ...
    def version_for(self, request_class: type[Message], version_max: int | None = None) -> int:
        """The highest version, up to `version_max`, that both sides have of a request."""
        ...

    def post(
        self,
        request: Message,
        response_class: type[Response],
        version: int,
        *,
        answered: Callable[[Response], None],
        failed: Callable[[Exception], None],
        timeout_ms: float,
    ) -> None:
        """Send a request; later exactly one of `answered` and `failed` is called. The records of the
        answer are views of memory that is used again when `answered` returns."""
        ...

    def close(self) -> None:
        """Whoever waits for an answer is told that it failed."""
        ...


OpenConnection = Callable[[BrokerId, Callable[[Connection], None], Callable[[Exception], None]], None]
"""Opens a connection to a broker; later at most one of both functions is called."""
