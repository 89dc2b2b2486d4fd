"""A client of a whole cluster: finds brokers and leaders, and tries again.

It begins with any address that answers, learns the brokers and their partitions from there
(Metadata), keeps one channel to each broker it talks to, and forgets what it learned when an
answer says that it is stale. Errors that Kafka calls retriable are retried with growing,
jittered pauses until a deadline; everything else goes to the caller at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self, TypeVar

from barnabas.client.channel import REQUEST_TIMEOUT_MS, Channel, Response
from barnabas.core.clock import Clock
from barnabas.core.endpoints import Endpoint
from barnabas.core.errors import (
    KafkaError,
    LeaderNotAvailable,
    NetworkException,
    UnknownTopicOrPartition,
    error_for,
)
from barnabas.core.ids import ZERO_UUID, Randomness, Uuid
from barnabas.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from barnabas.protocol.schema import Message

T = TypeVar("T")

RETRY_TIMEOUT_MS = 30_000
UNKNOWN_TOPIC_TIMEOUT_MS = 3_000
"""A topic may be on its way into being; one that is still unknown after this does not exist."""
BACKOFF_MS = 50
BACKOFF_MS_MAX = 1_000
CONNECT_TIMEOUT_MS = 5_000


class ClusterUnreachable(Exception):
    """None of the bootstrap addresses leads to a broker."""

    def __init__(self, reasons: Sequence[str]) -> None:
        super().__init__("; ".join(reasons))


@dataclass(frozen=True, slots=True)
class Partition:
    index: int
    leader_id: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]
    error_code: int


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    topic_id: Uuid
    is_internal: bool
    partitions: tuple[Partition, ...]
    """In the order of their indexes."""


@dataclass(slots=True)
class ClusterState:
    """What the last answers said."""

    cluster_id: str | None = None
    controller_id: int = -1
    brokers: dict[int, Endpoint] = field(default_factory=dict)
    racks: dict[int, str | None] = field(default_factory=dict)
    topics: dict[str, Topic] = field(default_factory=dict)


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
    ) -> None:
        self.state = ClusterState()
        self.clock = clock
        self.request_timeout_ms = request_timeout_ms
        self._bootstrap = tuple(bootstrap)
        self._randomness = randomness
        self._client_id = client_id
        self._retry_timeout_ms = retry_timeout_ms
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
        """A channel to some broker: an open one if there is one."""
        for channel in self._channels.values():
            if not channel.is_closed:
                return channel
        reasons = []
        for address in (*self._bootstrap, *self.state.brokers.values()):
            try:
                return await self._channel(address)
            except KafkaError as error:
                reasons.append(error.message)
        raise ClusterUnreachable(reasons)

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

    async def send_to_any(self, request: Message, response_class: type[Response]) -> Response:
        channel = await self.any_channel()
        return await channel.send(request, response_class)

    async def send_to_broker(
        self, broker_id: int, request: Message, response_class: type[Response]
    ) -> Response:
        channel = await self.channel_to(broker_id)
        return await channel.send(request, response_class)

    async def send_to_controller(self, request: Message, response_class: type[Response]) -> Response:
        """To the controller, or, where the cluster does not tell who that is, to anyone."""
        if not self.state.brokers:
            await self.refresh(())
        if self.state.controller_id in self.state.brokers:
            return await self.send_to_broker(self.state.controller_id, request, response_class)
        return await self.send_to_any(request, response_class)

    async def refresh(
        self, topics: Sequence[str] | None = None, *, auto_create: bool = False
    ) -> MetadataResponse:
        """Ask again about brokers and these topics, or all of them; the answer, errors and all."""
        wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        answer = await self.send_to_any(
            MetadataRequest(topics=wanted, allow_auto_topic_creation=auto_create), MetadataResponse
        )
        if answer.error_code:
            raise error_for(answer.error_code)
        state = self.state
        state.cluster_id = answer.cluster_id
        state.controller_id = answer.controller_id
        state.brokers = {row.node_id: Endpoint(row.host, row.port) for row in answer.brokers}
        state.racks = {row.node_id: row.rack for row in answer.brokers}
        if topics is None:
            state.topics.clear()
        for row in answer.topics:
            if row.error_code or row.name is None:
                state.topics.pop(row.name or "", None)
            else:
                state.topics[row.name] = _topic(row)
        return answer

    async def topic(
        self, name: str, *, auto_create: bool = False, unknown_timeout_ms: float | None = None
    ) -> Topic:
        """The topic with a leader for every partition; waits a moment for one that is being made.

        One that nobody knows is waited for if asking may create it, or as long as told.
        """

        async def look() -> Topic:
            answer = await self.refresh((name,), auto_create=auto_create)
            if answer.topics[0].error_code:
                code = answer.topics[0].error_code
                unknown = code == UnknownTopicOrPartition.code
                raise error_for(code, f"there is no topic {name}" if unknown else f"topic {name}")
            found = self.state.topics[name]
            for partition in found.partitions:
                if partition.leader_id < 0:
                    raise LeaderNotAvailable(f"partition {partition.index} of {name} has no leader")
            return found

        found = self.state.topics.get(name)
        if found is not None and all(partition.leader_id >= 0 for partition in found.partitions):
            return found
        if unknown_timeout_ms is None:
            unknown_timeout_ms = UNKNOWN_TOPIC_TIMEOUT_MS if auto_create else 0
        return await self.retry(look, unknown_topic_timeout_ms=unknown_timeout_ms)

    def forget(self, topic: str) -> None:
        """What is known about `topic` is stale; ask again before the next use."""
        self.state.topics.pop(topic, None)

    async def retry(
        self,
        attempt: Callable[[], Awaitable[T]],
        *,
        timeout_ms: float | None = None,
        unknown_topic_timeout_ms: float = UNKNOWN_TOPIC_TIMEOUT_MS,
    ) -> T:
        """The outcome of `attempt`, tried again while it fails in ways that may pass."""
        started_ms = self.clock.monotonic_ms()
        patience_ms = self._retry_timeout_ms if timeout_ms is None else timeout_ms
        pause_ms: float = BACKOFF_MS
        while True:
            try:
                return await attempt()
            except (KafkaError, ClusterUnreachable) as error:
                # A cluster that was reached before and is not now is probably being restarted.
                if isinstance(error, KafkaError) and not error.retriable:
                    raise
                unknown = isinstance(error, UnknownTopicOrPartition)
                limit_ms = unknown_topic_timeout_ms if unknown else patience_ms
                if self.clock.monotonic_ms() - started_ms + pause_ms > limit_ms:
                    raise
            pause_ms = await self.pause(pause_ms)
            self.state = ClusterState()

    async def pause(self, pause_ms: float) -> float:
        """Wait about `pause_ms`; returns how long to wait the next time."""
        await asyncio.sleep(pause_ms * (0.8 + 0.4 * self._randomness.random()) / 1_000)
        return min(2 * pause_ms, BACKOFF_MS_MAX)

    async def _channel(self, address: Endpoint) -> Channel:
        channel = self._channels.get(address)
        if channel is None or channel.is_closed:
            channel = await Channel.connect(
                address,
                client_id=self._client_id,
                connect_timeout_ms=CONNECT_TIMEOUT_MS,
                request_timeout_ms=self.request_timeout_ms,
            )
            self._channels[address] = channel
        return channel


def raise_for(code: int, message: str | None, subject: str) -> None:
    """Raise what the error code of an answer stands for; `subject` says what it is about."""
    if code:
        raise error_for(code, message or subject)


def _topic(row: MetadataResponseTopic) -> Topic:
    assert row.name is not None
    partitions = (
        Partition(
            index=at.partition_index,
            leader_id=at.leader_id,
            leader_epoch=at.leader_epoch,
            replicas=tuple(at.replica_nodes),
            isr=tuple(at.isr_nodes),
            offline=tuple(at.offline_replicas),
            error_code=at.error_code,
        )
        for at in sorted(row.partitions, key=lambda at: at.partition_index)
    )
    return Topic(row.name, row.topic_id or ZERO_UUID, row.is_internal, tuple(partitions))
