"""Exchange: one request that awaits its one response.

The network makes an exchange for each frame and passes it to `dispatch`. Its holder may respond during that
call or at any later time on the loop's thread. The connection keeps the responses in the order of the
requests. Exactly one of `respond`, `respond_and_close`, `respond_nothing` and `close` ends an exchange. On a
closed connection all of them do nothing, so handlers need not check.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from barnabas.core.regions import FileRegion
from barnabas.core.reporting.metrics import Histogram
from barnabas.security.identity.principal import KafkaPrincipal

UNKNOWN_SOFTWARE: Final = ("unknown", "unknown")
"""Of a client that has not named its software, as in Apache Kafka."""

Part = bytes | bytearray | memoryview | FileRegion


class Loan(Protocol):
    """A frame that stays in its receive buffer for a while."""

    def give_back(self) -> None: ...


class ExchangeConnection(Protocol):
    """The connection of a request, as handlers see it."""

    connection_id: str
    listener_name: str
    security_protocol: str
    peer_host: str
    local_host: str
    local_port: int
    session: object
    software: tuple[str, str]
    """Name and version of the client's software, once ApiVersions has named them."""

    @property
    def principal(self) -> KafkaPrincipal:
        """Authenticated principal of the client, or ANONYMOUS."""
        ...

    @property
    def closed(self) -> bool: ...

    def authenticated(self, principal: KafkaPrincipal) -> None:
        """The client has authenticated: the limits of unauthenticated clients no longer apply."""
        ...

    def others_served_since_last_call(self) -> bool:
        """Whether another connection was served since the last call, which this call becomes."""
        ...

    def throttle(self, delay_ms: float) -> None:
        """Take no further request for this long; responses still leave."""
        ...

    def when_closed(self, action: Callable[[], None]) -> None:
        """Call `action` when the connection ends, to free state that is kept for it."""
        ...


class AnswerSink(ExchangeConnection, Protocol):
    """The connection as an exchange sees it."""

    def answered(self, exchange: Exchange) -> None: ...
    def hold(self) -> None: ...
    def keep(self, frame: memoryview) -> memoryview: ...
    def lend(self) -> Loan | None: ...
    def refuse(self, reason: str) -> None: ...


Dispatch = Callable[["Exchange", memoryview], None]
"""Takes one frame, without its size.

The view is valid during the call only: the bytes are overwritten afterwards, unless `Exchange.keep` is
called. It is writable, and no other part reads it.
"""


class Gate(Protocol):
    """Authentication by requests (SASL) in front of a listener."""

    frame_bytes_max: int
    """Largest request of a client that has not authenticated."""

    def admit(self, connection: ExchangeConnection) -> Dispatch:
        """Dispatch for the requests of a new connection, for its lifetime.

        The gate closes a connection that fails to authenticate; the server closes one that takes too long.
        """
        ...


class Exchange:
    __slots__ = ("close_reason", "connection", "held", "kept", "loan", "parts", "received_ms", "total_time")

    def __init__(self, connection: AnswerSink, received_ms: float) -> None:
        self.connection = connection
        self.received_ms = received_ms
        """Arrival of the request (`arrivals`)."""
        self.total_time: Histogram | None = None
        """Observes the time from the arrival until the response is given to the socket."""
        self.parts: Sequence[Part] | None = None
        self.held = False
        self.kept = False
        self.loan: Loan | None = None
        self.close_reason: str | None = None

    def respond(self, parts: Sequence[Part]) -> None:
        """Respond with these parts, one after the other; the network adds the size.

        The parts must not change until they are sent, which may be long after this call. A view of the
        request's frame is therefore not a valid part.
        """
        assert self.parts is None, "an exchange is answered once"
        self.parts = parts
        self.connection.answered(self)

    def respond_nothing(self) -> None:
        """End a request that has no response (acks=0)."""
        self.respond(())

    def respond_and_close(self, parts: Sequence[Part], reason: str) -> None:
        """Respond, and close the connection when the response has left."""
        self.close_reason = reason
        self.respond(parts)

    def close(self, reason: str) -> None:
        """Close the connection instead of responding. `reason` is for the log: a rule, no payload."""
        self.connection.refuse(reason)

    def hold(self) -> None:
        """Dispatch no further request of this connection until this one is answered."""
        if not self.held and self.parts is None:
            self.held = True
            self.connection.hold()

    def keep(self, frame: memoryview) -> memoryview:
        """The whole frame that is being dispatched, valid for as long as the result is referenced."""
        kept = self.connection.keep(frame)
        self.kept = True
        return kept

    def keep_piece(self, piece: memoryview) -> memoryview:
        """A piece of the frame, such as the records of one partition, valid like the result of `keep`."""
        return piece if self.kept else self.connection.keep(piece)

    def lend_piece(self, piece: memoryview) -> memoryview:
        """A piece of the frame that is being dispatched, valid until `give_back`. A buffer that is given back
        need not be allocated again."""
        if self.kept:
            return piece
        if self.loan is None:
            self.loan = self.connection.lend()
        return self.connection.keep(piece) if self.loan is None else piece

    def give_back(self) -> None:
        """The lent pieces are no longer read."""
        loan, self.loan = self.loan, None
        if loan is not None:
            loan.give_back()
