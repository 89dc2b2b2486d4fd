"""One connection to one broker on a plain socket: a request out, its answer in.

For whoever has a thread of its own, as Spark's tasks have: nothing is gained by an event loop there. The
protocol is `session`'s; here is the socket.

`post` and `take` are the two halves of `ask`: a reader posts its next fetch before it decodes the
answer to the last one, so that the broker and the network work meanwhile. Answers come in the order of
the requests. Each answer has memory of its own for as long as somebody holds it.

An answer that is waited for, and a request that is sent, has its time as a whole, into however many pieces
the peer cuts it.
"""

from __future__ import annotations

import math
import socket
import ssl
from collections import deque
from collections.abc import Sequence
from typing import Any, Final, Self, TypeVar

from barnabas.client.frames import Allocate, BrokenStream, zeroed
from barnabas.client.opening import (
    Ask,
    Conversation,
    advance,
    authenticate,
    authenticates_again_after_ms,
    open_session,
)
from barnabas.client.reasons import reason, unreachable
from barnabas.client.security_settings import PLAINTEXT, Secured
from barnabas.client.session import Pending, Session
from barnabas.core.clock import Clock, SystemClock
from barnabas.core.endpoints import Endpoint
from barnabas.core.errors import KafkaError, NetworkException
from barnabas.protocol.declarations import Buffer
from barnabas.protocol.schema import Message
from barnabas.security.sasl.client import Login

Response = TypeVar("Response", bound=Message)

_BUFFERS_PER_SEND_MAX: Final = 512
"""Below every system's limit for one `sendmsg`."""


class Connection:
    """Open one with `connect`; after any error it is closed and stays so."""

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
        """Answers that are yet to be taken."""

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
        """A connection that knows what its broker speaks, or NETWORK_EXCEPTION that says why not."""
        try:
            stream = socket.create_connection(endpoint, connect_timeout_ms / 1_000)
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if security.tls is not None:
                stream = security.tls.wrap_socket(stream, server_hostname=endpoint.host)
        except OSError as error:
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
        """The highest version, up to `version_max`, that both sides have of a request."""
        return self._session.version_for(request_class, version_max)

    def ask(
        self, request: Message, response_class: type[Response], *, version_max: int | None = None
    ) -> Response:
        """The answer to `request`; those to what was posted before are kept for `take`."""
        self.post(request, response_class, version_max=version_max)
        while self._session.pending:
            self._receive()
        answer = self._arrived.pop()
        assert isinstance(answer, response_class)
        return answer

    def post(
        self, request: Message, response_class: type[Message], *, version_max: int | None = None
    ) -> None:
        """Send; the answer is to be taken later."""
        version = self._session.version_for(type(request), version_max)
        if self._clock.monotonic_ms() >= self._authenticates_again_ms:
            self._authenticate_again()
        self._write(request, response_class, version)

    def take(self) -> Any:
        """The answer to the oldest request that was posted."""
        while not self._arrived:
            self._receive()
        return self._arrived.popleft()

    def _write(self, request: Message, response_class: type[Message], version: int) -> None:
        if self.is_closed:
            raise self._session.lost("closed here")
        try:
            self._send(self._session.ask(request, response_class, version, Pending()))
        except OSError as error:
            raise self._lost(reason(error)) from error

    def _receive(self) -> None:
        """Until the answer to the oldest open request is there, and what came with it."""
        session = self._session
        if not session.pending:
            raise session.lost("closed here")
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
        """How long the socket's next call may take."""
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
        """With nothing else under way: what was posted is received first, for those who will take it."""
        assert self._login is not None
        while self._session.pending:
            self._receive()
        try:
            self._converse(authenticate(self._session, self._login))
        except KafkaError:
            self.close()
            raise

    def _converse(self, conversation: Conversation) -> None:
        step = advance(conversation, None)
        while isinstance(step, Ask):
            self._write(step.request, step.response_class, step.version)
            self._receive()
            step = advance(conversation, self._arrived.pop())
        self._authenticates_again_ms = math.inf
        if step:
            self._authenticates_again_ms = self._clock.monotonic_ms() + authenticates_again_after_ms(step)
