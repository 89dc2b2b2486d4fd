"""Metadata cache: topics, partitions, live brokers and the controller, as this broker knows them.

Every request reads the cache, so a lookup is a dictionary access. Values are never changed in place: an
update replaces the `PartitionMetadata` or `TopicMetadata`. A response may therefore keep what it read, and a
reader never sees half an update. The cache is derived state: the controller's UpdateMetadata requests fill it
through the update methods (`cluster.metadata.updates`).

`generation` grows with every change, for callers that render a response once and reuse it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

from barnabas.cluster.znodes.brokers import BrokerInfo
from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.ids import INTERNAL_TOPICS, NO_EPOCH, NO_LEADER, ZERO_UUID, BrokerId, TopicPartition, Uuid
from barnabas.core.reporting.error_isolation import sweeping


class PartitionMetadata:
    """State of one partition; replaced, never changed."""

    __slots__ = ("controller_epoch", "isr", "leader", "leader_epoch", "offline", "partition", "replicas")

    def __init__(
        self,
        partition: int,
        replicas: tuple[int, ...],
        *,
        leader: int = NO_LEADER,
        leader_epoch: int = NO_EPOCH,
        isr: tuple[int, ...] = (),
        offline: tuple[int, ...] = (),
        controller_epoch: int = 0,
    ) -> None:
        self.partition = partition
        self.leader = leader
        self.leader_epoch = leader_epoch
        self.replicas = replicas
        self.isr = isr
        self.offline = offline
        """Replicas whose log directory failed. `MetadataCache.offline_replicas` adds those of dead brokers.
        """
        self.controller_epoch = controller_epoch

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PartitionMetadata):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return (
            f"PartitionMetadata({self.partition}, leader={self.leader}, leader_epoch={self.leader_epoch}, "
            f"replicas={self.replicas}, isr={self.isr})"
        )


class TopicMetadata:
    """State of one topic; `partitions` is dense and in order, so partition n is at index n."""

    __slots__ = ("is_internal", "name", "partitions", "topic_id")

    def __init__(self, name: str, topic_id: Uuid, partitions: tuple[PartitionMetadata, ...]) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions = partitions
        self.is_internal = name in INTERNAL_TOPICS

    def partition(self, number: int) -> PartitionMetadata | None:
        partitions = self.partitions
        return partitions[number] if 0 <= number < len(partitions) else None

    def __repr__(self) -> str:
        return f"TopicMetadata({self.name}, {self.topic_id}, {len(self.partitions)} partitions)"


class MetadataCache:
    __slots__ = (
        "_brokers",
        "_by_id",
        "_endpoints",
        "_topics",
        "_waiting",
        "cluster_id",
        "controller_id",
        "generation",
        "on_topic_removed",
    )

    def __init__(self, cluster_id: str) -> None:
        self.cluster_id = cluster_id
        self.controller_id: BrokerId = NO_LEADER
        self.generation = 0
        self.on_topic_removed: list[Callable[[str, Uuid], None]] = []
        """Called with the name and id of a deleted topic, so that others drop what they remember of it."""
        self._waiting: list[Callable[[], None]] = []
        self._topics: dict[str, TopicMetadata] = {}
        self._by_id: dict[Uuid, TopicMetadata] = {}
        self._brokers: dict[int, BrokerInfo] = {}
        self._endpoints: dict[tuple[int, str], Endpoint] = {}

    # --- reading ---

    def topic(self, name: str) -> TopicMetadata | None:
        return self._topics.get(name)

    def topic_by_id(self, topic_id: Uuid) -> TopicMetadata | None:
        return self._by_id.get(topic_id)

    def topics(self) -> Iterator[TopicMetadata]:
        return iter(self._topics.values())

    def topic_names(self) -> list[str]:
        return list(self._topics)

    def partition(self, topic: str, number: int) -> PartitionMetadata | None:
        found = self._topics.get(topic)
        return None if found is None else found.partition(number)

    def __contains__(self, topic: object) -> bool:
        return topic in self._topics

    def brokers(self) -> list[BrokerInfo]:
        """Live brokers in the order of their ids."""
        return [self._brokers[broker_id] for broker_id in sorted(self._brokers)]

    def broker(self, broker_id: int) -> BrokerInfo | None:
        return self._brokers.get(broker_id)

    def is_live(self, broker_id: int) -> bool:
        return broker_id in self._brokers

    def endpoint(self, broker_id: int, listener_name: str) -> Endpoint | None:
        """Endpoint of a live broker for clients of the listener `listener_name`."""
        return self._endpoints.get((broker_id, listener_name))

    def racks(self) -> dict[int, str | None]:
        """Live brokers with their racks, as `assign_replicas` takes them."""
        return {broker.id: broker.rack for broker in self.brokers()}

    def offline_replicas(self, partition: PartitionMetadata) -> list[int]:
        """Replicas that no client can read from: the broker or its log directory is down."""
        brokers = self._brokers
        offline = partition.offline
        return [replica for replica in partition.replicas if replica not in brokers or replica in offline]

    def when_changed(self, notify: Callable[[], None]) -> None:
        """Call `notify` once, at the next change; an update may consist of several."""
        self._waiting.append(notify)

    # --- updating ---

    def put_topic(self, name: str, topic_id: Uuid, partitions: Iterable[PartitionMetadata]) -> TopicMetadata:
        """Add a topic, or replace its metadata."""
        ordered = tuple(sorted(partitions, key=lambda partition: partition.partition))
        assert [partition.partition for partition in ordered] == list(range(len(ordered))), name
        previous = self._topics.get(name)
        if previous is not None and previous.topic_id != topic_id:
            self._by_id.pop(previous.topic_id, None)
        topic = TopicMetadata(name, topic_id, ordered)
        self._topics[name] = topic
        if topic_id != ZERO_UUID:
            self._by_id[topic_id] = topic
        self._changed()
        return topic

    def put_offline(self, broker_id: int, lost: Iterable[TopicPartition]) -> None:
        """Mark replicas of this broker as offline; partitions that it led have no leader now."""
        by_topic: defaultdict[str, set[int]] = defaultdict(set)
        for topic, number in lost:
            by_topic[topic].add(number)
        for topic, numbers in by_topic.items():
            known = self._topics.get(topic)
            if known is not None:
                self.put_topic(
                    topic,
                    known.topic_id,
                    [
                        _without_replica(each, broker_id) if each.partition in numbers else each
                        for each in known.partitions
                    ],
                )

    def remove_topic(self, name: str) -> TopicMetadata | None:
        previous = self._topics.pop(name, None)
        if previous is not None:
            self._by_id.pop(previous.topic_id, None)
            self._changed()
            for notify in self.on_topic_removed:
                with sweeping("notifying of the removal of topic", name):
                    notify(name, previous.topic_id)
        return previous

    def put_brokers(self, brokers: Iterable[BrokerInfo]) -> None:
        """Replace the set of live brokers."""
        self._brokers = {broker.id: broker for broker in brokers}
        self._endpoints = {
            (broker.id, each.listener_name): each.endpoint
            for broker in self._brokers.values()
            for each in broker.endpoints
        }
        self._changed()

    def put_controller(self, controller_id: int) -> None:
        self.controller_id = BrokerId(controller_id)
        self._changed()

    def _changed(self) -> None:
        self.generation += 1
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            for notify in waiting:
                with sweeping("notifying of changed metadata"):
                    notify()


def _without_replica(known: PartitionMetadata, broker_id: int) -> PartitionMetadata:
    return PartitionMetadata(
        known.partition,
        known.replicas,
        leader=NO_LEADER if known.leader == broker_id else known.leader,
        leader_epoch=known.leader_epoch,
        isr=known.isr,
        offline=(*known.offline, broker_id),
        controller_epoch=known.controller_epoch,
    )
