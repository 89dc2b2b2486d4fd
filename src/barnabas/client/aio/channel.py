"""Asyncio connection to one broker, with any number of requests in flight.

The protocol is in `session`, the socket is here, and requests in flight with their deadlines are in
`pending_requests`. When an answer is late the channel closes, because all later answers wait behind the
missing one. A closed channel stays closed; its requests fail with NETWORK_EXCEPTION, which is retriable.

`send` is awaited. `post` hands the answer to a function as it arrives, without another turn of the loop:
followers fetch with it.

A broker that throttles this client says for how long (KIP-219). `throttled_ms` is the time left; callers send
nothing meanwhile, and `send` waits.

A broker may limit the lifetime of an authentication. The channel then authenticates again in time. Requests
wait meanwhile, because a broker accepts none in between.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Self, TypeVar

from barnabas.client.aio.pending_requests import Awaited, Deadlines, Held, Posted
from barnabas.client.core.connect_errors import reason, unreachable
from barnabas.client.core.frames import BrokenStream
from barnabas.client.core.handshake import (
    Conversation,
    authenticate,
    authenticates_again_after_ms,
    open_session,
)
from barnabas.client.core.session import Session
from barnabas.client.security.settings import PLAINTEXT, Secured
from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.errors import KafkaError, RequestTimedOut
from barnabas.core.steps import Ended, advance
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.schema.declarations import Buffer
from barnabas.protocol.schema.message import Message
from barnabas.security.sasl.client import Login

Response = TypeVar("Response", bound=Message)

CONNECT_TIMEOUT_MS = 10_000
REQUEST_TIMEOUT_MS = 30_000
FINISH_TIMEOUT_MS = 5_000
SYSTEM_BUFFER = -1
"""Size of a socket's buffer that is left to the system."""


