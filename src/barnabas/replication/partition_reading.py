"""Reading from a partition, as its leader or, for consumers, as its follower.

What a reader gets is one region of one segment file, and how far it may go depends on who it is: a
follower to the end of the log, a consumer to the high watermark, one that reads only what is
committed to the last stable offset. A follower's fetch is also its report on how far it is.
"""

from __future__ import annotations

from barnabas.core.errors import InconsistentTopicId, NotLeaderOrFollower, OffsetOutOfRange
from barnabas.core.ids import ZERO_UUID, BrokerId
from barnabas.core.regions import FileRegion
from barnabas.replication.fetching import NO_EPOCH, FetchParams, FetchPartition, PartitionRead
from barnabas.replication.partition_replication import ReplicatedPartition


class ReadablePartition(ReplicatedPartition):
    __slots__ = ()

    def readable_end(self, params: FetchParams) -> int:
        """Where a reader of this kind has to stop."""
        log = self.log
        if params.is_from_follower:
            return log.log_end_offset
        return log.last_stable_offset if params.read_committed else log.high_watermark

    def read(
        self,
        ask: FetchPartition,
        params: FetchParams,
        max_bytes: int,
        *,
        min_one_batch: bool,
        is_first_try: bool = True,
    ) -> PartitionRead:
        """One region of one segment, or nothing when the reader has caught up."""
        epoch = ask.current_leader_epoch
        if self.leader_id != self.broker_id or (epoch != NO_EPOCH and epoch != self.leader_epoch):  # noqa: PLR1714
            self.check_readable(params, epoch)
        if ask.topic_id not in (self.topic_id, ZERO_UUID):
            raise InconsistentTopicId(f"{self.topic_partition} has the topic id {self.topic_id}")
        log = self.log
        offset = ask.fetch_offset
        if ask.last_fetched_epoch != NO_EPOCH:
            diverging_epoch = self._diverging_epoch(ask)
            if diverging_epoch is not None:
                return PartitionRead(
                    0,
                    log.high_watermark,
                    log.last_stable_offset,
                    log.log_start_offset,
                    diverging_epoch=diverging_epoch,
                )
        if params.is_from_follower:
            self._fetched_by_follower(ask, params, is_first_try=is_first_try)
        result = PartitionRead(0, log.high_watermark, log.last_stable_offset, log.log_start_offset)
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

    def redirected(self, ask: FetchPartition, params: FetchParams, preferred: int) -> PartitionRead:
        """No records, but the replica that the consumer had better read from."""
        self.check_readable(params, ask.current_leader_epoch)
        log = self.log
        result = PartitionRead(0, log.high_watermark, log.last_stable_offset, log.log_start_offset)
        result.preferred_read_replica = preferred
        return result

    def _fetched_by_follower(self, ask: FetchPartition, params: FetchParams, *, is_first_try: bool) -> None:
        log = self.log
        if not log.log_start_offset <= ask.fetch_offset <= log.log_end_offset:
            raise OffsetOutOfRange(
                f"offset {ask.fetch_offset} of {self.topic_partition} is not within "
                f"[{log.log_start_offset}, {log.log_end_offset}]"
            )
        broker_id = BrokerId(params.replica_id)
        if is_first_try:
            self.update_follower(broker_id, ask.fetch_offset, ask.log_start_offset, params.broker_epoch)
        elif broker_id not in self.followers:
            raise NotLeaderOrFollower(f"broker {broker_id} follows nobody in {self.topic_partition}")

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

    def _diverging_epoch(self, ask: FetchPartition) -> tuple[int, int] | None:
        """KIP-595: the reader's last epoch ends elsewhere in our history, so its tail is not ours."""
        epoch, end_offset = self.end_offset_for_epoch(ask.last_fetched_epoch)
        if epoch == NO_EPOCH or end_offset < 0:
            raise OffsetOutOfRange(f"{self.topic_partition} knows nothing of epoch {ask.last_fetched_epoch}")
        if epoch < ask.last_fetched_epoch or end_offset < ask.fetch_offset:
            return epoch, end_offset
        return None
