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

import socket
import ssl
from collections import deque
from collections.abc import Sequence
from typing import Any, Final, Self, TypeVar

from barnabas.client.frames import Allocate, BrokenStream, zeroed
from barnabas.client.reasons import reason
from barnabas.client.session import API_VERSIONS_FIRST_TRIED, Pending, Session
from barnabas.core.clock import Clock, SystemClock
from barnabas.core.endpoints import Endpoint
from barnabas.core.errors import NetworkException
from barnabas.protocol.declarations import Buffer
from barnabas.protocol.messages.api_versions import ApiVersionsResponse
from barnabas.protocol.schema import Message

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
    ) -> None:
        self.endpoint = endpoint
        self.is_closed = False
        self._socket = stream
        self._session = session
        self._clock = clock
        self._timeout_ms = timeout_ms
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
        tls: ssl.SSLContext | None = None,
        allocate: Allocate = zeroed,
        clock: Clock | None = None,
    ) -> Self:
        """A connection that knows what its broker speaks, or NETWORK_EXCEPTION that says why not."""
        try:
            stream = socket.create_connection(endpoint, connect_timeout_ms / 1_000)
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if tls is not None:
                stream = tls.wrap_socket(stream, server_hostname=endpoint.host)
        except OSError as error:
            raise NetworkException(f"cannot reach {endpoint} ({reason(error)})") from error
        session: Session[Pending] = Session(endpoint, client_id, software=software, allocate=allocate)
        connection = cls(stream, endpoint, session, clock or SystemClock(), connect_timeout_ms)
        try:
            connection._settle_versions()
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
        self._post(request, response_class, self._session.version_for(type(request), version_max))

    def take(self) -> Any:
        """The answer to the oldest request that was posted."""
        while not self._arrived:
            self._receive()
        return self._arrived.popleft()

    def _post(self, request: Message, response_class: type[Message], version: int) -> None:
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

    def _settle_versions(self) -> None:
        session, version = self._session, API_VERSIONS_FIRST_TRIED
        while True:
            self._post(session.versions_request, ApiVersionsResponse, version)
            lower = session.settle_versions(version, self.take())
            if lower is None:
                return
            version = lower
