"""Blocking connection to one broker on a plain socket.

It serves callers with a thread of their own, such as Spark's tasks: an event loop gains nothing there. The
protocol is in `session`; the socket is here.

`post` and `take` are the two halves of `ask`. A reader posts its next fetch before it decodes the previous
answer, so that broker and network work meanwhile. Answers arrive in the order of their requests. Each answer
owns its memory for as long as the caller holds it.

A timeout covers a whole request or a whole answer, into however many pieces the peer cuts it.
"""

from __future__ import annotations

import math
import socket
import ssl
from collections import deque
from collections.abc import Sequence
from typing import Any, Final, Self, TypeVar

from barnabas.client.core.connect_errors import reason, unreachable
from barnabas.client.core.frames import Allocate, BrokenStream, zeroed
from barnabas.client.core.handshake import (
    Ask,
    Conversation,
    authenticate,
    authenticates_again_after_ms,
    open_session,
)
from barnabas.client.core.session import Pending, Session
from barnabas.client.security.settings import PLAINTEXT, Secured
from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.clock import Clock, SystemClock
from barnabas.core.errors import KafkaError, NetworkException
from barnabas.core.steps import drive
from barnabas.protocol.schema.declarations import Buffer
from barnabas.protocol.schema.message import Message
from barnabas.security.sasl.client import Login

Response = TypeVar("Response", bound=Message)

_BUFFERS_PER_SEND_MAX: Final = 512
"""Below the limit of every operating system for one `sendmsg`."""


class Connection:
    """Connection that `connect` opens. After any error it is closed and stays closed."""

    def __init__(
        self,
        stream: socket.socket,
        endpoint: Endpoint,
        session: Session[Pending],
        clock: Clock,
        timeout_ms: float,
        login: Login | None = None,
    ) -> None:
        self.endpoint = endpoint
        self.is_closed = False
        self._socket = stream
        self._session = session
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._login = login
        self._authenticates_again_ms = math.inf
        self._arrived: deque[Any] = deque()
        """Answers that `take` has not returned yet."""

    @classmethod
    def connect(
        cls,
        endpoint: Endpoint,
        *,
        client_id: str,
        software: str = "barnabas",
        connect_timeout_ms: float,
        request_timeout_ms: float,
        security: Secured = PLAINTEXT,
        allocate: Allocate = zeroed,
        clock: Clock | None = None,
    ) -> Self:
        """Open a connection and settle the API versions, or raise NETWORK_EXCEPTION with the reason."""
        try:
            stream = socket.create_connection(endpoint, connect_timeout_ms / 1_000)
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if security.tls is not None:
                stream = security.tls.wrap_socket(stream, server_hostname=endpoint.host)
        except (OSError, UnicodeError) as error:
            raise unreachable(endpoint, error) from error
        session: Session[Pending] = Session(endpoint, client_id, software=software, allocate=allocate)
        clock = clock or SystemClock()
        connection = cls(stream, endpoint, session, clock, connect_timeout_ms, security.login)
        try:
            connection._converse(open_session(session, security.login))
        except BaseException:
            connection.close()
            raise
        connection._timeout_ms = request_timeout_ms
        return connection

    def close(self) -> None:
        self.is_closed = True
        self._session.pending.clear()
        self._arrived.clear()
        self._socket.close()

    def version_for(self, request_class: type[Message], version_max: int | None = None) -> int:
        """Highest version of a request, up to `version_max`, that client and broker share."""
        return self._session.version_for(request_class, version_max)

    def ask(
        self, request: Message, response_class: type[Response], *, version_max: int | None = None
    ) -> Response:
        """Send a request and wait for its answer. Answers to posted requests are kept for `take`."""
        self.post(request, response_class, version_max=version_max)
        while self._session.pending:
            self._receive()
        answer = self._arrived.pop()
        assert isinstance(answer, response_class)
        return answer

    def post(
        self, request: Message, response_class: type[Message], *, version_max: int | None = None
    ) -> None:
        """Send a request. `take` returns its answer later."""
        version = self._session.version_for(type(request), version_max)
        if self._clock.monotonic_ms() >= self._authenticates_again_ms:
            self._authenticate_again()
        self._write(request, response_class, version)

    def take(self) -> Any:
        """Answer to the oldest posted request."""
        while not self._arrived:
            self._receive()
        return self._arrived.popleft()

    def _write(self, request: Message, response_class: type[Message], version: int) -> None:
        if self.is_closed:
            raise self._session.lost("closed by this client")
        try:
            self._send(self._session.ask(request, response_class, version, Pending()))
        except OSError as error:
            raise self._lost(reason(error)) from error

    def _receive(self) -> None:
        """Receive until the oldest open request has its answer. Further answers may arrive with it."""
        session = self._session
        if not session.pending:
            raise session.lost("closed by this client")
        open_requests, size = len(session.pending), 1
        deadline_ms = self._clock.monotonic_ms() + self._timeout_ms
        try:
            while size and len(session.pending) == open_requests:
                self._wait_until(deadline_ms)
                size = self._socket.recv_into(session.frames.get_buffer())
                self._arrived.extend(answer for _, answer in session.received(size))
        except TimeoutError as error:
            raise self._lost(f"it did not answer {session.pending[0].api_key.camel_name} in time") from error
        except (OSError, BrokenStream) as error:
            raise self._lost(reason(error)) from error
        if not size:
            raise self._lost("it closed the connection")

    def _lost(self, why: str) -> NetworkException:
        self.close()
        return self._session.lost(why)

    def _wait_until(self, deadline_ms: float) -> None:
        """Limit the socket's next call to the time that is left."""
        left_ms = deadline_ms - self._clock.monotonic_ms()
        if left_ms <= 0:
            raise TimeoutError
        self._socket.settimeout(left_ms / 1_000)

    def _send(self, parts: Sequence[Buffer]) -> None:
        deadline_ms = self._clock.monotonic_ms() + self._timeout_ms
        if isinstance(self._socket, ssl.SSLSocket):
            for part in parts:
                self._wait_until(deadline_ms)
                self._socket.sendall(part)
            return
        waiting = [memoryview(part) for part in parts]
        while waiting:
            self._wait_until(deadline_ms)
            sent = self._socket.sendmsg(waiting[:_BUFFERS_PER_SEND_MAX])
            done = 0
            while done < len(waiting) and sent >= len(waiting[done]):
                sent -= len(waiting[done])
                done += 1
            del waiting[:done]
            if sent:
                waiting[0] = waiting[0][sent:]

    def _authenticate_again(self) -> None:
        """Authenticate again (KIP-368) with no request in flight: posted requests are received first."""
        assert self._login is not None
        while self._session.pending:
            self._receive()
        try:
            self._converse(authenticate(self._session, self._login))
        except KafkaError:
            self.close()
            raise

    def _converse(self, conversation: Conversation) -> None:
        lifetime_ms = drive(conversation, self._answer_to)
        self._authenticates_again_ms = math.inf
        if lifetime_ms:
            delay_ms = authenticates_again_after_ms(lifetime_ms)
            self._authenticates_again_ms = self._clock.monotonic_ms() + delay_ms

    def _answer_to(self, step: Ask) -> Any:
        self._write(step.request, step.response_class, step.version)
        self._receive()
        return self._arrived.pop()
