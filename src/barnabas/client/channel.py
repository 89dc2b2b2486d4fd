"""One connection to one broker under asyncio: requests out, answers in, any number in flight.

The protocol is `session`'s, here is the socket, and those who wait, and until when, are in `waiting`. When an
answer does not come in time the channel closes, because whatever follows would wait behind the missing one.
A closed channel stays closed; everyone still waiting gets NETWORK_EXCEPTION, which is retriable.

`send` is awaited. `post` hands the answer to a function as it arrives, with no turn of the loop
between: a follower lives by it.

A broker may let an authentication stand for a while only. The channel then authenticates again by itself,
in good time; what is to be sent meanwhile waits, because a broker takes nothing else in between.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Self, TypeVar

from barnabas.client.frames import BrokenStream
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
from barnabas.client.session import Session
from barnabas.client.waiting import Awaited, Deadlines, Held, Posted
from barnabas.core.endpoints import Endpoint
from barnabas.core.errors import KafkaError, RequestTimedOut
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.declarations import Buffer
from barnabas.protocol.schema import Message
from barnabas.security.sasl.client import Login

Response = TypeVar("Response", bound=Message)

CONNECT_TIMEOUT_MS = 10_000
REQUEST_TIMEOUT_MS = 30_000
FINISH_TIMEOUT_MS = 5_000


class Channel(asyncio.BufferedProtocol):
    """Open one with `connect`."""

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
        """What was posted while the channel authenticates again; None when it does not."""
        self._authenticates_again: asyncio.TimerHandle | None = None
        self._authentication: asyncio.Task[None] | None = None
        self._is_disconnected = asyncio.Event()

    @classmethod
    async def connect(
        cls,
        address: Endpoint,
        *,
        client_id: str | None = "barnabas",
        connect_timeout_ms: float = CONNECT_TIMEOUT_MS,
        request_timeout_ms: float = REQUEST_TIMEOUT_MS,
        security: Secured = PLAINTEXT,
    ) -> Self:
        """A channel that knows what its broker speaks, or NETWORK_EXCEPTION that says why not."""
        channel = cls(address, client_id, request_timeout_ms, security.login)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(connect_timeout_ms / 1_000):
                transport, _ = await loop.create_connection(
                    lambda: channel, address.host, address.port, ssl=security.tls
                )
        except OSError as error:
            raise unreachable(address, error) from error
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
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
        if timeout_ms is None:
            timeout_ms = self._request_timeout_ms
        if not self._is_writable.is_set():
            timeout_ms = await self._until_writable(type(request), timeout_ms)
        return await self._exchange(request, response_class, version, timeout_ms)

    async def send_unanswered(self, request: Message, *, version_max: int | None = None) -> None:
        """Send a request that has no answer: produce with acks=0."""
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
        """Send a request; exactly one of `answered` and `failed` is called later. The records of the
        answer are views of memory that is used again when `answered` returns."""
        pending = Posted(answered, failed)
        if self._held is None:
            self._ask(request, response_class, version, pending, timeout_ms)
        else:
            self._held.append(Held(request, response_class, version, pending, timeout_ms))

    async def _until_writable(self, kind: type[Message], timeout_ms: float) -> float:
        """Until the peer has read enough of what was written; returns what is left of the time."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_ms / 1_000
        try:
            async with asyncio.timeout_at(deadline_s):
                while not self._is_writable.is_set():
                    await self._is_writable.wait()
        except TimeoutError:
            assert kind.__schema__.api is not None
            message = f"{self.address} took no {kind.__schema__.api.camel_name} within {timeout_ms:.0f} ms"
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

    def _write(self, parts: list[Buffer]) -> None:
        assert self._transport is not None
        # Not `writelines`: in asyncio of Python 3.12 and 3.13 it never asks the writer to pause.
        self._transport.write(parts[0] if len(parts) == 1 else b"".join(parts))

    async def _converse(self, conversation: Conversation) -> None:
        loop = asyncio.get_running_loop()
        step, answer = advance(conversation, None), None
        while isinstance(step, Ask):
            answer = await self._exchange(*step, self._request_timeout_ms)
            if self._login is None:
                step = advance(conversation, answer)
            else:
                step = await loop.run_in_executor(None, advance, conversation, answer)
        self._check_open()
        if step:
            delay_s = authenticates_again_after_ms(step) / 1_000
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
            self.close(error.message if isinstance(error, KafkaError) else "it could not authenticate again")
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

    def _time_out(self, request: Posted) -> None:
        self._session.pending.remove(request)
        message = (
            f"{self.address} did not answer {request.api_key.camel_name} within {request.timeout_ms:.0f} ms"
        )
        request.failed(RequestTimedOut(message))
        self.close(message)

    # -- what the loop calls ---------------------------------------------------------------------

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
                pending.answered(answer)
        except BrokenStream as error:
            self.close(str(error))

    def connection_lost(self, exc: BaseException | None) -> None:
        self._is_writable.set()
        self._is_disconnected.set()
        self.close("it closed the connection" if exc is None else reason(exc))
