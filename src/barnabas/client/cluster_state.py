"""A cluster as a client knows it, and how it finds out more: brokers, leaders, coordinators, offsets.

It begins with any broker that answers and learns the others and their partitions from there (Metadata).
What it learned may be stale: whoever is told so by an answer forgets it, and it is asked for anew before
its next use. Nothing here does I/O: what is to be asked is said in `steps`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TypeVar

from barnabas.client.retries import RETRY_TIMEOUT_MS, UNKNOWN_TOPIC_TIMEOUT_MS, Retries
from barnabas.client.steps import ANY_BROKER, ClusterUnreachable, Pause, Response, Steps, ask, raise_for
from barnabas.core.clock import Clock
from barnabas.core.endpoints import Endpoint
from barnabas.core.errors import (
    KafkaError,
    LeaderNotAvailable,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from barnabas.core.ids import ZERO_UUID, Randomness, TopicPartition, Uuid
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
    MetadataResponseTopic,
)
from barnabas.protocol.offset_numbers import READ_UNCOMMITTED
from barnabas.protocol.schema import Message

T = TypeVar("T")

GROUP = 0
TRANSACTION = 1
"""What a coordinator coordinates."""

LIST_OFFSETS_TIMEOUT_MS = 30_000


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


class ClusterState:
    def __init__(
        self, clock: Clock, randomness: Randomness, retry_timeout_ms: float = RETRY_TIMEOUT_MS
    ) -> None:
        self.cluster_id: str | None = None
        self.controller_id = -1
        self.brokers: dict[int, Endpoint] = {}
        self.racks: dict[int, str | None] = {}
        self.topics: dict[str, Topic] = {}
        self.is_stale = True
        """Whether brokers and controller are to be asked for before they are relied upon."""
        self._clock = clock
        self._randomness = randomness
        self._retry_timeout_ms = retry_timeout_ms

    def forget(self) -> None:
        """Something that was tried failed, perhaps because of what is known here. Where brokers were is
        still worth a try if nobody else answers."""
        self.topics.clear()
        self.is_stale = True

    def forget_topic(self, name: str) -> None:
        self.topics.pop(name, None)

    def leader_id(self, place: TopicPartition) -> int | None:
        """None when it is not known; UNKNOWN_TOPIC_OR_PARTITION and LEADER_NOT_AVAILABLE when it is known
        that there is none."""
        topic = self.topics.get(place.topic)
        if topic is None:
            return None
        if place.partition >= len(topic.partitions):
            raise UnknownTopicOrPartition(f"there is no partition {place}")
        leader_id = topic.partitions[place.partition].leader_id
        if leader_id < 0:
            raise LeaderNotAvailable(f"{place} has no leader")
        return leader_id

    def retries(
        self, timeout_ms: float | None = None, unknown_topic_timeout_ms: float | None = None
    ) -> Retries:
        patience_ms = self._retry_timeout_ms if timeout_ms is None else timeout_ms
        return Retries(self._clock, self._randomness, patience_ms, unknown_topic_timeout_ms)

    # -- conversations ---------------------------------------------------------------------------

    def retrying(
        self,
        attempt: Callable[[], Steps[T]],
        *,
        unknown_topic_timeout_ms: float | None = UNKNOWN_TOPIC_TIMEOUT_MS,
    ) -> Steps[T]:
        """The outcome of `attempt`, tried again while it fails in ways that may pass; None waits for what is
        unknown as long as for anything else."""
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
        """Ask again about brokers and these topics, or all of them; the answer, errors and all."""
        wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=auto_create)
        answer = yield from ask(ANY_BROKER, request, MetadataResponse)
        raise_for(answer.error_code, None, "metadata")
        self.cluster_id = answer.cluster_id
        self.controller_id = answer.controller_id
        self.brokers = {row.node_id: Endpoint(row.host, row.port) for row in answer.brokers}
        self.racks = {row.node_id: row.rack for row in answer.brokers}
        self.is_stale = False
        if topics is None:
            self.topics.clear()
        for row in answer.topics:
            if row.error_code or row.name is None:
                self.topics.pop(row.name or "", None)
            else:
                self.topics[row.name] = _topic(row)
        return answer

    def ask_controller(self, request: Message, response_class: type[Response]) -> Steps[Response]:
        """Of the controller, or, where the cluster does not tell who that is, of anyone."""
        if self.is_stale:
            yield from self.refresh(())
        broker_id = self.controller_id if self.controller_id in self.brokers else ANY_BROKER
        return (yield from ask(broker_id, request, response_class))

    def leader(self, place: TopicPartition) -> Steps[int]:
        leader_id = self.leader_id(place)
        if leader_id is None:
            yield from self._look_up(place.topic, auto_create=False)
            leader_id = self.leader_id(place)
            assert leader_id is not None, "the topic was found"
        return leader_id

    def coordinator(self, key: str, key_type: int) -> Steps[int]:
        """The coordinator of a group or a transactional id."""
        of = f"{'group' if key_type == GROUP else 'transactional id'} {key}"
        row: FindCoordinatorResponse | Coordinator
        try:
            request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
            (row,) = (yield from ask(ANY_BROKER, request, FindCoordinatorResponse)).coordinators
        except UnsupportedVersion:
            # Older brokers are asked for one at a time, and answer with it.
            request = FindCoordinatorRequest(key=key, key_type=key_type)
            row = yield from ask(ANY_BROKER, request, FindCoordinatorResponse)
        raise_for(row.error_code, row.error_message, f"coordinator of {of}")
        self.brokers[row.node_id] = Endpoint(row.host, row.port)
        return row.node_id

    def topic(self, name: str, *, auto_create: bool = False) -> Steps[Topic]:
        """The topic with a leader for every partition; what stands in its way is raised."""
        found = self.topics.get(name)
        if found is None or any(each.leader_id < 0 for each in found.partitions):
            found = yield from self._look_up(name, auto_create=auto_create)
        for partition in found.partitions:
            if partition.leader_id < 0:
                raise LeaderNotAvailable(f"partition {partition.index} of {name} has no leader")
        return found

    def _look_up(self, name: str, *, auto_create: bool) -> Steps[Topic]:
        (row,) = (yield from self.refresh((name,), auto_create=auto_create)).topics
        unknown = row.error_code == UnknownTopicOrPartition.code
        raise_for(row.error_code, None, f"there is no topic {name}" if unknown else f"topic {name}")
        return self.topics[name]

    def list_offsets(
        self, wanted: Mapping[TopicPartition, int], *, isolation: int = READ_UNCOMMITTED
    ) -> Steps[dict[TopicPartition, int]]:
        """For each partition the first offset at or after its timestamp (or LATEST, EARLIEST); -1 where there
        is none. With READ_COMMITTED the latest offset is the last stable one."""
        by_leader: defaultdict[int, defaultdict[str, list[ListOffsetsPartition]]] = defaultdict(
            lambda: defaultdict(list)
        )
        for place, timestamp in wanted.items():
            leader_id = yield from self.leader(place)
            row = ListOffsetsPartition(partition_index=place.partition, timestamp=timestamp)
            by_leader[leader_id][place.topic].append(row)
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
                    place = TopicPartition(topic.name, at.partition_index)
                    raise_for(at.error_code, None, f"offsets of {place}")
                    found[place] = at.offset
        return found


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
