"""The partitions that this broker leads: made and stopped slice by slice.

Making thousands of partitions takes a while, so the loop gets a turn between slices. A
partition whose log cannot be opened does not hold up the others: it is shown without a leader
until the broker starts again on a healed disk.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from barnabas.cluster.metadata_cache import PartitionMetadata
from barnabas.cluster.znodes import PartitionState
from barnabas.config.log_config import LogConfig
from barnabas.core.errors import KafkaError
from barnabas.core.ids import NO_LEADER, BrokerId, TopicPartition, Uuid

logger = logging.getLogger(__name__)

PARTITIONS_PER_SLICE = 16
"""Making or removing a directory syncs the disk, some hundred microseconds each."""


class Replicas(Protocol):
    """What the controller asks of the replicas of this broker."""

    def become_leader(
        self,
        topic_partition: TopicPartition,
        topic_id: Uuid,
        leader_epoch: int,
        replicas: Sequence[BrokerId],
        isr: Sequence[BrokerId],
        config: LogConfig,
    ) -> None: ...
    def stop_replica(self, topic_partition: TopicPartition, *, delete: bool) -> None: ...
    def forget_topic(self, topic: str) -> None: ...
    def update_log_config(self, topic: str, config: LogConfig) -> None: ...


class LocalPartitions:
    def __init__(self, broker_id: BrokerId, replicas: Replicas) -> None:
        self.broker_id = broker_id
        self._replicas = replicas

    async def lead(
        self,
        topic: str,
        topic_id: Uuid,
        assignment: Mapping[int, Sequence[int]],
        states: Mapping[int, PartitionState],
        config: LogConfig,
    ) -> list[PartitionMetadata]:
        """Lead the partitions whose states say so; returns what clients may know of them all."""
        known: list[PartitionMetadata] = []
        for position, (partition, replicas) in enumerate(sorted(assignment.items()), 1):
            state = states.get(partition)
            if state is None:
                known.append(PartitionMetadata(partition, tuple(replicas)))
                continue
            leader = BrokerId(state.leader)
            if leader == self.broker_id and not self._lead_one(
                TopicPartition(topic, partition), topic_id, replicas, state, config
            ):
                leader = NO_LEADER
            is_offline = leader == NO_LEADER and self.broker_id in replicas
            known.append(
                PartitionMetadata(
                    partition,
                    tuple(replicas),
                    leader=leader,
                    leader_epoch=state.leader_epoch,
                    isr=state.isr,
                    offline=(self.broker_id,) if is_offline else (),
                    controller_epoch=state.controller_epoch,
                )
            )
            if position % PARTITIONS_PER_SLICE == 0:
                await asyncio.sleep(0)
        return known

    def _lead_one(
        self,
        topic_partition: TopicPartition,
        topic_id: Uuid,
        replicas: Sequence[int],
        state: PartitionState,
        config: LogConfig,
    ) -> bool:
        try:
            self._replicas.become_leader(
                topic_partition,
                topic_id,
                state.leader_epoch,
                [BrokerId(replica) for replica in replicas],
                [BrokerId(replica) for replica in state.isr],
                config,
            )
        except (KafkaError, OSError):
            logger.exception("partition %s cannot be led", topic_partition)
            return False
        return True

    async def delete(self, topic: str, partitions: Iterable[int]) -> None:
        """Serve the topic no longer and remove its files."""
        for position, partition in enumerate(partitions, 1):
            self._replicas.stop_replica(TopicPartition(topic, partition), delete=True)
            if position % PARTITIONS_PER_SLICE == 0:
                await asyncio.sleep(0)
        self._replicas.forget_topic(topic)