class Channel(asyncio.BufferedProtocol):
    """Connection that `connect` opens."""

    def __init__(
        self,
        address: Endpoint,
        client_id: str | None,
        request_timeout_ms: float = REQUEST_TIMEOUT_MS,
        login: Login | None = None,
    ) -> None:
        self.address = address
        self._login = login
        self._session: Session[Posted] = Session(address, client_id)
        self._request_timeout_ms = request_timeout_ms
        self._transport: asyncio.Transport | None = None
        self._closed_because: str | None = None
        self._deadlines = Deadlines(self._session.pending, self._time_out)
        self._is_paused = False
        self._is_writable = asyncio.Event()
        self._is_writable.set()
        self._held: list[Held] | None = None
        """Requests posted during a re-authentication. None without one."""
        self._authenticates_again: asyncio.TimerHandle | None = None
        self._authentication: asyncio.Task[None] | None = None
        self._is_disconnected = asyncio.Event()
        self._throttled_until_s = 0.0
        self.last_used_s = 0.0
        """Time of the last request or answer, by the clock of the loop."""

    @classmethod
    async def connect(
        cls,
        address: Endpoint,
        *,
        client_id: str | None = "barnabas",
        connect_timeout_ms: float = CONNECT_TIMEOUT_MS,
        request_timeout_ms: float = REQUEST_TIMEOUT_MS,
        security: Secured = PLAINTEXT,
        send_buffer_bytes: int = SYSTEM_BUFFER,
        receive_buffer_bytes: int = SYSTEM_BUFFER,
    ) -> Self:
        """Open a channel and settle the API versions, or raise NETWORK_EXCEPTION with the reason."""
        channel = cls(address, client_id, request_timeout_ms, security.login)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(connect_timeout_ms / 1_000):
                transport, _ = await loop.create_connection(
                    lambda: channel, address.host, address.port, ssl=security.tls
                )
        except (OSError, UnicodeError) as error:  # UnicodeError: a name that is no host name
            raise unreachable(address, error) from error
        stream = transport.get_extra_info("socket")
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if send_buffer_bytes != SYSTEM_BUFFER:
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
        if receive_buffer_bytes != SYSTEM_BUFFER:
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        channel._transport = transport
        try:
            await channel._converse(open_session(channel._session, security.login))
        except BaseException:
            channel.close()
            raise
        return channel

    @property
    def is_closed(self) -> bool:
        return self._closed_because is not None

    @property
    def api_versions(self) -> Mapping[int, tuple[int, int]]:
        return self._session.api_versions

    @property
    def finalized_features(self) -> Mapping[str, int]:
        """Level of each feature that all brokers of the cluster have."""
        return self._session.finalized_features

    @property
    def in_flight(self) -> int:
        """Requests without an answer yet."""
        return len(self._session.pending)

    @property
    def is_writable(self) -> bool:
        """False while the write buffer is full, or a re-authentication runs."""
        return self._is_writable.is_set()

    @property
    def throttled_ms(self) -> float:
        """Time for which the broker takes no requests of this client."""
        if not self._throttled_until_s:
            return 0.0
        return max(0.0, self._throttled_until_s - asyncio.get_running_loop().time()) * 1_000

    async def until_writable(self) -> None:
        """Wait until the write buffer has room, or the channel is closed."""
        await self._is_writable.wait()

    def supports(self, api_key: ApiKey) -> bool:
        return api_key in self._session.api_versions

    def version_for(self, request_class: type[Message], version_max: int | None = None) -> int:
        """Highest version of a request, up to `version_max`, that client and broker share."""
        return self._session.version_for(request_class, version_max)

    def close(self, because: str = "closed by this client") -> None:
        """Close at once and drop unsent bytes. Requests in flight fail with NETWORK_EXCEPTION."""
        if self._closed_because is None:
            self._give_up(because)
        if self._transport is not None:
            self._transport.abort()

    async def finish(self) -> None:
        """Close after all bytes are written. Otherwise requests without an answer would be lost."""
        if self._closed_because is None and self._transport is not None:
            self._give_up("closed by this client")
            self._transport.close()
            with suppress(TimeoutError):
                async with asyncio.timeout(FINISH_TIMEOUT_MS / 1_000):
                    await self._is_disconnected.wait()
        self.close()

    async def send(
        self,
        request: Message,
        response_class: type[Response],
        *,
        version_max: int | None = None,
        timeout_ms: float | None = None,
    ) -> Response:
        """Send a request and wait for its answer."""
        version = self._session.version_for(type(request), version_max)
        if timeout_ms is None:
            timeout_ms = self._request_timeout_ms
        if self._throttled_until_s and (throttled_ms := self.throttled_ms):
            await asyncio.sleep(throttled_ms / 1_000)
        if not self._is_writable.is_set():
            timeout_ms = await self._until_writable(type(request), timeout_ms)
        return await self._exchange(request, response_class, version, timeout_ms)

    async def send_unanswered(self, request: Message, *, version_max: int | None = None) -> None:
        """Send a request that has no answer: Produce with acks=0."""
        version = self._session.version_for(type(request), version_max)
        if not self._is_writable.is_set():
            await self._until_writable(type(request), self._request_timeout_ms)
        self._check_open()
        self._write(self._session.encode(request, version))

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
        """Send a request; exactly one of `answered` and `failed` is called later.

        The records of the answer are views of memory that is used again when `answered` returns.
        """
        pending = Posted(answered, failed)
        if self._held is None:
            self._ask(request, response_class, version, pending, timeout_ms)
        else:
            self._held.append(Held(request, response_class, version, pending, timeout_ms))

    def post_unanswered(self, request: Message, version: int) -> None:
        """Send a request that has no answer, without a wait. NETWORK_EXCEPTION on a closed channel. The
        caller has seen that the channel is writable.
        """
        self._check_open()
        self._write(self._session.encode(request, version))
        self.last_used_s = asyncio.get_running_loop().time()

    async def _until_writable(self, kind: type[Message], timeout_ms: float) -> float:
        """Wait until the write buffer has room; returns the time that is left."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_ms / 1_000
        try:
            async with asyncio.timeout_at(deadline_s):
                while not self._is_writable.is_set():
                    await self._is_writable.wait()
        except TimeoutError:
            assert kind.__schema__.api is not None
            api = kind.__schema__.api.camel_name
            message = f"{self.address} did not read {api} within {timeout_ms:.0f} ms"
            self.close(message)
            raise RequestTimedOut(message) from None
        return max(deadline_s - loop.time(), 0.0) * 1_000

    def _exchange(
        self, request: Message, response_class: type[Response], version: int, timeout_ms: float
    ) -> asyncio.Future[Response]:
        answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self._ask(request, response_class, version, Awaited(answer), timeout_ms)
        return answer

    def _ask(
        self,
        request: Message,
        response_class: type[Message],
        version: int,
        pending: Posted,
        timeout_ms: float,
    ) -> None:
        self._check_open()
        self._write(self._session.ask(request, response_class, version, pending))
        self._deadlines.set(pending, timeout_ms)
        self.last_used_s = asyncio.get_running_loop().time()

    def _write(self, parts: list[Buffer]) -> None:
        assert self._transport is not None
        # Not `writelines`: in asyncio of Python 3.12 and 3.13 it never asks the writer to pause.
        self._transport.write(parts[0] if len(parts) == 1 else b"".join(parts))

    async def _converse(self, conversation: Conversation) -> None:
        loop = asyncio.get_running_loop()
        step = advance(conversation)
        while not isinstance(step, Ended):
            answer = await self._exchange(*step, self._request_timeout_ms)
            if self._login is None:
                step = advance(conversation, answer)
            else:
                step = await loop.run_in_executor(None, advance, conversation, answer)
        self._check_open()
        if step.result:
            delay_s = authenticates_again_after_ms(step.result) / 1_000
            self._authenticates_again = loop.call_later(delay_s, self._authenticate_again)

    def _authenticate_again(self) -> None:
        assert self._login is not None
        self._held = []
        self._is_writable.clear()
        conversation = authenticate(self._session, self._login)
        self._authentication = asyncio.ensure_future(self._converse(conversation))
        self._authentication.add_done_callback(self._authenticated_again)

    def _authenticated_again(self, authentication: asyncio.Task[None]) -> None:
        error = None if authentication.cancelled() else authentication.exception()
        if authentication.cancelled() or error is not None:
            self.close(error.message if isinstance(error, KafkaError) else "the re-authentication failed")
        held, self._held = self._held or (), None
        for each in held:
            self._ask(*each)
        if not self._is_paused:
            self._is_writable.set()

    def _check_open(self) -> None:
        if self._closed_because is not None:
            raise self._session.lost(self._closed_because)

    def _give_up(self, because: str) -> None:
        self._closed_because = because
        self._deadlines.cancel()
        if self._authenticates_again is not None:
            self._authenticates_again.cancel()
        pending = [*self._session.pending, *(each.pending for each in self._held or ())]
        self._session.pending.clear()
        self._held = None
        for request in pending:
            request.failed(self._session.lost(because))

    def _throttle(self, throttle_ms: int) -> None:
        until_s = asyncio.get_running_loop().time() + throttle_ms / 1_000
        self._throttled_until_s = max(self._throttled_until_s, until_s)

    def _time_out(self, request: Posted) -> None:
        self._session.pending.remove(request)
        message = (
            f"{self.address} did not answer {request.api_key.camel_name} within {request.timeout_ms:.0f} ms"
        )
        request.failed(RequestTimedOut(message))
        self.close(message)

    # --- callbacks of the event loop ---

    def pause_writing(self) -> None:
        self._is_paused = True
        self._is_writable.clear()

    def resume_writing(self) -> None:
        self._is_paused = False
        if self._held is None:
            self._is_writable.set()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - the interface's name
        return self._session.frames.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            for pending, answer in self._session.received(nbytes):
                if self._closed_because is not None:
                    return
                throttle_ms = getattr(answer, "throttle_time_ms", 0)
                if throttle_ms > 0:
                    self._throttle(throttle_ms)
                pending.answered(answer)
        except BrokenStream as error:
            self.close(str(error))

    def connection_lost(self, exc: BaseException | None) -> None:
        self._is_writable.set()
        self._is_disconnected.set()
        self.close("it closed the connection" if exc is None else reason(exc))
