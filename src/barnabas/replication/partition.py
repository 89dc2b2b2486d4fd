"""A topic-partition as this broker sees it: its log, its leadership, its high watermark.

In four layers, as few things need to know all of it: who leads (`partition_leadership`), what is committed
(`partition_replication`), how it is read (`partition_reading`), and, here, how it is written.

A follower copies batches as they are. Its high watermark is the leader's, as far as its own log
goes; where to cut its log is decided by leader epochs alone (`replica_fetcher`).

What survives a crash: a process that dies loses nothing, its writes are with the kernel. A
machine that loses power may lose what was not flushed. The controller takes a broker that comes
back with a new registration out of the ISR, so it rejoins only after catching up; the exception
is the last member of an ISR, which leads again with what its disk kept. Topics that must survive
the loss of power of all in-sync replicas at once set `flush.messages`.
"""

from __future__ import annotations

from barnabas.core.errors import (
    FencedLeaderEpoch,
    NotEnoughReplicas,
    OffsetOutOfRange,
    PolicyViolation,
)
from barnabas.records.batch import iterate_whole_batches
from barnabas.replication.partition_reading import ReadablePartition
from barnabas.storage.log.append import AppendInfo
from barnabas.storage.log.log import Log
from barnabas.storage.producers.producer_state import AppendOrigin

DELETE_TO_HIGH_WATERMARK = -1
"""DeleteRecords with this offset means "everything that is committed"."""


class Partition(ReadablePartition):
    __slots__ = ()

    def append(
        self, records: memoryview, required_acks: int, origin: AppendOrigin = AppendOrigin.CLIENT
    ) -> AppendInfo:
        self.check_current()
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

    def append_as_follower(self, records: memoryview, leader_epoch: int) -> AppendInfo:
        """Copy what the leader has written, unless its time has passed."""
        if self.leader_epoch != leader_epoch or self.leader_id == self.broker_id:
            raise FencedLeaderEpoch(f"{self.topic_partition} is at leader epoch {self.leader_epoch}")
        log = self.log
        if log.log_end_offset == log.log_start_offset:
            begin_inside_batch(log, records)
        return log.append_as_follower(records)

    def is_acknowledged(self, end_offset: int, required_acks: int) -> bool:
        """Whether everything below `end_offset` is as safe as the producer asked for."""
        log = self.log
        if required_acks == -1:
            return log.high_watermark >= end_offset
        return log.durable_end_offset >= end_offset

    def delete_records_before(self, offset: int) -> int:
        """Forget what lies below `offset`; returns the new start of the log."""
        self.check_current()
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


def begin_inside_batch(log: Log, records: memoryview) -> None:
    """A leader's log may start in the middle of a batch, of which the whole is copied: then an empty
    copy has to begin where the batch does."""
    first = next(iter(iterate_whole_batches(records)), None)
    start_offset = log.log_start_offset
    if first is not None and first.base_offset < start_offset <= first.last_offset:
        log.truncate_fully_and_start_at(first.base_offset, log_start_offset=start_offset)
