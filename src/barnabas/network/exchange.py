"""One request that awaits its one answer.

The network makes an exchange for each frame and hands it to `dispatch`. Whoever holds it may
answer during that call or at any later time on the loop's thread; the connection keeps the
answers in the order of the requests. Exactly one of `respond`, `respond_and_close`,
`respond_nothing` and `close` ends an exchange. A connection that has gone meanwhile makes
all of them do nothing, so handlers need not ask.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from barnabas.core.regions import FileRegion
from barnabas.security.principal import KafkaPrincipal

Part = bytes | bytearray | memoryview | FileRegion


class Loan(Protocol):
    """A frame that stays where it was received, for a while."""

    def give_back(self) -> None: ...


class ExchangeConnection(Protocol):
    """What handlers see of the connection on which a request came."""

    connection_id: str
    listener_name: str
    security_protocol: str
    peer_host: str
    local_host: str
    local_port: int
    session: object

    @property
    def principal(self) -> KafkaPrincipal:
        """Who the peer is, as far as it has shown."""
        ...

    @property
    def closed(self) -> bool: ...

    def authenticated(self, principal: KafkaPrincipal) -> None:
        """The peer has shown who it is: what bounds the others holds for it no more."""
        ...

    def has_company(self) -> bool:
        """Whether anybody else was served since this was asked last."""
        ...

    def throttle(self, delay_ms: float) -> None:
        """Take no further request for this long; answers still leave."""
        ...


class AnswerSink(ExchangeConnection, Protocol):
    """What an exchange needs of its connection besides."""

    def answered(self, exchange: Exchange) -> None: ...
    def hold(self) -> None: ...
    def keep(self, frame: memoryview) -> memoryview: ...
    def lend(self) -> Loan | None: ...
    def refuse(self, reason: str) -> None: ...


Dispatch = Callable[["Exchange", memoryview], None]
"""Takes one frame (without its size). The view is valid during the call only: the bytes behind it are
received over afterwards, unless `Exchange.keep` is asked. It is writable, and nobody else reads it."""


class Gate(Protocol):
    """What stands before a listener whose clients authenticate by requests (SASL)."""

    frame_bytes_max: int
    """The largest request of a peer that has not authenticated."""

    def admit(self, connection: ExchangeConnection) -> Dispatch:
        """What takes the requests of a new connection, for as long as it lives. It is on the gate to
        close a connection that does not authenticate as it should, but for one that takes too long."""
        ...


class Exchange:
    __slots__ = ("close_reason", "connection", "held", "kept", "loan", "parts", "received_ms")

    def __init__(self, connection: AnswerSink, received_ms: float) -> None:
        self.connection = connection
        self.received_ms = received_ms
        self.parts: Sequence[Part] | None = None
        self.held = False
        self.kept = False
        self.loan: Loan | None = None
        self.close_reason: str | None = None

    def respond(self, parts: Sequence[Part]) -> None:
        """Answer with these parts, one after the other; the network puts the size before them.

        The parts must not change until they are sent, which may be long after this call: a
        view of the request's frame is not a valid part.
        """
        assert self.parts is None, "an exchange is answered once"
        self.parts = parts
        self.connection.answered(self)

    def respond_nothing(self) -> None:
        """The request is done and has no answer (acks=0)."""
        self.respond(())

    def respond_and_close(self, parts: Sequence[Part], reason: str) -> None:
        """Answer, and close the connection when the answer has left."""
        self.close_reason = reason
        self.respond(parts)

    def close(self, reason: str) -> None:
        """Close the connection instead of answering. `reason` is for the log: a rule, no payload."""
        self.connection.refuse(reason)

    def hold(self) -> None:
        """Dispatch no further request of this connection until this one is answered."""
        if not self.held and self.parts is None:
            self.held = True
            self.connection.hold()

    def keep(self, frame: memoryview) -> memoryview:
        """The whole frame that is being dispatched, valid for as long as anybody holds the result."""
        kept = self.connection.keep(frame)
        self.kept = True
        return kept

    def keep_piece(self, piece: memoryview) -> memoryview:
        """The same for a piece of it, such as the records of one partition."""
        return piece if self.kept else self.connection.keep(piece)

    def lend_piece(self, piece: memoryview) -> memoryview:
        """The same until `give_back`, of a frame that is being dispatched: a buffer that is given back need
        not be made again."""
        if self.kept:
            return piece
        if self.loan is None:
            self.loan = self.connection.lend()
        return self.connection.keep(piece) if self.loan is None else piece

    def give_back(self) -> None:
        """Nobody reads what was lent any more."""
        loan, self.loan = self.loan, None
        if loan is not None:
            loan.give_back()
