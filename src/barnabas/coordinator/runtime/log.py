"""Log of a coordinator: read a partition back, append to it, wait for replication.

Every write names the leader epoch of the coordinator's election. Once the partition has another epoch,
appending raises NOT_LEADER_OR_FOLLOWER, so a replaced coordinator cannot write.
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.core.errors import KafkaError, MessageTooLarge, NotLeaderOrFollower, error_for
from barnabas.core.ids import ACKS_ALL, TopicPartition
from barnabas.core.regions import FileRegion
from barnabas.replication.leader.delayed_produce import PendingAck
from barnabas.replication.partition.partition import Partition
from barnabas.replication.replica_manager import ReplicaManager
from barnabas.storage.producers.append_checks import AppendOrigin


class CoordinatorLog:
    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas

    def start_offset(self, topic_partition: TopicPartition) -> int:
        return self._replicas.partition(*topic_partition).log.log_start_offset

    def end_offset(self, topic_partition: TopicPartition) -> int:
        return self._replicas.partition(*topic_partition).log.log_end_offset

    def read(self, topic_partition: TopicPartition, offset: int, max_bytes: int) -> bytes:
        """Batches from the one that holds `offset`; at least one, empty at the end of the log. The last one
        may be cut off."""
        log = self._replicas.partition(*topic_partition).log
        data = log.read(offset, max_bytes, upper_offset=log.log_end_offset, min_one_batch=True)
        records = data.records
        return records.read() if isinstance(records, FileRegion) else records

    def batch_bytes_max(self, topic_partition: TopicPartition) -> int:
        """Size of the largest batch that can be appended now."""
        return self._replicas.partition(*topic_partition).log.config.max_message_bytes

    def append(self, topic_partition: TopicPartition, leader_epoch: int, batch: bytearray) -> int:
        """Append one batch; returns the offset after it."""
        partition = self._led(topic_partition, leader_epoch)
        if len(batch) > partition.log.config.max_message_bytes:
            raise MessageTooLarge(f"a batch of {len(batch)} bytes is too large for {topic_partition}")
        info = partition.append(memoryview(batch), ACKS_ALL, AppendOrigin.COORDINATOR)
        return info.last_offset + 1

    def await_replication(
        self,
        topic_partition: TopicPartition,
        leader_epoch: int,
        end_offset: int,
        timeout_ms: float,
        done: Callable[[KafkaError | None], None],
    ) -> None:
        """Call `done` once everything below `end_offset` is replicated, at once if it is already."""
        try:
            partition = self._led(topic_partition, leader_epoch)
        except KafkaError as error:
            done(error)
            return
        if partition.is_acknowledged(end_offset, ACKS_ALL):
            done(None)
            return
        ack = PendingAck(partition, end_offset)
        self._replicas.await_acks(
            timeout_ms,
            ACKS_ALL,
            [ack],
            lambda: done(error_for(ack.error_code) if ack.error_code else None),
        )

    def wake(self, topic_partition: TopicPartition) -> None:
        """Complete waiting fetches after an append whose writers are answered."""
        self._replicas.delayed.wake(topic_partition)

    def _led(self, topic_partition: TopicPartition, leader_epoch: int) -> Partition:
        partition = self._replicas.partition(*topic_partition)
        if not partition.leadership.is_leader or partition.leadership.leader_epoch != leader_epoch:
            raise NotLeaderOrFollower(f"{topic_partition} is past leader epoch {leader_epoch}")
        partition.leadership.check_current()
        return partition
