"""Connections of a client to brokers: opened on demand, shared, opened again with backoff, closed when idle.

- `to(address)` is the one way to a channel. Callers that ask at the same time share one attempt.
- After a failure the address rests: `reconnect.backoff.ms`, doubled up to `reconnect.backoff.max.ms`, spread
  by 20 %. A call during the rest waits for its end. `ready(addresses)` orders addresses by that end.
- The time limit of an attempt doubles too, up to `socket.connection.setup.timeout.max.ms`.
- A lane is a connection of its own to the same broker. Answers come in the order of requests, so a request
  behind a long Fetch waits for it. Heartbeats and commits have the lane `COORDINATOR`; requests that brokers
  hold back on purpose have the lanes `FETCH` and `JOINING`, and no other request is sent there.
- `close` ends attempts and channels, and leaves no task behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from barnabas.client.aio.channel import SYSTEM_BUFFER, Channel
from barnabas.client.config.settings import ClientSettings
from barnabas.client.core.client_errors import ClientClosed
from barnabas.client.core.retries import BACKOFF, spread
from barnabas.client.security.settings import PLAINTEXT, Secured
from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.backoff import Backoff
from barnabas.core.ids import Randomness

DATA: Final = "data"
COORDINATOR: Final = "coordinator"
FETCH: Final = "fetch"
JOINING: Final = "joining"
"""Lanes. JOINING is for requests that wait for a rebalance."""

_HELD_BACK: Final = frozenset({FETCH, JOINING})
"""Lanes whose answers may take as long as `fetch.max.wait.ms` or a rebalance."""

NEVER_IDLE_MS: Final = -1


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    client_id: str = "barnabas"
    request_timeout_ms: float = 30_000
    setup_timeout_ms: float = 5_000
    setup_timeout_max_ms: float = 5_000
    backoff: Backoff = BACKOFF
    idle_ms_max: float = NEVER_IDLE_MS
    send_buffer_bytes: int = SYSTEM_BUFFER
    receive_buffer_bytes: int = SYSTEM_BUFFER
    security: Secured = PLAINTEXT

    @classmethod
    def of(cls, settings: ClientSettings) -> ConnectionOptions:
        """Options from Kafka's properties. It reads the files of TLS and SASL."""
        return cls(
            client_id=settings.client_id,
            request_timeout_ms=settings.request_timeout_ms,
            setup_timeout_ms=settings.socket_connection_setup_timeout_ms,
            setup_timeout_max_ms=settings.socket_connection_setup_timeout_max_ms,
            backoff=Backoff(settings.reconnect_backoff_ms, settings.reconnect_backoff_max_ms),
            idle_ms_max=settings.connections_max_idle_ms,
            send_buffer_bytes=settings.send_buffer_bytes,
            receive_buffer_bytes=settings.receive_buffer_bytes,
            security=settings.security.secured(),
        )


Connect = Callable[[Endpoint, ConnectionOptions, float], Awaitable[Channel]]
"""Opens a channel to an address, within a time limit in milliseconds."""


async def connect_by_socket(address: Endpoint, options: ConnectionOptions, timeout_ms: float) -> Channel:
    return await Channel.connect(
        address,
        client_id=options.client_id,
        connect_timeout_ms=timeout_ms,
        request_timeout_ms=options.request_timeout_ms,
        security=options.security,
        send_buffer_bytes=options.send_buffer_bytes,
        receive_buffer_bytes=options.receive_buffer_bytes,
    )


@dataclass(slots=True)
class _Rest:
    """Failures of an address, and the end of its rest."""

    failures: int = 0
    until_s: float = 0.0


