"""A client of a whole cluster under asyncio: a channel to each broker it talks to.

Who is asked what, and when again, is said by `cluster_state`; here it is done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from barnabas.client.channel import REQUEST_TIMEOUT_MS, Channel
from barnabas.client.cluster_state import ClusterState, Topic
from barnabas.client.retries import BACKOFF_MS_MAX, RETRY_TIMEOUT_MS, UNKNOWN_TOPIC_TIMEOUT_MS, spread
from barnabas.client.security_settings import PLAINTEXT, Secured
from barnabas.client.steps import ANY_BROKER, ClusterUnreachable, Pause, Step, Steps
from barnabas.core.clock import Clock
from barnabas.core.endpoints import Endpoint
from barnabas.core.errors import (
    InvalidConfig,
    KafkaError,
    LeaderNotAvailable,
    NetworkException,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanism,
)
from barnabas.core.ids import Randomness
from barnabas.protocol.messages.metadata import MetadataResponse

T = TypeVar("T")

CONNECT_TIMEOUT_MS = 5_000


class ClusterClient:
    """Use it as a context: `async with ClusterClient(addresses, clock=…, randomness=…) as cluster`."""

    def __init__(
        self,
        bootstrap: Sequence[Endpoint],
        *,
        clock: Clock,
        randomness: Randomness,
        client_id: str = "barnabas",
        request_timeout_ms: float = REQUEST_TIMEOUT_MS,
        retry_timeout_ms: float = RETRY_TIMEOUT_MS,
        security: Secured = PLAINTEXT,
    ) -> None:
        self.state = ClusterState(clock, randomness, retry_timeout_ms)
        self.clock = clock
        self.request_timeout_ms = request_timeout_ms
        self._bootstrap = tuple(bootstrap)
        self._randomness = randomness
        self._client_id = client_id
        self._security = security
        self._channels: dict[Endpoint, Channel] = {}

    async def __aenter__(self) -> Self:
        await self.any_channel()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        channels, self._channels = self._channels, {}
        await asyncio.gather(*(channel.finish() for channel in channels.values()))

    async def any_channel(self) -> Channel:
        """A channel to some broker: an open one if there is one. A password that one of them refuses is
        tried on no other."""
        for channel in self._channels.values():
            if not channel.is_closed:
                return channel
        failures: list[KafkaError] = []
        for address in (*self._bootstrap, *self.state.brokers.values()):
            try:
                return await self._channel(address)
            except (SaslAuthenticationFailed, UnsupportedSaslMechanism):
                raise
            except KafkaError as error:
                failures.append(error)
        for each in failures:
            if isinstance(each, InvalidConfig):
                raise each
        raise ClusterUnreachable([each.message for each in failures])

    async def channel_to(self, broker_id: int) -> Channel:
        address = self.state.brokers.get(broker_id)
        if address is None:
            raise LeaderNotAvailable(f"broker {broker_id} is not in the cluster now")
        try:
            return await self._channel(address)
        except NetworkException as error:
            raise NetworkException(
                f"broker {broker_id} is advertised at {address}, but {error.message}; if it runs, check its"
                " advertised.listeners"
            ) from None

    async def refresh(
        self, topics: Sequence[str] | None = None, *, auto_create: bool = False
    ) -> MetadataResponse:
        """Ask again about brokers and these topics, or all of them; the answer, errors and all."""
        return await self.run(self.state.refresh(topics, auto_create=auto_create))

    async def topic(
        self, name: str, *, auto_create: bool = False, unknown_timeout_ms: float | None = None
    ) -> Topic:
        """The topic with a leader for every partition; waits a moment for one that is being made.

        One that nobody knows is waited for if asking may create it, or as long as told.
        """
        if unknown_timeout_ms is None:
            unknown_timeout_ms = UNKNOWN_TOPIC_TIMEOUT_MS if auto_create else 0
        return await self.run_with_retries(
            lambda: self.state.topic(name, auto_create=auto_create),
            unknown_topic_timeout_ms=unknown_timeout_ms,
        )

    async def run_with_retries(
        self, attempt: Callable[[], Steps[T]], *, unknown_topic_timeout_ms: float = UNKNOWN_TOPIC_TIMEOUT_MS
    ) -> T:
        steps = self.state.retrying(attempt, unknown_topic_timeout_ms=unknown_topic_timeout_ms)
        return await self.run(steps)

    async def run(self, steps: Steps[T]) -> T:
        """The outcome of a conversation."""
        try:
            step = next(steps)
            while True:
                try:
                    answer = await self._do(step)
                except (KafkaError, ClusterUnreachable) as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(answer)
        except StopIteration as end:
            outcome: T = end.value
            return outcome

    async def _do(self, step: Step) -> Any:
        if isinstance(step, Pause):
            return await asyncio.sleep(step.ms / 1_000)
        if step.broker_id == ANY_BROKER:
            channel = await self.any_channel()
        else:
            channel = await self.channel_to(step.broker_id)
        return await channel.send(
            step.request, step.response_class, version_max=step.version_max, timeout_ms=step.timeout_ms
        )

    async def pause(self, pause_ms: float) -> float:
        """Wait about `pause_ms`; returns how long to wait the next time."""
        await asyncio.sleep(spread(pause_ms, self._randomness) / 1_000)
        return min(2 * pause_ms, BACKOFF_MS_MAX)

    async def _channel(self, address: Endpoint) -> Channel:
        channel = self._channels.get(address)
        if channel is None or channel.is_closed:
            channel = await Channel.connect(
                address,
                client_id=self._client_id,
                connect_timeout_ms=CONNECT_TIMEOUT_MS,
                request_timeout_ms=self.request_timeout_ms,
                security=self._security,
            )
            self._channels[address] = channel
        return channel
