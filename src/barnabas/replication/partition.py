"""A topic-partition as this broker sees it: its log, its leadership, its high watermark.

The high watermark is the smallest offset that every in-sync replica has made its own; what
lies below it is committed, and only that is shown to consumers. Invariants: it never goes
back within a leader epoch, and it never passes the end of the leader's own durable log.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.core.errors import (
    FencedLeaderEpoch,
    InconsistentTopicId,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    PolicyViolation,
    UnknownLeaderEpoch,
)
from barnabas.core.ids import NO_LEADER, ZERO_UUID, BrokerId, TopicPartition, Uuid
from barnabas.core.regions import FileRegion
from barnabas.replication.fetching import NO_EPOCH, FetchParams, FetchPartition, PartitionRead
from barnabas.replication.topic_metrics import TopicMetrics
from barnabas.storage.append import AppendInfo
from barnabas.storage.log import Log
from barnabas.storage.producer_state import AppendOrigin

DELETE_TO_HIGH_WATERMARK = -1
"""DeleteRecords with this offset means "everything that is committed"."""


class Partition:
    __slots__ = (
        "broker_id",
        "isr",
        "leader_epoch",
        "leader_id",
        "log",
        "metrics",
        "replicas",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: Uuid,
        log: Log,
        broker_id: BrokerId,
        metrics: TopicMetrics,
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log = log
        self.broker_id = broker_id
        self.metrics = metrics
        self.leader_id: BrokerId = NO_LEADER
        self.leader_epoch = NO_EPOCH
        self.replicas: tuple[BrokerId, ...] = ()
        self.isr: frozenset[BrokerId] = frozenset()

    # Leadership

    @property
    def is_leader(self) -> bool:
        return self.leader_id == self.broker_id

    def become_leader(self, leader_epoch: int, replicas: Sequence[BrokerId], isr: Sequence[BrokerId]) -> None:
        """Lead from here on. A lower epoch than the present one is a message from the past."""
        if leader_epoch < self.leader_epoch:
            raise FencedLeaderEpoch(f"{self.topic_partition} is at leader epoch {self.leader_epoch}")
        self.leader_id = self.broker_id
        self.leader_epoch = leader_epoch
        self.replicas = tuple(replicas)
        self.isr = frozenset(isr)
        # The log notes the epoch with its first append: an idle partition writes nothing at a start.
        self.maybe_advance_high_watermark()

    def check_leader(self, current_leader_epoch: int) -> None:
        """Refuse a client that believes in another leader than us, or in another epoch."""
        if self.leader_id != self.broker_id:
            raise NotLeaderOrFollower(f"this broker does not lead {self.topic_partition}")
        if current_leader_epoch in (NO_EPOCH, self.leader_epoch):
            return
        if current_leader_epoch < self.leader_epoch:
            raise FencedLeaderEpoch(f"{self.topic_partition} is at leader epoch {self.leader_epoch}")
        raise UnknownLeaderEpoch(f"{self.topic_partition} is still at leader epoch {self.leader_epoch}")

    @property
    def has_enough_replicas(self) -> bool:
        """A topic with fewer replicas than `min.insync.replicas` needs all that it has."""
        return len(self.isr) >= min(self.log.config.min_insync_replicas, len(self.replicas))

    # Writing

    def append(
        self, records: memoryview, required_acks: int, origin: AppendOrigin = AppendOrigin.CLIENT
    ) -> AppendInfo:
        if self.leader_id != self.broker_id:
            raise NotLeaderOrFollower(f"this broker does not lead {self.topic_partition}")
        if required_acks == -1 and not self.has_enough_replicas:
            raise NotEnoughReplicas(
                f"{self.topic_partition} has {len(self.isr)} in-sync replicas, "
                f"min.insync.replicas asks for {self.log.config.min_insync_replicas}"
            )
        info = self.log.append_as_leader(records, leader_epoch=self.leader_epoch, origin=origin)
        self.maybe_advance_high_watermark()
        metrics = self.metrics
        metrics.messages_in.value += info.record_count
        metrics.bytes_in.value += info.size_bytes
        return info

    def maybe_advance_high_watermark(self) -> bool:
        """Move the high watermark as far as the in-sync replicas allow; says whether it moved.

        This broker is the only in-sync replica, so that is as far as its own log is durable.
        """
        log = self.log
        committed = log.durable_end_offset
        if committed <= log.high_watermark:
            return False
        log.advance_high_watermark(committed)
        return True

    def is_acknowledged(self, end_offset: int, required_acks: int) -> bool:
        """Whether everything below `end_offset` is as safe as the producer asked for."""
        log = self.log
        if required_acks == -1:
            return log.high_watermark >= end_offset
        return log.durable_end_offset >= end_offset

    def delete_records_before(self, offset: int) -> int:
        """Forget what lies below `offset`; returns the new start of the log."""
        if self.leader_id != self.broker_id:
            raise NotLeaderOrFollower(f"this broker does not lead {self.topic_partition}")
        log = self.log
        if not log.config.is_deleted:
            raise PolicyViolation(
                f"records of {self.topic_partition} cannot be deleted: its cleanup.policy has no 'delete'"
            )
        target = log.high_watermark if offset == DELETE_TO_HIGH_WATERMARK else offset
        if not 0 <= target <= log.high_watermark:
            raise OffsetOutOfRange(
                f"{self.topic_partition}: offset {target} is not between 0 and the high watermark "
                f"{log.high_watermark}"
            )
        log.maybe_increment_log_start_offset(target, "records deleted by a client")
        return log.log_start_offset

    @property
    def low_watermark(self) -> int:
        """The highest start among the replicas' logs; ours is the only one."""
        return self.log.log_start_offset

    # Reading

    def readable_end(self, params: FetchParams) -> int:
        """Where a reader of this kind has to stop."""
        log = self.log
        if params.is_from_follower:
            return log.log_end_offset
        return log.last_stable_offset if params.read_committed else log.high_watermark

    def read(
        self, ask: FetchPartition, params: FetchParams, max_bytes: int, *, min_one_batch: bool
    ) -> PartitionRead:
        """One region of one segment, or nothing when the reader has caught up."""
        self.check_leader(ask.current_leader_epoch)
        if ask.topic_id not in (self.topic_id, ZERO_UUID):
            raise InconsistentTopicId(f"{self.topic_partition} has the topic id {self.topic_id}")
        if params.is_from_follower and (
            params.replica_id not in self.replicas or params.replica_id == self.broker_id
        ):
            raise NotLeaderOrFollower(f"broker {params.replica_id} follows nobody in {self.topic_partition}")
        log = self.log
        offset = ask.fetch_offset
        result = PartitionRead(0, log.high_watermark, log.last_stable_offset, log.log_start_offset)
        if ask.last_fetched_epoch != NO_EPOCH and self._diverges(ask, result):
            return result
        upper_offset = self.readable_end(params)
        if offset == upper_offset or (max_bytes <= 0 and not min_one_batch):
            if offset < log.log_start_offset:
                raise OffsetOutOfRange(f"{self.topic_partition} starts at {log.log_start_offset}")
            return result
        data = log.read(offset, max_bytes, upper_offset=upper_offset, min_one_batch=min_one_batch)
        if isinstance(data.records, FileRegion) and not data.is_first_batch_incomplete:
            result.records = data.records
            if params.read_committed:
                until = min(log.upper_bound_offset(data), upper_offset)
                result.aborted_transactions = log.aborted_transactions(offset, until)
        return result

    def epoch_for_offset(self, offset: int) -> int:
        """The leader epoch in which the record at `offset` was, or will be, appended; -1 if unknown."""
        log = self.log
        if offset >= log.log_end_offset:
            return self.leader_epoch
        return log.leader_epochs.epoch_for_offset(offset)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """`(epoch, end offset)` of the largest epoch up to `epoch`; both -1 when unknown."""
        log = self.log
        if epoch == self.leader_epoch:
            return epoch, log.log_end_offset
        latest = log.leader_epochs.latest_epoch
        if latest < epoch < self.leader_epoch:
            # Nothing was appended in our own epoch yet, so it begins where the log ends.
            return (epoch if latest == NO_EPOCH else latest), log.log_end_offset
        return log.end_offset_for_epoch(epoch)

    def _diverges(self, ask: FetchPartition, result: PartitionRead) -> bool:
        """KIP-595: the reader's last epoch ends elsewhere in our history, so its tail is not ours."""
        epoch, end_offset = self.end_offset_for_epoch(ask.last_fetched_epoch)
        if epoch == NO_EPOCH or end_offset < 0:
            raise OffsetOutOfRange(f"{self.topic_partition} knows nothing of epoch {ask.last_fetched_epoch}")
        if epoch < ask.last_fetched_epoch or end_offset < ask.fetch_offset:
            result.diverging_epoch = (epoch, end_offset)
            return True
        return False