class Connections:
    def __init__(
        self, options: ConnectionOptions, randomness: Randomness, connect: Connect = connect_by_socket
    ) -> None:
        self.options = options
        self._randomness = randomness
        self._connect = connect
        self._channels: dict[tuple[Endpoint, str], Channel] = {}
        self._attempts: dict[tuple[Endpoint, str], asyncio.Task[Channel]] = {}
        self._rests: dict[Endpoint, _Rest] = {}
        self._idle_timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    def open_channel(self, address: Endpoint, lane: str = DATA) -> Channel | None:
        """Channel to an address if it is open now."""
        channel = self._channels.get((address, lane))
        return None if channel is None or channel.is_closed else channel

    def open_channels(self) -> list[Channel]:
        """Open channels on which an answer comes at once."""
        return [
            channel
            for (_, lane), channel in self._channels.items()
            if lane not in _HELD_BACK and not channel.is_closed
        ]

    def ready(self, addresses: Iterable[Endpoint]) -> list[Endpoint]:
        """Addresses, the one whose rest ends first at the front."""
        return sorted(addresses, key=lambda each: self._rests.get(each, _Rest()).until_s)

    async def to(self, address: Endpoint, lane: str = DATA) -> Channel:
        """Channel to an address. NETWORK_EXCEPTION, or the fault of the login, when there is none.
        `ClientClosed` after `close`: it is not retried, so that no call waits for its timeout.
        """
        channel = self.open_channel(address, lane)
        if channel is not None:
            return channel
        if self._is_closed:
            raise closed()
        attempt = self._attempts.get((address, lane))
        if attempt is None:
            attempt = asyncio.get_running_loop().create_task(self._open(address, lane))
            self._attempts[address, lane] = attempt
            attempt.add_done_callback(lambda done: self._attempted(address, lane, done))
        try:
            # A caller that gives up must not take the attempt from the others.
            return await asyncio.shield(attempt)
        except asyncio.CancelledError:
            if self._is_closed and attempt.cancelled():
                raise closed() from None
            raise

    def check_open(self) -> None:
        if self._is_closed:
            raise closed()

    async def close(self) -> None:
        self._is_closed = True
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        attempts: Sequence[asyncio.Task[Channel]] = list(self._attempts.values())
        for attempt in attempts:
            attempt.cancel()
        if attempts:
            await asyncio.wait(attempts)
        channels, self._channels = self._channels, {}
        await asyncio.gather(*(channel.finish() for channel in channels.values()))

    def _attempted(self, address: Endpoint, lane: str, attempt: asyncio.Task[Channel]) -> None:
        del self._attempts[address, lane]
        if not attempt.cancelled():
            attempt.exception()  # a caller that gave up takes no exception

    async def _open(self, address: Endpoint, lane: str) -> Channel:
        loop = asyncio.get_running_loop()
        rest = self._rests.setdefault(address, _Rest())
        if rest.until_s > loop.time():
            await asyncio.sleep(rest.until_s - loop.time())
        limits = Backoff(self.options.setup_timeout_ms, self.options.setup_timeout_max_ms)
        try:
            channel = await self._connect(address, self.options, limits.after_ms(rest.failures))
        except Exception:  # a fault of a library rests too: the callers try again at once
            pause_ms = spread(self.options.backoff.after_ms(rest.failures), self._randomness)
            rest.failures += 1
            rest.until_s = loop.time() + pause_ms / 1_000
            raise
        self._rests.pop(address, None)
        self._channels[address, lane] = channel
        channel.last_used_s = loop.time()
        self._watch_idle()
        return channel

    def _watch_idle(self) -> None:
        if self.options.idle_ms_max == NEVER_IDLE_MS or self._idle_timer is not None:
            return
        loop = asyncio.get_running_loop()
        self._idle_timer = loop.call_later(self.options.idle_ms_max / 1_000 / 2, self._close_idle)

    def _close_idle(self) -> None:
        """Close idle channels; forget those that the broker has closed."""
        self._idle_timer = None
        limit_s = asyncio.get_running_loop().time() - self.options.idle_ms_max / 1_000
        for place, channel in list(self._channels.items()):
            if not channel.in_flight and channel.last_used_s <= limit_s:
                channel.close("idle")
            if channel.is_closed:
                del self._channels[place]
        if self._channels:
            self._watch_idle()


def closed() -> ClientClosed:
    return ClientClosed("this client is closed")
