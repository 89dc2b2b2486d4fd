"""Client's view of a cluster: brokers, leaders, coordinators, offsets.

The client starts with any broker that answers, and learns the others and their partitions from Metadata. The
view may be stale: an answer that shows this makes the client forget it, and ask again before the next use.
Nothing here does I/O: requests are yielded as `steps`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

from barnabas.client.core.metadata import Metadata, Partition, Topic, refused_topic, topic_of
from barnabas.client.core.retries import BACKOFF, RETRY_TIMEOUT_MS, UNKNOWN_TOPIC_TIMEOUT_MS, Retries
from barnabas.client.core.steps import ANY_BROKER, ClusterUnreachable, Pause, Response, Steps, ask, raise_for
from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.backoff import Backoff
from barnabas.core.clock import Clock
from barnabas.core.errors import (
    KafkaError,
    LeaderNotAvailable,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from barnabas.core.ids import Randomness, TopicPartition
from barnabas.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from barnabas.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from barnabas.protocol.offset_numbers import READ_UNCOMMITTED
from barnabas.protocol.schema.message import Message

__all__ = ["GROUP", "TRANSACTION", "ClusterState", "Partition", "Topic"]

T = TypeVar("T")

GROUP = 0
TRANSACTION = 1
"""Key types of FindCoordinator."""

LIST_OFFSETS_TIMEOUT_MS = 30_000


class ClusterState:
    def __init__(
        self,
        clock: Clock,
        randomness: Randomness,
        retry_timeout_ms: float = RETRY_TIMEOUT_MS,
        *,
        backoff: Backoff = BACKOFF,
        retries_max: float = math.inf,
    ) -> None:
        self.cluster_id: str | None = None
        self.controller_id = -1
        self.brokers: dict[int, Endpoint] = {}
        self.racks: dict[int, str | None] = {}
        self.topics: dict[str, Topic] = {}
        self.is_stale = True
        """True when brokers and controller need a refresh before their next use."""
        self.metadata = Metadata()
        """Cache for producers and consumers, which no failed conversation clears."""
        self.coordinators: dict[tuple[int, str], int] = {}
        """Known coordinators by key type and key, for `known_coordinator`."""
        self._clock = clock
        self._randomness = randomness
        self._retry_timeout_ms = retry_timeout_ms
        self._backoff = backoff
        self._retries_max = retries_max

    def forget(self) -> None:
        """Mark the view as stale after a failure. Known broker addresses remain as a last resort."""
        self.topics.clear()
        self.is_stale = True

    def forget_topic(self, name: str) -> None:
        self.topics.pop(name, None)

    def leader_id(self, topic_partition: TopicPartition) -> int | None:
        """Leader of a partition, or None when it is unknown. A known absence raises
        UNKNOWN_TOPIC_OR_PARTITION or LEADER_NOT_AVAILABLE.
        """
        topic = self.topics.get(topic_partition.topic)
        if topic is None:
            return None
        if not 0 <= topic_partition.partition < len(topic.partitions):
            raise UnknownTopicOrPartition(f"there is no partition {topic_partition}")
        leader_id = topic.partitions[topic_partition.partition].leader_id
        if leader_id < 0:
            raise LeaderNotAvailable(f"partition {topic_partition} has no leader")
        return leader_id

    def retries(
        self, timeout_ms: float | None = None, unknown_topic_timeout_ms: float | None = None
    ) -> Retries:
        patience_ms = self._retry_timeout_ms if timeout_ms is None else timeout_ms
        return Retries(
            self._clock,
            self._randomness,
            patience_ms,
            unknown_topic_timeout_ms,
            backoff=self._backoff,
            retries_max=self._retries_max,
        )

    # --- conversations ---

    def retrying(
        self,
        attempt: Callable[[], Steps[T]],
        *,
        unknown_topic_timeout_ms: float | None = UNKNOWN_TOPIC_TIMEOUT_MS,
    ) -> Steps[T]:
        """Outcome of `attempt`, retried while its errors are transient. An unknown topic is waited for as
        long as for any other error when `unknown_topic_timeout_ms` is None.
        """
        retries = self.retries(unknown_topic_timeout_ms=unknown_topic_timeout_ms)
        while True:
            try:
                return (yield from attempt())
            except (KafkaError, ClusterUnreachable) as error:
                pause = Pause(retries.next_pause_ms(error), error, retries.left_ms)
            yield pause
            self.forget()

    def refresh(
        self, topics: Collection[str] | None = None, *, auto_create: bool = False
    ) -> Steps[MetadataResponse]:
        """Refresh the brokers and these topics (None: all topics). Returns the answer, errors included."""
        wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=auto_create)
        answer = yield from ask(ANY_BROKER, request, MetadataResponse)
        raise_for(answer.error_code, None, "metadata")
        self.cluster_id = answer.cluster_id
        self.controller_id = answer.controller_id
        self.brokers = {row.node_id: Endpoint(row.host, row.port) for row in answer.brokers}
        self.racks = {row.node_id: row.rack for row in answer.brokers}
        self.is_stale = False
        self.metadata.update(answer, self._clock.monotonic_ms(), topics)
        if topics is None:
            self.topics.clear()
        for row in answer.topics:
            if row.error_code or row.name is None:
                self.topics.pop(row.name or "", None)
            else:
                self.topics[row.name] = topic_of(row)
        return answer

    def ask_controller(self, request: Message, response_class: type[Response]) -> Steps[Response]:
        """Send a request to the controller, or to any broker where the cluster names none."""
        if self.is_stale:
            yield from self.refresh(())
        broker_id = self.controller_id if self.controller_id in self.brokers else ANY_BROKER
        return (yield from ask(broker_id, request, response_class))

    def leader(self, topic_partition: TopicPartition) -> Steps[int]:
        leader_id = self.leader_id(topic_partition)
        if leader_id is None:
            yield from self._look_up(topic_partition.topic, auto_create=False)
            leader_id = self.leader_id(topic_partition)
            assert leader_id is not None, "the topic was found"
        return leader_id

    def coordinator(self, key: str, key_type: int) -> Steps[int]:
        """Coordinator of a group or a transactional id."""
        of = f"{'group' if key_type == GROUP else 'transactional id'} {key}"
        row: FindCoordinatorResponse | Coordinator
        try:
            request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
            (row,) = (yield from ask(ANY_BROKER, request, FindCoordinatorResponse)).coordinators
        except UnsupportedVersion:
            # Older versions of FindCoordinator take one key and answer without a list.
            request = FindCoordinatorRequest(key=key, key_type=key_type)
            row = yield from ask(ANY_BROKER, request, FindCoordinatorResponse)
        raise_for(row.error_code, row.error_message, f"coordinator of {of}")
        # The cache too: a broker that came back on another port is reached at the address of this answer.
        self.brokers[row.node_id] = self.metadata.brokers[row.node_id] = Endpoint(row.host, row.port)
        return row.node_id

    def known_coordinator(self, key: str, key_type: int) -> Steps[int]:
        """Coordinator from the cache, or from a broker. `forget_coordinator` when it turns out to be old."""
        known = self.coordinators.get((key_type, key))
        if known is None or known not in self.brokers:
            known = self.coordinators[key_type, key] = yield from self.coordinator(key, key_type)
        return known

    def forget_coordinator(self, key: str, key_type: int) -> None:
        self.coordinators.pop((key_type, key), None)

    def topic(self, name: str, *, auto_create: bool = False) -> Steps[Topic]:
        """Topic with a leader for every partition. Raises the error that prevents it."""
        found = self.topics.get(name)
        if found is None or any(each.leader_id < 0 for each in found.partitions):
            found = yield from self._look_up(name, auto_create=auto_create)
        for partition in found.partitions:
            if partition.leader_id < 0:
                raise LeaderNotAvailable(f"partition {partition.index} of {name} has no leader")
        return found

    def _look_up(self, name: str, *, auto_create: bool) -> Steps[Topic]:
        answer = yield from self.refresh((name,), auto_create=auto_create)
        (row,) = answer.topics
        unknown = row.error_code == UnknownTopicOrPartition.code
        refusal = refused_topic(row.error_code, name, len(answer.brokers))
        subject = f"there is no topic {name}" if unknown else refusal
        raise_for(row.error_code, None, subject, needs=f"DESCRIBE on TOPIC {name}")
        return self.topics[name]

    def list_offsets(
        self, wanted: Mapping[TopicPartition, int], *, isolation: int = READ_UNCOMMITTED
    ) -> Steps[dict[TopicPartition, int]]:
        """First offset at or after its timestamp (or LATEST, EARLIEST) for each partition; -1 where there is
        none. With READ_COMMITTED the latest offset is the last stable one.
        """
        by_leader: defaultdict[int, defaultdict[str, list[ListOffsetsPartition]]] = defaultdict(
            lambda: defaultdict(list)
        )
        for topic_partition, timestamp in wanted.items():
            leader_id = yield from self.leader(topic_partition)
            row = ListOffsetsPartition(partition_index=topic_partition.partition, timestamp=timestamp)
            by_leader[leader_id][topic_partition.topic].append(row)
        found: dict[TopicPartition, int] = {}
        for leader_id, topics in by_leader.items():
            request = ListOffsetsRequest(
                replica_id=-1,
                isolation_level=isolation,
                topics=[ListOffsetsTopic(name=name, partitions=rows) for name, rows in topics.items()],
                timeout_ms=LIST_OFFSETS_TIMEOUT_MS,
            )
            answer = yield from ask(leader_id, request, ListOffsetsResponse)
            for topic in answer.topics:
                for at in topic.partitions:
                    topic_partition = TopicPartition(topic.name, at.partition_index)
                    raise_for(at.error_code, None, f"offsets of {topic_partition}")
                    found[topic_partition] = at.offset
        return found
