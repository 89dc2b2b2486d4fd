"""Controller context: the controller's view of the cluster, in memory.

Everything here was read from the store, or written to it by this controller. A new controller starts with an
empty context. Only the controller's events change it, one at a time.

A *live* broker is registered and not shutting down. A broker in controlled shutdown still receives requests
(`live_or_shutting_down_broker_ids`), but no longer leads anything.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Final

from barnabas.cluster.znodes.brokers import BrokerInfo
from barnabas.cluster.znodes.layout import PartitionState, ReplicaAssignment
from barnabas.controller.state.assignments import NO_REPLICAS
from barnabas.controller.state.partition_states import PARTITION_TRANSITIONS, PartitionStatus
from barnabas.controller.state.replica_states import (
    REPLICA_TRANSITIONS,
    PartitionReplica,
    ReplicaStatus,
)
from barnabas.core.ids import NO_EPOCH, NO_LEADER, TopicPartition, Uuid

EPOCH_DURING_DELETE: Final = -2
"""Leader epoch that stops a replica of a topic in deletion, independent of its epoch."""


class ControllerContext:
    """State of the cluster, with the field names of Apache Kafka."""

    def __init__(self) -> None:
        self.brokers: dict[int, BrokerInfo] = {}
        """Registered brokers, with their broker epoch."""
        self.shutting_down_broker_ids: set[int] = set()
        self.topic_ids: dict[str, Uuid] = {}
        self.topic_names: dict[Uuid, str] = {}
        self.assignments: dict[str, dict[int, ReplicaAssignment]] = {}
        self.unreadable_topics: set[str] = set()
        """Topics in the store whose znode cannot be read."""
        self.leadership: dict[TopicPartition, PartitionState] = {}
        self.partition_states: dict[TopicPartition, PartitionStatus] = {}
        self.replica_states: dict[PartitionReplica, ReplicaStatus] = {}
        self.partitions_being_reassigned: set[TopicPartition] = set()
        self.topics_to_be_deleted: set[str] = set()
        self.topics_with_deletion_started: set[str] = set()
        """Topics whose partitions are deleted, but not their replicas yet."""
        self.topics_ineligible_for_deletion: set[str] = set()
        self.replicas_on_offline_dirs: dict[int, set[TopicPartition]] = {}

    # --- brokers ---

    @property
    def live_or_shutting_down_broker_ids(self) -> Collection[int]:
        return self.brokers.keys()

    @property
    def live_broker_ids(self) -> set[int]:
        return self.brokers.keys() - self.shutting_down_broker_ids

    def is_replica_online(
        self, broker_id: int, topic_partition: TopicPartition, *, include_shutting_down: bool = False
    ) -> bool:
        """Whether the broker is live, and the log directory of this replica too."""
        if broker_id not in self.brokers:
            return False
        if not include_shutting_down and broker_id in self.shutting_down_broker_ids:
            return False
        return topic_partition not in self.replicas_on_offline_dirs.get(broker_id, ())

    def online_replicas(
        self, topic_partition: TopicPartition, *, include_shutting_down: bool = False
    ) -> list[int]:
        return [
            replica
            for replica in self.replicas(topic_partition)
            if self.is_replica_online(replica, topic_partition, include_shutting_down=include_shutting_down)
        ]

    # --- topics and assignments ---

    def put_topic_id(self, topic: str, topic_id: Uuid) -> None:
        previous = self.topic_ids.get(topic)
        if previous is not None:
            self.topic_names.pop(previous, None)
        self.topic_ids[topic] = topic_id
        self.topic_names[topic_id] = topic

    def assignment(self, topic_partition: TopicPartition) -> ReplicaAssignment:
        """Assignment of a partition; without replicas if there is no such partition."""
        return self.assignments.get(topic_partition.topic, {}).get(topic_partition.partition, NO_REPLICAS)

    def replicas(self, topic_partition: TopicPartition) -> tuple[int, ...]:
        return self.assignment(topic_partition).replicas

    def put_assignment(self, topic_partition: TopicPartition, assignment: ReplicaAssignment) -> None:
        self.assignments.setdefault(topic_partition.topic, {})[topic_partition.partition] = assignment

    def remove_topic(self, topic: str) -> None:
        """Remove all state of a topic."""
        for partition in self.partitions_of(topic):
            self.leadership.pop(partition, None)
            self.partition_states.pop(partition, None)
            self.partitions_being_reassigned.discard(partition)
            for on_broker in self.replicas_on_offline_dirs.values():
                on_broker.discard(partition)
            for replica in self.replicas(partition):
                self.replica_states.pop(PartitionReplica(partition, replica), None)
        self.assignments.pop(topic, None)
        topic_id = self.topic_ids.pop(topic, None)
        if topic_id is not None:
            self.topic_names.pop(topic_id, None)
        self.topics_to_be_deleted.discard(topic)
        self.topics_with_deletion_started.discard(topic)
        self.topics_ineligible_for_deletion.discard(topic)

    def partitions_of(self, topic: str) -> list[TopicPartition]:
        return [TopicPartition(topic, number) for number in self.assignments.get(topic, ())]

    def all_partitions(self) -> Iterator[TopicPartition]:
        for topic, partitions in self.assignments.items():
            for number in partitions:
                yield TopicPartition(topic, number)

    def all_assignments(self) -> Iterator[tuple[TopicPartition, ReplicaAssignment]]:
        for topic, partitions in self.assignments.items():
            for number, assignment in partitions.items():
                yield TopicPartition(topic, number), assignment

    def is_queued_for_deletion(self, topic: str) -> bool:
        return topic in self.topics_to_be_deleted

    # --- replicas ---

    def replicas_of(self, topic: str) -> list[PartitionReplica]:
        return self.replicas_of_partitions(self.partitions_of(topic))

    def replicas_of_partitions(self, partitions: Iterable[TopicPartition]) -> list[PartitionReplica]:
        return [
            PartitionReplica(partition, replica)
            for partition in partitions
            for replica in self.replicas(partition)
        ]

    def replicas_on_brokers(self, broker_ids: Collection[int]) -> list[PartitionReplica]:
        return [
            PartitionReplica(partition, replica)
            for partition, assignment in self.all_assignments()
            for replica in assignment.replicas
            if replica in broker_ids
        ]

    def replicas_in_state(self, topic: str, status: ReplicaStatus) -> list[PartitionReplica]:
        states = self.replica_states
        return [replica for replica in self.replicas_of(topic) if states.get(replica) is status]

    def is_any_replica_in_state(self, topic: str, status: ReplicaStatus) -> bool:
        states = self.replica_states
        return any(states.get(replica) is status for replica in self.replicas_of(topic))

    def are_all_replicas_in_state(self, topic: str, status: ReplicaStatus) -> bool:
        states = self.replica_states
        return all(states.get(replica) is status for replica in self.replicas_of(topic))

    def replica_may_become(self, replica: PartitionReplica, status: ReplicaStatus) -> bool:
        current = self.replica_states.get(replica, ReplicaStatus.NON_EXISTENT)
        return REPLICA_TRANSITIONS.allows(current, status)

    def partition_may_become(self, partition: TopicPartition, status: PartitionStatus) -> bool:
        current = self.partition_states.get(partition, PartitionStatus.NON_EXISTENT)
        return PARTITION_TRANSITIONS.allows(current, status)

    # --- leaders ---

    def partitions_with_leaders(self) -> list[TopicPartition]:
        return [
            partition for partition in self.leadership if not self.is_queued_for_deletion(partition.topic)
        ]

    def partitions_with_offline_leader(self) -> list[TopicPartition]:
        return [
            partition
            for partition, state in self.leadership.items()
            if not self.is_replica_online(state.leader, partition)
            and not self.is_queued_for_deletion(partition.topic)
        ]

    def shared_partitions_led_by(self, broker_id: int) -> list[TopicPartition]:
        """Partitions that the broker leads with its log directory online, and another replica could lead."""
        return [
            partition
            for partition, state in self.leadership.items()
            if state.leader == broker_id
            and len(self.replicas(partition)) > 1
            and not self.is_queued_for_deletion(partition.topic)
            and self.is_replica_online(broker_id, partition, include_shutting_down=True)
        ]

    def stop_epoch(self, topic_partition: TopicPartition) -> int:
        """Leader epoch that a StopReplica carries."""
        if self.is_queued_for_deletion(topic_partition.topic):
            return EPOCH_DURING_DELETE
        state = self.leadership.get(topic_partition)
        return NO_EPOCH if state is None else state.leader_epoch

    # --- metrics ---

    def offline_partition_count(self) -> int:
        online = PartitionStatus.ONLINE
        return sum(
            1
            for partition in self.all_partitions()
            if not self.is_queued_for_deletion(partition.topic)
            and (self.partition_states.get(partition) is not online or not self._leader_is_online(partition))
        )

    def preferred_replica_imbalance_count(self) -> int:
        return sum(
            1
            for partition, state in self.leadership.items()
            if not self.is_queued_for_deletion(partition.topic)
            and state.leader not in self.replicas(partition)[:1]
        )

    def _leader_is_online(self, topic_partition: TopicPartition) -> bool:
        state = self.leadership.get(topic_partition)
        return (
            state is not None
            and state.leader != NO_LEADER
            and self.is_replica_online(state.leader, topic_partition, include_shutting_down=True)
        )
