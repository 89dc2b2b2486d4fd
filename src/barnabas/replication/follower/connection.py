"""Interface of a connection to another broker, as the replica fetcher needs it.

The server opens sockets (`client.aio.channel`). The simulator delivers messages on its own time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from barnabas.core.ids import BrokerId
from barnabas.protocol.schema.message import Message

Response = TypeVar("Response", bound=Message)


class Connection(Protocol):
    @property
    def is_closed(self) -> bool: ...
    def version_for(self, request_class: type[Message], version_max: int | None = None) -> int:
        """Highest version of a request, up to `version_max`, that both sides support."""
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
        """Send a request; later exactly one of `answered` and `failed` is called. Records in the response are
        views of memory that is reused after `answered` returns."""
        ...

    def close(self) -> None:
        """Close the connection; requests without an answer fail."""
        ...


OpenConnection = Callable[[BrokerId, Callable[[Connection], None], Callable[[Exception], None]], None]
"""Opens a connection to a broker; later at most one of the two callbacks is called."""
