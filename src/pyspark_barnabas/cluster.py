"""A cluster as a blocking client sees it: who leads what, which offsets there are, who coordinates.

A connection is opened when it is first needed and kept. Whatever may pass (a leader that moved, a
coordinator that loads, a broker that restarts) is tried again with growing pauses until
`retry_timeout_ms` is over; what cannot pass is raised at once. That a broker cannot be reached is said
in the log when it is first noticed.

Who begins something (a batch, a query) asks with `reach` whether there is a broker at all: an address
that is wrong does not become right by waiting. Who is in the middle of something does not.
"""

from __future__ import annotations

import logging
import random
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self, TypeVar

import numpy as np

from barnabas.client.blocking import Connection
from barnabas.core.clock import Clock, SystemClock
from barnabas.core.endpoints import Endpoint
from barnabas.core.errors import (
    KafkaError,
    LeaderNotAvailable,
    NetworkException,
    UnknownTopicOrPartition,
    error_for,
)
from barnabas.core.ids import TopicPartition
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from pyspark_barnabas.security import Security

T = TypeVar("T")

LATEST: Final = -1
EARLIEST: Final = -2
READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
GROUP: Final = 0
TRANSACTION: Final = 1

BACKOFF_MS: Final = 20.0
BACKOFF_MS_MAX: Final = 1_000.0
FIRST_CONTACT_MS: Final = 1_000.0
"""How long a broker that is just being started is waited for."""
CONNECT_TIMEOUT_MS: Final = 4_000.0
"""For an address that does not even refuse."""
CREATE_PATIENCE_MS: Final = 3_000.0
"""How long a topic that the broker creates may stay unknown."""
LIST_OFFSETS_VERSION: Final = 7
METADATA_VERSION: Final = 9
"""The last that speaks of topics by name alone."""


_log = logging.getLogger(__name__)


class NoBrokerAnswers(ConnectionError):
    """Nobody is at the addresses that were given."""


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """What it takes to reach a cluster; it travels to the executors."""

    bootstrap: tuple[Endpoint, ...]
    client_id: str = "pyspark-barnabas"
    request_timeout_ms: float = 30_000
    retry_timeout_ms: float = 60_000
    security: Security = field(default_factory=Security)

    @property
    def servers(self) -> str:
        return ",".join(map(str, self.bootstrap))


