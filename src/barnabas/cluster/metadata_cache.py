"""What this broker knows of the cluster: topics, partitions, live brokers, the controller.

Every request asks here, so a lookup is a dictionary access and what it returns is never changed in place:
an update replaces the `PartitionMetadata` or `TopicMetadata` that changed. A response may therefore hold
on to what it got, and a reader never sees half an update. The cache is derived: what the controller tells
comes in through the update methods (`metadata_updates`).

`generation` grows with every change, for those who render answers once and reuse them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

from barnabas.cluster.broker_znodes import BrokerInfo
from barnabas.core.endpoints import Endpoint
from barnabas.core.ids import INTERNAL_TOPICS, NO_EPOCH, NO_LEADER, ZERO_UUID, BrokerId, TopicPartition, Uuid
from barnabas.core.sweeping import sweeping


class PartitionMetadata:
    """One partition; replaced, never changed."""

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
        """Replicas whose log directory failed; those of brokers that are not live count as well,
        see `MetadataCache.offline_replicas`."""
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
    """One topic; `partitions` is dense and in order, so that partition n is at place n."""

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
        """Called with the name and id of a topic that is gone: what others remember of it means nothing
        now."""
        self._waiting: list[Callable[[], None]] = []
        self._topics: dict[str, TopicMetadata] = {}
        self._by_id: dict[Uuid, TopicMetadata] = {}
        self._brokers: dict[int, BrokerInfo] = {}
        self._endpoints: dict[tuple[int, str], Endpoint] = {}

    # --- reading

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
        """The live brokers by id."""
        return [self._brokers[broker_id] for broker_id in sorted(self._brokers)]

    def broker(self, broker_id: int) -> BrokerInfo | None:
        return self._brokers.get(broker_id)

    def is_live(self, broker_id: int) -> bool:
        return broker_id in self._brokers

    def endpoint(self, broker_id: int, listener_name: str) -> Endpoint | None:
        """Where a live broker can be reached by someone who came through `listener_name`."""
        return self._endpoints.get((broker_id, listener_name))

    def racks(self) -> dict[int, str | None]:
        """Live brokers with their racks, as `assignment.assign_replicas` takes them."""
        return {broker.id: broker.rack for broker in self.brokers()}

    def offline_replicas(self, partition: PartitionMetadata) -> list[int]:
        """Replicas nobody can read from: the broker is gone or its log directory is."""
        brokers = self._brokers
        offline = partition.offline
        return [replica for replica in partition.replicas if replica not in brokers or replica in offline]

    def when_changed(self, told: Callable[[], None]) -> None:
        """Call `told` once, at the next change; an update may consist of several."""
        self._waiting.append(told)

    # --- updating

    def put_topic(self, name: str, topic_id: Uuid, partitions: Iterable[PartitionMetadata]) -> TopicMetadata:
        """Add a topic, or replace what was known of it."""
        ordered = tuple(sorted(partitions, key=lambda partition: partition.partition))
        assert [partition.partition for partition in ordered] == list(range(len(ordered))), name
        former = self._topics.get(name)
        if former is not None and former.topic_id != topic_id:
            self._by_id.pop(former.topic_id, None)
        topic = TopicMetadata(name, topic_id, ordered)
        self._topics[name] = topic
        if topic_id != ZERO_UUID:
            self._by_id[topic_id] = topic
        self._changed()
        return topic

    def put_offline(self, broker_id: int, lost: Iterable[TopicPartition]) -> None:
        """The replicas of this broker are lost; what it led has no leader now."""
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
        former = self._topics.pop(name, None)
        if former is not None:
            self._by_id.pop(former.topic_id, None)
            self._changed()
            for tell in self.on_topic_removed:
                with sweeping("telling of the end of topic", name):
                    tell(name, former.topic_id)
        return former

    def put_brokers(self, brokers: Iterable[BrokerInfo]) -> None:
        """The live brokers are these, and no others."""
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
            for told in waiting:
                with sweeping("telling of changed metadata"):
                    told()


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
