"""Asyncio client of a cluster: the base of the producer, the consumer, the admin client and the commands.

`cluster_state` decides destinations and retries, `connections` opens channels, `metadata_updates` keeps the
metadata fresh. This module puts them together.

    cluster = ClusterClient.of(settings)          # a ProducerSettings, ConsumerSettings or AdminSettings
    async with cluster:                           # connects to one broker; closes all connections at the end
        cluster.updates.start()                   # a long-lived client keeps its metadata fresh
        cluster.metadata.want("orders")
        await cluster.updates.until(lambda: cluster.metadata.has_leaders("orders"), 60_000, "topic orders")
        leader = cluster.metadata.leader("orders", 0)         # broker id and leader epoch
        channel = await cluster.channel_to(leader.broker_id)  # shared; many requests in flight, in order
        answer = await channel.send(request, ResponseClass)   # or channel.post(…, answered=…, failed=…)

- `run(steps)` drives a conversation (`core.steps`), `run_with_retries(attempt)` one that is retried until the
  retry timeout: `cluster.run_with_retries(lambda: cluster.state.list_offsets({...}))`.
- `coordinator(key, GROUP)` is the broker id of a group's coordinator, from a cache;
  `channel_to(broker_id, COORDINATOR)` is a connection for coordinators, so that heartbeats do not wait behind
  fetches. NOT_COORDINATOR: `state.forget_coordinator(key, GROUP)`, and ask again.
- Errors are `core.errors.KafkaError`: `code`, `protocol_name()` and `retriable`. A lost connection is
  NETWORK_EXCEPTION, a late answer REQUEST_TIMED_OUT; both are retriable. Without any broker:
  `ClusterUnreachable`.
- A throttled channel says so (`throttled_ms`). `send` waits for it; callers of `post` look first.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Collection, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from barnabas.client.aio.channel import REQUEST_TIMEOUT_MS, Channel
from barnabas.client.aio.connections import (
    DATA,
    Connect,
    ConnectionOptions,
    Connections,
    connect_by_socket,
)
from barnabas.client.aio.metadata_updates import MetadataOptions, MetadataUpdates
from barnabas.client.config.settings import ClientSettings
from barnabas.client.core.cluster_state import ClusterState, Topic
from barnabas.client.core.metadata import Metadata
from barnabas.client.core.retries import BACKOFF, RETRY_TIMEOUT_MS, UNKNOWN_TOPIC_TIMEOUT_MS, spread
from barnabas.client.core.steps import ANY_BROKER, ClusterUnreachable, Pause, Step, Steps
from barnabas.client.security.settings import PLAINTEXT, Secured
from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.backoff import Backoff
from barnabas.core.clock import Clock, SystemClock
from barnabas.core.errors import (
    InvalidConfig,
    KafkaError,
    LeaderNotAvailable,
    NetworkException,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanism,
)
from barnabas.core.ids import Randomness
from barnabas.core.steps import drive_async
from barnabas.protocol.messages.metadata import MetadataResponse

T = TypeVar("T")

CONNECT_TIMEOUT_MS = 5_000


class ClusterClient:
    """Cluster client, used as a context: `async with ClusterClient(addresses, clock=…, randomness=…) as
    cluster`.
    """

    def __init__(
        self,
        bootstrap: Sequence[Endpoint],
        *,
        clock: Clock,
        randomness: Randomness,
        client_id: str = "barnabas",
        request_timeout_ms: float = REQUEST_TIMEOUT_MS,
        retry_timeout_ms: float = RETRY_TIMEOUT_MS,
        backoff: Backoff = BACKOFF,
        retries_max: float = math.inf,
        security: Secured = PLAINTEXT,
        options: ConnectionOptions | None = None,
        metadata_options: MetadataOptions | None = None,
        allow_auto_topic_creation: bool = False,
        connect: Connect = connect_by_socket,
    ) -> None:
        """`options` replace `client_id`, `request_timeout_ms` and `security`. `connect` is the seam of the
        simulator.
        """
        if options is None:
            options = ConnectionOptions(
                client_id=client_id,
                request_timeout_ms=request_timeout_ms,
                setup_timeout_ms=CONNECT_TIMEOUT_MS,
                setup_timeout_max_ms=CONNECT_TIMEOUT_MS,
                security=security,
            )
        self.state = ClusterState(
            clock, randomness, retry_timeout_ms, backoff=backoff, retries_max=retries_max
        )
        self.clock = clock
        self.request_timeout_ms = options.request_timeout_ms
        self.connections = Connections(options, randomness, connect)
        self._bootstrap = tuple(bootstrap)
        self._randomness = randomness
        self._allow_auto_topic_creation = allow_auto_topic_creation
        self._metadata_options = metadata_options or MetadataOptions()
        self.updates = MetadataUpdates(
            self.state.metadata, clock, self._metadata_options, self._refresh_cache, self.forget_brokers
        )

    @classmethod
    def of(
        cls,
        settings: ClientSettings,
        *,
        clock: Clock | None = None,
        randomness: Randomness | None = None,
        retry_timeout_ms: float = RETRY_TIMEOUT_MS,
        retries_max: float = math.inf,
        allow_auto_topic_creation: bool = False,
        connect: Connect = connect_by_socket,
    ) -> Self:
        """Client with Kafka's properties. It reads the files of TLS and SASL."""
        return cls(
            settings.bootstrap,
            clock=clock or SystemClock(),
            randomness=randomness or random.SystemRandom(),
            retry_timeout_ms=retry_timeout_ms,
            backoff=Backoff(settings.retry_backoff_ms, settings.retry_backoff_max_ms),
            retries_max=retries_max,
            options=ConnectionOptions.of(settings),
            metadata_options=MetadataOptions.of(settings),
            allow_auto_topic_creation=allow_auto_topic_creation,
            connect=connect,
        )

    @property
    def metadata(self) -> Metadata:
        return self.state.metadata

    async def __aenter__(self) -> Self:
        try:
            await self.any_channel()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop the metadata updates and close the connections. No task and no socket is left."""
        await self.updates.stop()
        await self.connections.close()

    async def any_channel(self) -> Channel:
        """Channel to any broker, preferably an open one, and of these the one with the fewest requests in
        flight: a broker that stands still has some. After a failed login no other broker is tried, because
        the password would fail there too.
        """
        usable = [channel for channel in self.connections.open_channels() if not channel.throttled_ms]
        if usable:
            return min(usable, key=lambda channel: channel.in_flight)
        failures: list[KafkaError] = []
        known = [*self.state.brokers.values(), *self.metadata.brokers.values()]
        addresses = self._bootstrap if self._metadata_options.rebootstraps or not known else ()
        for address in dict.fromkeys((*self.connections.ready(known), *self.connections.ready(addresses))):
            try:
                return await self.connections.to(address)
            except (SaslAuthenticationFailed, UnsupportedSaslMechanism):
                raise
            except KafkaError as error:
                failures.append(error)
        for each in failures:
            if isinstance(each, InvalidConfig):
                raise each
        raise ClusterUnreachable([each.message for each in failures])

    def address_of(self, broker_id: int) -> Endpoint | None:
        return self.metadata.brokers.get(broker_id) or self.state.brokers.get(broker_id)

    async def channel_to(self, broker_id: int, lane: str = DATA) -> Channel:
        """Channel to a broker, by its id; opened if need be. A lane is a connection of its own."""
        address = self.address_of(broker_id)
        if address is None:
            raise LeaderNotAvailable(f"broker {broker_id} is not in the cluster now")
        try:
            return await self.connections.to(address, lane)
        except NetworkException as error:
            raise NetworkException(
                f"broker {broker_id} is advertised at {address}, but {error.message}; if it runs, check its"
                " advertised.listeners"
            ) from None

    async def refresh(
        self, topics: Sequence[str] | None = None, *, auto_create: bool = False
    ) -> MetadataResponse:
        """Refresh the brokers and these topics (None: all topics). Returns the answer, errors included."""
        return await self.run(self.state.refresh(topics, auto_create=auto_create))

    async def topic(
        self, name: str, *, auto_create: bool = False, unknown_timeout_ms: float | None = None
    ) -> Topic:
        """Topic with a leader for every partition. Waits briefly for a topic in creation.

        An unknown topic is waited for if the request may create it, or as long as `unknown_topic_timeout_ms`
        allows.
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
        """Drive the steps of a conversation; returns its outcome."""
        return await drive_async(steps, self._do)

    async def _do(self, step: Step) -> Any:
        self.connections.check_open()
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
        """Wait about `pause_ms`; returns the next pause."""
        await asyncio.sleep(spread(pause_ms, self._randomness) / 1_000)
        return BACKOFF.following_ms(pause_ms)

    async def coordinator(self, key: str, key_type: int) -> int:
        """Broker id of the coordinator of a group or transactional id, from the cache if it is there."""
        return await self.run(self.state.known_coordinator(key, key_type))

    def forget_brokers(self) -> None:
        """Forget all brokers: the next request goes to a bootstrap address."""
        self.state.brokers = {}
        self.state.forget()
        self.state.coordinators.clear()
        self.metadata.forget_brokers()

    async def _refresh_cache(self, topics: Collection[str] | None) -> MetadataResponse:
        return await self.run(self.state.refresh(topics, auto_create=self._allow_auto_topic_creation))