class Cluster:
    def __init__(self, config: ClusterConfig, clock: Clock | None = None) -> None:
        self.config = config
        self.clock: Clock = clock or SystemClock()
        self._endpoints: dict[int, Endpoint] = {}
        self._connections: dict[Endpoint, Connection] = {}
        self._leaders: dict[TopicPartition, int] = {}
        self._tls = config.security.context()
        self._is_out_of_reach = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    # -- who and where ------------------------------------------------------------------------

    def reach(self) -> None:
        """Raises NoBrokerAnswers, which says where nobody is, in about a second."""
        deadline_ms = self.clock.monotonic_ms() + FIRST_CONTACT_MS
        pause_ms = BACKOFF_MS
        while True:
            try:
                self.any()
            except NetworkException as error:
                if self.clock.monotonic_ms() > deadline_ms:
                    raise NoBrokerAnswers(
                        f"no broker answers at {self.config.servers} ({error}). "
                        "Is one running there, and is kafka.bootstrap.servers right?"
                    ) from error
            else:
                return
            pause_ms = pause(pause_ms)

    def topics(self) -> list[str]:
        """All that are not internal, by name."""
        answer = self.retrying(lambda: self._metadata(None))
        return sorted(row.name or "" for row in answer.topics if not row.is_internal)

    def partitions(self, topics: Iterable[str]) -> dict[str, int]:
        """How many partitions each topic has; topics that do not exist are left out."""
        wanted = sorted(set(topics))

        def attempt() -> dict[str, int]:
            found = {}
            for row in self._metadata(wanted).topics:
                if row.error_code == UnknownTopicOrPartition.code:
                    continue
                _raise_for(row.error_code, f"topic {row.name}")
                found[row.name or ""] = len(row.partitions)
            return found

        return self.retrying(attempt) if wanted else {}

    def writable_partitions(self, topic: str) -> int:
        """How many partitions a topic has that is to be written to; it is created where the broker may."""
        deadline_ms = self.clock.monotonic_ms() + CREATE_PATIENCE_MS
        pause_ms = BACKOFF_MS

        def attempt() -> int | None:
            (row,) = self._metadata([topic], create=True).topics
            if row.error_code == UnknownTopicOrPartition.code:
                return None
            _raise_for(row.error_code, f"topic {topic}")
            return len(row.partitions)

        while (found := self.retrying(attempt)) is None:
            if self.clock.monotonic_ms() > deadline_ms:
                raise ValueError(
                    f"topic {topic} does not exist, and the broker does not create topics by itself: "
                    f"barnabas topic create {topic} --bootstrap {self.config.servers}"
                )
            pause_ms = pause(pause_ms)
        return found

    def leader(self, place: TopicPartition) -> Connection:
        """A connection to the broker that leads a partition."""
        if place not in self._leaders:
            self._metadata([place.topic])
        leader_id = self._leaders.get(place)
        if leader_id is None:
            raise UnknownTopicOrPartition(f"there is no partition {place}")
        if leader_id < 0:
            raise LeaderNotAvailable(f"{place} has no leader")
        return self._connection(self._endpoints[leader_id])

    def forget_leaders(self) -> None:
        self._leaders.clear()

    def coordinator(self, key: str, key_type: int) -> Connection:
        """A connection to the coordinator of a group or a transactional id."""
        connection = self.any()
        if connection.version_for(FindCoordinatorRequest, 4) >= 4:
            request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
            (row,) = connection.ask(request, FindCoordinatorResponse, version_max=4).coordinators
            _raise_for(row.error_code, f"coordinator of {key}: {row.error_message or ''}")
            return self._connection(Endpoint(row.host, row.port))
        request = FindCoordinatorRequest(key=key, key_type=key_type)
        answer = connection.ask(request, FindCoordinatorResponse, version_max=3)
        _raise_for(answer.error_code, f"coordinator of {key}: {answer.error_message or ''}")
        return self._connection(Endpoint(answer.host, answer.port))

    def any(self) -> Connection:
        """A connection to some broker: one that is open, else the first that answers."""
        for connection in self._connections.values():
            if not connection.is_closed:
                return connection
        failures = []
        for endpoint in (*self.config.bootstrap, *self._endpoints.values()):
            try:
                return self._connection(endpoint)
            except NetworkException as error:
                failures.append(str(error))
        raise NetworkException("; ".join(failures) or "there are no bootstrap servers")

    def _connection(self, endpoint: Endpoint) -> Connection:
        connection = self._connections.get(endpoint)
        if connection is None or connection.is_closed:
            connection = Connection.connect(
                endpoint,
                client_id=self.config.client_id,
                software="pyspark-barnabas",
                connect_timeout_ms=min(self.config.request_timeout_ms, CONNECT_TIMEOUT_MS),
                request_timeout_ms=self.config.request_timeout_ms,
                tls=self._tls,
                allocate=_unzeroed,
            )
            self._connections[endpoint] = connection
        return connection

    def _metadata(self, topics: Collection[str] | None, *, create: bool = False) -> MetadataResponse:
        rows = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=rows, allow_auto_topic_creation=create)
        answer = self.any().ask(request, MetadataResponse, version_max=METADATA_VERSION)
        self._endpoints = {row.node_id: Endpoint(row.host, row.port) for row in answer.brokers}
        for topic in answer.topics:
            for row in topic.partitions:
                self._leaders[TopicPartition(topic.name or "", row.partition_index)] = row.leader_id
        return answer

    # -- offsets ------------------------------------------------------------------------------

    def list_offsets(
        self, wanted: Mapping[TopicPartition, int], *, isolation: int = READ_UNCOMMITTED
    ) -> dict[TopicPartition, int]:
        """The offset for each partition's timestamp (or LATEST, EARLIEST); -1 where there is none.

        Partitions that no longer exist are left out.
        """
        found: dict[TopicPartition, int] = {}
        gone: set[TopicPartition] = set()

        def attempt() -> None:
            waiting = [place for place in wanted if place not in found and place not in gone]
            self.forget_leaders()
            existing = self.partitions(place.topic for place in waiting)
            gone.update(place for place in waiting if place.partition >= existing.get(place.topic, 0))
            by_connection: dict[Connection, list[TopicPartition]] = defaultdict(list)
            for place in waiting:
                if place not in gone:
                    by_connection[self.leader(place)].append(place)
            for connection, places in by_connection.items():
                self._ask_offsets(connection, places, wanted, isolation, found)

        self.retrying(attempt)
        return found

    def _ask_offsets(
        self,
        connection: Connection,
        places: list[TopicPartition],
        wanted: Mapping[TopicPartition, int],
        isolation: int,
        found: dict[TopicPartition, int],
    ) -> None:
        topics: dict[str, list[ListOffsetsPartition]] = defaultdict(list)
        for place in places:
            topics[place.topic].append(
                ListOffsetsPartition(partition_index=place.partition, timestamp=wanted[place])
            )
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=isolation,
            topics=[ListOffsetsTopic(name=name, partitions=rows) for name, rows in topics.items()],
        )
        failed: KafkaError | None = None
        answer = connection.ask(request, ListOffsetsResponse, version_max=LIST_OFFSETS_VERSION)
        for topic in answer.topics:
            for row in topic.partitions:
                place = TopicPartition(topic.name, row.partition_index)
                if row.error_code:
                    failed = error_for(row.error_code, f"offsets of {place}")
                else:
                    found[place] = row.offset
        if failed is not None:
            raise failed

    # -- patience -----------------------------------------------------------------------------

    def retrying(self, attempt: Callable[[], T]) -> T:
        """What `attempt` returns, once nothing that may pass stands in its way."""
        deadline_ms = self.clock.monotonic_ms() + self.config.retry_timeout_ms
        pause_ms = BACKOFF_MS
        while True:
            try:
                result = attempt()
            except KafkaError as error:
                left_ms = deadline_ms - self.clock.monotonic_ms() - pause_ms
                if not error.retriable or left_ms < 0:
                    raise
                self._say(error, left_ms)
            else:
                self._is_out_of_reach = False
                return result
            pause_ms = pause(pause_ms)
            self.forget_leaders()

    def _say(self, error: KafkaError, left_ms: float) -> None:
        if isinstance(error, NetworkException) and not self._is_out_of_reach:
            self._is_out_of_reach = True
            _log.warning("%s; trying for another %.0f s", error, left_ms / 1_000)


def pause(pause_ms: float) -> float:
    """Wait about that long; returns how long to wait the next time."""
    time.sleep(pause_ms * (0.8 + 0.4 * random.random()) / 1_000)  # noqa: S311 - spreads the retries
    return min(2 * pause_ms, BACKOFF_MS_MAX)


def _unzeroed(size: int) -> memoryview:
    """Memory for an answer; unlike a bytearray's, it is not cleared first."""
    return np.empty(size, np.uint8).data


def _raise_for(code: int, subject: str) -> None:
    if code:
        raise error_for(code, subject)
