"""One connection to one broker: requests out, answers in, any number in flight.

A broker answers the requests of a connection in their order, so the open requests are a
queue and an answer whose correlation id is not the one at its head means that the two sides
no longer agree: the channel closes. It also closes when an answer does not come in time,
because whatever follows would wait behind the missing one. A closed channel stays closed;
everyone still waiting gets NETWORK_EXCEPTION, which is retriable.

`send` is awaited. `post` hands the answer to a function as it arrives, with no turn of the loop
between: a follower lives by it.

Versions are settled once, at the start: `send` takes the highest that both sides have.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, Self, TypeVar

from barnabas import __version__
from barnabas.client.frames import SIZE, FrameProtocol
from barnabas.core.errors import NetworkException, RequestTimedOut, UnsupportedVersion, error_for
from barnabas.core.regions import FileRegion
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import MalformedMessage
from barnabas.protocol.headers import encode_request, read_response_header
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.schema import Message

Response = TypeVar("Response", bound=Message)

CONNECT_TIMEOUT_MS = 10_000
REQUEST_TIMEOUT_MS = 30_000
FINISH_TIMEOUT_MS = 5_000
JOINED_BYTES_MAX = 64 * 1024
"""Up to here one copy into one buffer is cheaper than handing the kernel a list."""

_CORRELATION_ID_MAX = 0x7FFF_FFFF


class Address(NamedTuple):
    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """`HOST:PORT`, with an IPv6 host in brackets; ValueError says what is wrong."""
        host, colon, port = text.strip().rpartition(":")
        if not colon or not port.isdecimal() or not 0 < int(port) <= 65_535:
            raise ValueError(f"{text!r} is not of the form HOST:PORT")
        host = host.removeprefix("[").removesuffix("]")
        if not host:
            raise ValueError(f"{text!r} names no host")
        return cls(host, int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class _Pending:
    """A request that waits for its answer."""

    __slots__ = (
        "answered",
        "api_key",
        "correlation_id",
        "deadline_s",
        "failed",
        "response_class",
        "timeout_ms",
        "version",
    )

    is_done_with_frame = True
    """Whether nothing of the frame is held when `answered` returns."""

    def __init__(
        self,
        api_key: ApiKey,
        version: int,
        response_class: type[Message],
        answered: Callable[[Any], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self.api_key = api_key
        self.version = version
        self.response_class = response_class
        self.answered = answered
        self.failed = failed
        self.correlation_id = 0
        self.timeout_ms = self.deadline_s = 0.0


class _Awaited(_Pending):
    """One whose answer somebody awaits, and keeps. It is part of no cycle: an answer may be megabytes, which
    must go when the last who has it lets go, and not when the collector comes by."""

    __slots__ = ()

    is_done_with_frame = False

    def __init__(
        self, api_key: ApiKey, version: int, response_class: type[Message], answer: asyncio.Future[Any]
    ) -> None:
        super().__init__(
            api_key, version, response_class, partial(_set_result, answer), partial(_set_exception, answer)
        )


def _set_result(future: asyncio.Future[Any], answer: Message) -> None:
    if not future.done():
        future.set_result(answer)


def _set_exception(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)


class Channel:
    """Open one with `connect`."""

    def __init__(
        self, address: Address, client_id: str | None, request_timeout_ms: float = REQUEST_TIMEOUT_MS
    ) -> None:
        self.address = address
        self.client_id = client_id
        self.api_versions: Mapping[int, tuple[int, int]] = {}
        """Of each API key that the broker has, its lowest and highest version."""
        self._request_timeout_ms = request_timeout_ms
        self._protocol = FrameProtocol(self._on_frame, self._on_closed)
        self._transport: asyncio.Transport | None = None
        self._pending: deque[_Pending] = deque()
        self._correlation_id = 0
        self._closed_because: str | None = None
        self._deadline: asyncio.TimerHandle | None = None
        """Looks at the requests that wait; not one for each of them."""

    @classmethod
    async def connect(
        cls,
        address: Address,
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
                    lambda: channel._protocol, address.host, address.port, ssl=tls
                )
        except (OSError, ssl.SSLError) as error:
            raise NetworkException(f"cannot reach {address} ({_reason(error)})") from error
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

    def close(self, reason: str = "closed here") -> None:
        """Close at once, unsent bytes and all; whoever waits for an answer gets NETWORK_EXCEPTION."""
        if self._closed_because is None:
            self._give_up(reason)
        if self._transport is not None:
            self._transport.abort()

    async def finish(self) -> None:
        """Close once everything written has left: requests without an answer would be lost otherwise."""
        if self._closed_because is None and self._transport is not None:
            self._give_up("closed here")
            self._transport.close()
            with suppress(TimeoutError):
                async with asyncio.timeout(FINISH_TIMEOUT_MS / 1_000):
                    await self._protocol.closed.wait()
        self.close()

    def _give_up(self, reason: str) -> None:
        self._closed_because = reason
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        pending, self._pending = self._pending, deque()
        for request in pending:
            request.failed(self._gone())

    def supports(self, api_key: ApiKey) -> bool:
        return api_key in self.api_versions

    def version_for(self, request_class: type[Message], version_max: int | None = None) -> int:
        """The highest version, up to `version_max`, that both sides have of a request."""
        schema = request_class.__schema__
        assert schema.api is not None, "only requests have versions of their own"
        ours = schema.versions
        lowest, highest = self.api_versions.get(schema.api, (0, -1))
        version = min(highest, ours.last if version_max is None else min(ours.last, version_max))
        if version < max(lowest, ours.first):
            known = f"{lowest} to {highest}" if highest >= 0 else "none"
            raise UnsupportedVersion(
                f"{self.address} has no version of {schema.api.camel_name} that fits: it has {known}"
            )
        return version

    async def send(
        self,
        request: Message,
        response_class: type[Response],
        *,
        version_max: int | None = None,
        timeout_ms: float | None = None,
    ) -> Response:
        """The answer to `request`."""
        version = self.version_for(type(request), version_max)
        await self._protocol.writable()
        return await self._exchange(request, response_class, version, timeout_ms)

    async def send_unanswered(self, request: Message, *, version_max: int | None = None) -> None:
        """Send a request that has no answer: produce with acks=0."""
        version = self.version_for(type(request), version_max)
        await self._protocol.writable()
        self._write(request, version)

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
        api_key = request.__schema__.api
        assert api_key is not None
        self._ask(request, _Pending(api_key, version, response_class, answered, failed), timeout_ms)

    def _exchange(
        self, request: Message, response_class: type[Response], version: int, timeout_ms: float | None
    ) -> asyncio.Future[Response]:
        api_key = request.__schema__.api
        assert api_key is not None
        answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        delay_ms = self._request_timeout_ms if timeout_ms is None else timeout_ms
        self._ask(request, _Awaited(api_key, version, response_class, answer), delay_ms)
        return answer

    def _ask(self, request: Message, pending: _Pending, timeout_ms: float) -> None:
        pending.correlation_id = self._write(request, pending.version)
        loop = asyncio.get_running_loop()
        delay_s = timeout_ms / 1_000
        pending.timeout_ms = timeout_ms
        pending.deadline_s = loop.time() + delay_s
        self._pending.append(pending)
        deadline = self._deadline
        if deadline is None or pending.deadline_s < deadline.when():
            if deadline is not None:
                deadline.cancel()
            self._deadline = loop.call_later(delay_s, self._look_at_deadlines)

    def _write(self, request: Message, version: int) -> int:
        if self._closed_because is not None or self._transport is None:
            raise self._gone()
        api_key = request.__schema__.api
        assert api_key is not None
        correlation_id = self._correlation_id
        self._correlation_id = (correlation_id + 1) & _CORRELATION_ID_MAX
        parts = [
            part.read() if isinstance(part, FileRegion) else part
            for part in encode_request(api_key, version, correlation_id, self.client_id, request)
        ]
        size = sum(map(len, parts))
        if size <= JOINED_BYTES_MAX:
            self._transport.write(b"".join((SIZE.pack(size), *parts)))
        else:
            self._transport.writelines([SIZE.pack(size), *parts])
        return correlation_id

    def _on_frame(self, frame: memoryview) -> bool:
        if self._closed_because is not None:
            return False
        if not self._pending:
            self.close("it sent an answer that nobody asked for")
            return False
        request = self._pending[0]
        try:
            correlation_id, position = read_response_header(frame, request.api_key, request.version)
            if correlation_id != request.correlation_id:
                raise MalformedMessage(f"answer {correlation_id} came in place of {request.correlation_id}")
            version = _version_of_answer(request, frame, position)
            answer, _ = request.response_class.decoder(version)(frame, position)
        except MalformedMessage as error:
            self.close(f"its answer to {request.api_key.camel_name} makes no sense: {error}")
            return False
        self._pending.popleft()
        request.answered(answer)
        return request.is_done_with_frame

    def _on_closed(self, error: BaseException | None) -> None:
        self.close("it closed the connection" if error is None else _reason(error))

    def _look_at_deadlines(self) -> None:
        self._deadline = None
        if not self._pending:
            return
        loop = asyncio.get_running_loop()
        first = min(self._pending, key=lambda each: each.deadline_s)
        if first.deadline_s > loop.time():
            self._deadline = loop.call_at(first.deadline_s, self._look_at_deadlines)
            return
        self._pending.remove(first)
        message = f"{self.address} did not answer {first.api_key.camel_name} within {first.timeout_ms:.0f} ms"
        first.failed(RequestTimedOut(message))
        self.close(message)

    def _gone(self) -> NetworkException:
        return NetworkException(f"lost the connection to {self.address}: {self._closed_because}")

    async def _settle_versions(self) -> None:
        request = ApiVersionsRequest(client_software_name="barnabas", client_software_version=__version__)
        version = ApiVersionsRequest.__schema__.versions.last
        answer = await self._exchange(request, ApiVersionsResponse, version, None)
        if answer.error_code == UnsupportedVersion.code:
            offered = [row.max_version for row in answer.api_keys if row.api_key == ApiKey.API_VERSIONS]
            version = min(version - 1, *offered) if offered else 0
            answer = await self._exchange(request, ApiVersionsResponse, version, None)
        if answer.error_code:
            raise error_for(answer.error_code, f"{self.address} does not say which versions it speaks")
        self.api_versions = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}


def _version_of_answer(request: _Pending, frame: memoryview, position: int) -> int:
    """A broker that lacks our version of ApiVersions says so in version 0."""
    if request.api_key is ApiKey.API_VERSIONS:
        code = int.from_bytes(frame[position : position + 2], "big", signed=True)
        if code == UnsupportedVersion.code:
            return 0
    return request.version


def _reason(error: BaseException) -> str:
    """A few words for a person, in place of errno."""
    text = str(error)
    if isinstance(error, TimeoutError):
        return "timed out"
    if isinstance(error, socket.gaierror):
        return "unknown host"
    if isinstance(error, ConnectionRefusedError) or "Connect call failed" in text:
        return "connection refused"
    if isinstance(error, ConnectionResetError | BrokenPipeError):
        return "connection reset"
    return getattr(error, "strerror", None) or text or type(error).__name__
