"""One connection to one broker under asyncio: requests out, answers in, any number in flight.

The protocol is `session`'s; here are the socket, the clock and those who wait. When an answer does not
come in time the channel closes, because whatever follows would wait behind the missing one. A closed
channel stays closed; everyone still waiting gets NETWORK_EXCEPTION, which is retriable.

`send` is awaited. `post` hands the answer to a function as it arrives, with no turn of the loop
between: a follower lives by it.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Self, TypeVar

from barnabas.client.frames import BrokenStream
from barnabas.client.reasons import reason
from barnabas.client.session import API_VERSIONS_FIRST_TRIED, Pending, Session
from barnabas.core.endpoints import Endpoint
from barnabas.core.errors import NetworkException, RequestTimedOut
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.declarations import Buffer
from barnabas.protocol.messages.api_versions import ApiVersionsResponse
from barnabas.protocol.schema import Message

Response = TypeVar("Response", bound=Message)

CONNECT_TIMEOUT_MS = 10_000
REQUEST_TIMEOUT_MS = 30_000
FINISH_TIMEOUT_MS = 5_000


class _Posted(Pending):
    """Whose answer goes to a function, which keeps nothing of the frame."""

    __slots__ = ("answered", "deadline_s", "failed", "timeout_ms")

    gives_memory_back = True

    def __init__(self, answered: Callable[[Any], None], failed: Callable[[Exception], None]) -> None:
        self.answered = answered
        self.failed = failed
        self.timeout_ms = self.deadline_s = 0.0


class _Awaited(_Posted):
    """One whose answer somebody awaits, and keeps. It is part of no cycle: an answer may be megabytes, which
    are to be freed with the last reference, and not when the collector comes by."""

    __slots__ = ()

    gives_memory_back = False

    def __init__(self, answer: asyncio.Future[Any]) -> None:
        super().__init__(partial(_set_result, answer), partial(_set_exception, answer))


def _set_result(future: asyncio.Future[Any], answer: Message) -> None:
    if not future.done():
        future.set_result(answer)


def _set_exception(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)


class Channel(asyncio.BufferedProtocol):
    """Open one with `connect`."""

    def __init__(
        self, address: Endpoint, client_id: str | None, request_timeout_ms: float = REQUEST_TIMEOUT_MS
    ) -> None:
        self.address = address
        self._session: Session[_Posted] = Session(address, client_id)
        self._request_timeout_ms = request_timeout_ms
        self._transport: asyncio.Transport | None = None
        self._closed_because: str | None = None
        self._deadline: asyncio.TimerHandle | None = None
        """Looks at the requests that wait; not one for each of them."""
        self._is_writable = asyncio.Event()
        self._is_writable.set()
        self._is_disconnected = asyncio.Event()

    @classmethod
    async def connect(
        cls,
        address: Endpoint,
        *,
        client_id: str | None = "barnabas",
        connect_timeout_ms: float = CONNECT_TIMEOUT_MS,
        request_timeout_ms: float = REQUEST_TIMEOUT_MS,
        tls: ssl.SSLContext | None = None,
    ) -> Self:
        """A channel that knows what its broker speaks, or NETWORK_EXCEPTION that says why not."""
        channel = cls(address, client_id, request_timeout_ms)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(connect_timeout_ms / 1_000):
                transport, _ = await loop.create_connection(
                    lambda: channel, address.host, address.port, ssl=tls
                )
        except (OSError, ssl.SSLError) as error:
            raise NetworkException(f"cannot reach {address} ({reason(error)})") from error
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        channel._transport = transport
        try:
            await channel._settle_versions()
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

    def supports(self, api_key: ApiKey) -> bool:
        return api_key in self._session.api_versions

    def version_for(self, request_class: type[Message], version_max: int | None = None) -> int:
        """The highest version, up to `version_max`, that both sides have of a request."""
        return self._session.version_for(request_class, version_max)

    def close(self, because: str = "closed here") -> None:
        """Close at once, unsent bytes and all; whoever waits for an answer gets NETWORK_EXCEPTION."""
        if self._closed_because is None:
            self._give_up(because)
        if self._transport is not None:
            self._transport.abort()

    async def finish(self) -> None:
        """Close once everything written has left: requests without an answer would be lost otherwise."""
        if self._closed_because is None and self._transport is not None:
            self._give_up("closed here")
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
        """The answer to `request`."""
        version = self._session.version_for(type(request), version_max)
        if not self._is_writable.is_set():
            timeout_ms = await self._until_writable(type(request), timeout_ms)
        return await self._exchange(request, response_class, version, timeout_ms)

    async def send_unanswered(self, request: Message, *, version_max: int | None = None) -> None:
        """Send a request that has no answer: produce with acks=0."""
        version = self._session.version_for(type(request), version_max)
        if not self._is_writable.is_set():
            await self._until_writable(type(request))
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
        """Send a request; exactly one of `answered` and `failed` is called later. The records of the
        answer are views of memory that is used again when `answered` returns."""
        self._ask(request, response_class, version, _Posted(answered, failed), timeout_ms)

    async def _until_writable(self, kind: type[Message], timeout_ms: float | None = None) -> float:
        """Until the peer has read enough of what was written; returns what is left of the time."""
        loop = asyncio.get_running_loop()
        delay_ms = self._request_timeout_ms if timeout_ms is None else timeout_ms
        deadline_s = loop.time() + delay_ms / 1_000
        try:
            async with asyncio.timeout_at(deadline_s):
                await self._is_writable.wait()
        except TimeoutError:
            assert kind.__schema__.api is not None
            message = f"{self.address} took no {kind.__schema__.api.camel_name} within {delay_ms:.0f} ms"
            self.close(message)
            raise RequestTimedOut(message) from None
        return max(deadline_s - loop.time(), 0.0) * 1_000

    def _exchange(
        self, request: Message, response_class: type[Response], version: int, timeout_ms: float | None
    ) -> asyncio.Future[Response]:
        answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        delay_ms = self._request_timeout_ms if timeout_ms is None else timeout_ms
        self._ask(request, response_class, version, _Awaited(answer), delay_ms)
        return answer

    def _ask(
        self,
        request: Message,
        response_class: type[Message],
        version: int,
        pending: _Posted,
        timeout_ms: float,
    ) -> None:
        self._check_open()
        self._write(self._session.ask(request, response_class, version, pending))
        loop = asyncio.get_running_loop()
        delay_s = timeout_ms / 1_000
        pending.timeout_ms = timeout_ms
        pending.deadline_s = loop.time() + delay_s
        deadline = self._deadline
        if deadline is None or pending.deadline_s < deadline.when():
            if deadline is not None:
                deadline.cancel()
            self._deadline = loop.call_later(delay_s, self._look_at_deadlines)

    def _write(self, parts: list[Buffer]) -> None:
        assert self._transport is not None
        if len(parts) == 1:
            self._transport.write(parts[0])
        else:
            self._transport.writelines(parts)

    async def _settle_versions(self) -> None:
        session, version = self._session, API_VERSIONS_FIRST_TRIED
        while True:
            answer = await self._exchange(session.versions_request, ApiVersionsResponse, version, None)
            lower = session.settle_versions(version, answer)
            if lower is None:
                return
            version = lower

    def _check_open(self) -> None:
        if self._closed_because is not None:
            raise self._session.lost(self._closed_because)

    def _give_up(self, because: str) -> None:
        self._closed_because = because
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        pending = [*self._session.pending]
        self._session.pending.clear()
        for request in pending:
            request.failed(self._session.lost(because))

    def _look_at_deadlines(self) -> None:
        self._deadline = None
        pending = self._session.pending
        if not pending:
            return
        loop = asyncio.get_running_loop()
        first = min(pending, key=lambda each: each.deadline_s)
        if first.deadline_s > loop.time():
            self._deadline = loop.call_at(first.deadline_s, self._look_at_deadlines)
            return
        pending.remove(first)
        message = f"{self.address} did not answer {first.api_key.camel_name} within {first.timeout_ms:.0f} ms"
        first.failed(RequestTimedOut(message))
        self.close(message)

    # -- what the loop calls ---------------------------------------------------------------------

    def pause_writing(self) -> None:
        self._is_writable.clear()

    def resume_writing(self) -> None:
        self._is_writable.set()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - the interface's name
        return self._session.frames.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            for pending, answer in self._session.received(nbytes):
                if self._closed_because is not None:
                    return
                pending.answered(answer)
        except BrokenStream as error:
            self.close(str(error))

    def connection_lost(self, exc: BaseException | None) -> None:
        self._is_writable.set()
        self._is_disconnected.set()
        self.close("it closed the connection" if exc is None else reason(exc))
