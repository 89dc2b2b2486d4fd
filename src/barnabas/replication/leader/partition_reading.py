"""Reads from one partition, on its leader or, for consumers, on a follower.

A read returns one region of one segment file. A follower reads to the log end offset, a consumer to the high
watermark, and a read_committed consumer to the last stable offset.
"""

from __future__ import annotations

from barnabas.core.errors import (
    InconsistentTopicId,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    UnknownLeaderEpoch,
)
from barnabas.core.ids import NO_EPOCH, ZERO_UUID
from barnabas.core.regions import FileRegion
from barnabas.replication.partition.fetching import NO_REPLICA, FetchParams, PartitionFetch, PartitionRead
from barnabas.replication.partition.partition import Partition
from barnabas.storage.log.aborted_transactions import aborted_transactions, upper_bound_offset
from barnabas.storage.log.log import Log


def readable_end(log: Log, params: FetchParams) -> int:
    """Offset where a reader of this kind has to stop."""
    if params.is_from_follower:
        return log.log_end_offset
    return log.last_stable_offset if params.read_committed else log.high_watermark


def check_fetch(partition: Partition, fetch: PartitionFetch, params: FetchParams) -> PartitionRead | None:
    """Refuse a reader that believes in another leader, epoch or topic. A reader with a diverging history gets
    the offset of the divergence as its result (KIP-595)."""
    leadership = partition.leadership
    epoch = fetch.current_leader_epoch
    if not leadership.is_leader or (epoch != NO_EPOCH and epoch != leadership.leader_epoch):  # noqa: PLR1714
        leadership.check_readable(params, epoch)
    if fetch.topic_id not in (partition.topic_id, ZERO_UUID):
        raise InconsistentTopicId(f"{partition.topic_partition} has the topic id {partition.topic_id}")
    if params.is_from_follower and params.replica_id not in partition.followers:
        message = f"broker {params.replica_id} is not a follower of {partition.topic_partition}"
        # A broker that knows the epoch may know the assignment before this one does: it tries again.
        raise NotLeaderOrFollower(message) if epoch == NO_EPOCH else UnknownLeaderEpoch(message)
    if fetch.last_fetched_epoch == NO_EPOCH:
        return None
    epoch, end_offset = partition.end_offset_for_epoch(fetch.last_fetched_epoch)
    if epoch == NO_EPOCH or end_offset < 0:
        raise OffsetOutOfRange(f"{partition.topic_partition} has no leader epoch {fetch.last_fetched_epoch}")
    if epoch < fetch.last_fetched_epoch or end_offset < fetch.fetch_offset:
        return _offsets(partition.log, diverging_epoch=(epoch, end_offset))
    return None


def read_records(
    partition: Partition, fetch: PartitionFetch, params: FetchParams, max_bytes: int, *, min_one_batch: bool
) -> PartitionRead:
    """One region of one segment; empty when the reader has caught up."""
    log = partition.log
    offset = fetch.fetch_offset
    result = PartitionRead(0, log.high_watermark, log.last_stable_offset, log.log_start_offset)
    upper_offset = readable_end(log, params)
    if offset == upper_offset or (max_bytes <= 0 and not min_one_batch):
        if offset < log.log_start_offset:
            raise OffsetOutOfRange(f"{partition.topic_partition} starts at {log.log_start_offset}")
        return result
    data = log.read(offset, max_bytes, upper_offset=upper_offset, min_one_batch=min_one_batch)
    if isinstance(data.records, FileRegion) and not data.is_first_batch_incomplete:
        result.records = data.records
        if params.read_committed:
            until = min(upper_bound_offset(log, data), upper_offset)
            result.aborted_transactions = aborted_transactions(log, offset, until)
    return result


def redirect(
    partition: Partition, fetch: PartitionFetch, params: FetchParams, preferred: int
) -> PartitionRead:
    """Result without records, naming the replica that the consumer should read from."""
    partition.leadership.check_readable(params, fetch.current_leader_epoch)
    return _offsets(partition.log, preferred_read_replica=preferred)


def _offsets(
    log: Log, *, diverging_epoch: tuple[int, int] | None = None, preferred_read_replica: int = NO_REPLICA
) -> PartitionRead:
    read = PartitionRead(0, log.high_watermark, log.last_stable_offset, log.log_start_offset)
    read.diverging_epoch = diverging_epoch
    read.preferred_read_replica = preferred_read_replica
    return read
