"""A topic-partition as this broker sees it: its log, its leadership, its high watermark.

The high watermark is the smallest offset that every in-sync replica has made its own; what
lies below it is committed, and only that is shown to consumers. Invariants: it never goes
back within a leader epoch, and it never passes the end of the leader's own durable log.

A leader learns how far its followers are from their fetches (`update_follower`) and counts with
the *maximal* ISR: a follower about to join holds the high watermark back before the store has
heard of it, and one about to leave holds it back until the store has. So whoever is elected
from the ISR in the store has everything that was acknowledged. Who joins and leaves is decided
here; telling the store is `isr`'s part.

A follower copies batches as they are. Its high watermark is the leader's, as far as its own log
goes; where to cut its log is decided by leader epochs alone (`replica_fetcher`).

What survives a crash: a process that dies loses nothing, its writes are with the kernel. A
machine that loses power may lose what was not flushed. The controller takes a broker that comes
back with a new registration out of the ISR, so it rejoins only after catching up; the exception
is the last member of an ISR, which leads again with what its disk kept. Topics that must survive
the loss of power of all in-sync replicas at once set `flush.messages`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from barnabas.core.clock import Clock
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
from barnabas.records.batch import iterate_whole_batches
from barnabas.replication.fetching import NO_EPOCH, NO_OFFSET, FetchParams, FetchPartition, PartitionRead
from barnabas.replication.lease import Lease
from barnabas.replication.remote_replica import NO_BROKER_EPOCH, RemoteReplica
from barnabas.replication.settings import ReplicationSettings
from barnabas.replication.topic_metrics import TopicMetrics
from barnabas.storage.append import AppendInfo
from barnabas.storage.log import Log
from barnabas.storage.producer_state import AppendOrigin

DELETE_TO_HIGH_WATERMARK = -1
"""DeleteRecords with this offset means "everything that is committed"."""


def _all_live(broker_id: int) -> bool:  # noqa: ARG001 - the shape of a liveness test
    return True


def _ignore(*_: object) -> None:
    return None


@dataclass(slots=True)
class PartitionHost:
    """What all partitions of a broker share."""

    clock: Clock
    settings: ReplicationSettings
    lease: Lease | None = None
    """None where leadership cannot be taken away behind the broker's back: on a single node."""
    is_live: Callable[[int], bool] = _all_live
    advanced: Callable[[Partition], None] = _ignore
    """A follower's fetch moved a watermark: who waits for that may go on."""
    may_join_isr: Callable[[Partition, RemoteReplica], None] = _ignore
    """A follower that is not in the ISR has caught up."""


class PendingIsr(NamedTuple):
    """An ISR on its way to the store."""

    isr: frozenset[BrokerId]
    leader_epoch: int
    partition_epoch: int


class Partition:
    __slots__ = (
        "adding_replicas",
        "broker_id",
        "controller_epoch",
        "followers",
        "host",
        "isr",
        "leader_epoch",
        "leader_epoch_start_offset",
        "leader_id",
        "log",
        "maximal_isr",
        "metrics",
        "partition_epoch",
        "pending_isr",
        "removing_replicas",
        "replicas",
        "told_high_watermark",
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
        host: PartitionHost,
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log = log
        self.broker_id = broker_id
        self.metrics = metrics
        self.host = host
        self.leader_id: BrokerId = NO_LEADER
        self.leader_epoch = NO_EPOCH
        self.leader_epoch_start_offset = NO_OFFSET
        self.controller_epoch = 0
        self.partition_epoch = 0
        """The version of the partition's state in the store."""
        self.replicas: tuple[BrokerId, ...] = ()
        self.adding_replicas: frozenset[BrokerId] = frozenset()
        self.removing_replicas: frozenset[BrokerId] = frozenset()
        self.isr: frozenset[BrokerId] = frozenset()
        """As the store has it."""
        self.maximal_isr: frozenset[BrokerId] = frozenset()
        """With the members of a change that the store has not confirmed."""
        self.pending_isr: PendingIsr | None = None
        self.told_high_watermark = NO_OFFSET
        """The high watermark when producers were last looked at: below it none of them waits."""
        self.followers: dict[BrokerId, RemoteReplica] = {}
        """Of a leader: its other replicas. Of a follower: none."""

    # Leadership

    @property
    def is_leader(self) -> bool:
        return self.leader_id == self.broker_id

    def become_leader(
        self,
        leader_epoch: int,
        replicas: Sequence[BrokerId],
        isr: Iterable[BrokerId],
        *,
        partition_epoch: int = 0,
        controller_epoch: int = 0,
    ) -> bool:
        """Lead from here on; True if that is new. A lower epoch than the present one is a message
        from the past."""
        is_new_epoch = leader_epoch > self.leader_epoch or self.leader_id != self.broker_id
        self._take_state(self.broker_id, leader_epoch, replicas, isr, partition_epoch, controller_epoch)
        log = self.log
        followers = {each: self.followers.get(each) or RemoteReplica(each) for each in self.replicas}
        followers.pop(self.broker_id, None)
        self.followers = followers
        now_ms = self.host.clock.monotonic_ms()
        for broker_id, follower in followers.items():
            follower.reset(
                now_ms, log.log_end_offset, is_new_epoch=is_new_epoch, is_in_sync=broker_id in self.isr
            )
        if is_new_epoch:
            self.leader_epoch_start_offset = log.log_end_offset
        # The log notes the epoch with its first append: an idle partition writes nothing at a start.
        self.maybe_advance_high_watermark()
        return is_new_epoch

    def become_follower(
        self,
        leader_id: BrokerId,
        leader_epoch: int,
        replicas: Sequence[BrokerId],
        isr: Iterable[BrokerId] = (),
        *,
        partition_epoch: int = 0,
        controller_epoch: int = 0,
    ) -> bool:
        """Follow another broker, or nobody while there is no leader; True if the leader or its
        epoch is new."""
        is_new = leader_epoch > self.leader_epoch or leader_id != self.leader_id
        self._take_state(leader_id, leader_epoch, replicas, isr, partition_epoch, controller_epoch)
        self.followers = {}
        self.leader_epoch_start_offset = NO_OFFSET
        return is_new

    def _take_state(
        self,
        leader_id: BrokerId,
        leader_epoch: int,
        replicas: Sequence[BrokerId],
        isr: Iterable[BrokerId],
        partition_epoch: int,
        controller_epoch: int,
    ) -> None:
        if leader_epoch < self.leader_epoch:
            raise FencedLeaderEpoch(f"{self.topic_partition} is at leader epoch {self.leader_epoch}")
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.controller_epoch = controller_epoch
        self.replicas = tuple(replicas)
        self.isr = self.maximal_isr = frozenset(isr)
        self.pending_isr = None

    def resign(self) -> None:
        """Serve neither as leader nor as follower; the epoch is remembered, to recognise old orders."""
        self.leader_id = NO_LEADER
        self.followers = {}
        self.pending_isr = None

    def check_leader(self, current_leader_epoch: int) -> None:
        """Refuse a client that believes in another epoch, or in another leader than us."""
        self._check_epoch(current_leader_epoch)
        if self.leader_id != self.broker_id:
            raise NotLeaderOrFollower(f"this broker does not lead {self.topic_partition}")

    def check_readable(self, params: FetchParams, current_leader_epoch: int) -> None:
        """Consumers may read from a follower (KIP-392), up to the high watermark that it knows."""
        self._check_epoch(current_leader_epoch)
        if self.leader_id != self.broker_id and not params.may_read_from_follower:
            raise NotLeaderOrFollower(f"this broker does not lead {self.topic_partition}")

    def _check_epoch(self, current_leader_epoch: int) -> None:
        """Comes before the question who leads: a client ahead of us must not go looking elsewhere."""
        if current_leader_epoch in (NO_EPOCH, self.leader_epoch):
            return
        if current_leader_epoch < self.leader_epoch:
            raise FencedLeaderEpoch(f"{self.topic_partition} is at leader epoch {self.leader_epoch}")
        raise UnknownLeaderEpoch(f"{self.topic_partition} is still at leader epoch {self.leader_epoch}")

    @property
    def has_lease(self) -> bool:
        return self.host.lease is None or self.host.lease.is_held

    @property
    def has_enough_replicas(self) -> bool:
        return len(self.isr) >= min(self.log.config.min_insync_replicas, len(self.replicas))

    @property
    def effective_min_isr(self) -> int:
        """A topic with fewer replicas than `min.insync.replicas` needs all that it has."""
        return min(self.log.config.min_insync_replicas, len(self.replicas))

    # Writing

    def append(
        self, records: memoryview, required_acks: int, origin: AppendOrigin = AppendOrigin.CLIENT
    ) -> AppendInfo:
        if self.leader_id != self.broker_id:
            raise NotLeaderOrFollower(f"this broker does not lead {self.topic_partition}")
        lease = self.host.lease
        if lease is not None and not lease.is_held:
            raise NotLeaderOrFollower(f"this broker may have lost {self.topic_partition}")
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
        segment_bytes = log.config.segment_bytes
        if len(records) > segment_bytes:
            # The leader's segments are larger than ours may be: segment.bytes was made smaller since.
            for chunk in _chunks(records, segment_bytes):
                info = log.append_as_follower(chunk)
            return info
        return log.append_as_follower(records)

    def maybe_advance_high_watermark(self) -> bool:
        """Move the high watermark as far as the in-sync replicas allow; says whether it moved."""
        log = self.log
        committed = log.durable_end_offset
        if committed <= log.high_watermark or self.leader_id != self.broker_id:
            return False
        if self.followers:
            committed = self._replicated_end_offset(committed)
            if committed <= log.high_watermark:
                return False
        log.advance_high_watermark(committed)
        return True

    def _replicated_end_offset(self, end_offset: int) -> int:
        """The smallest log end offset of the maximal ISR, and of followers that are about to join it.

        Below `min.insync.replicas` nothing more is committed, as in Apache Kafka since 4.0."""
        if not self.has_enough_replicas:
            return NO_OFFSET
        host = self.host
        leader_end_offset = self.log.log_end_offset
        now_ms = host.clock.monotonic_ms()
        lag_time_max_ms = host.settings.replica_lag_time_max_ms
        for broker_id, follower in self.followers.items():
            if follower.end_offset < end_offset and (
                broker_id in self.maximal_isr
                or (
                    follower.end_offset >= 0
                    and follower.is_caught_up(leader_end_offset, now_ms, lag_time_max_ms)
                    and host.is_live(broker_id)
                )
            ):
                end_offset = follower.end_offset
        return end_offset

    # Followers, as their leader sees them

    def update_follower(
        self, broker_id: BrokerId, fetch_offset: int, start_offset: int, broker_epoch: int = NO_BROKER_EPOCH
    ) -> None:
        """A follower fetches from `fetch_offset`: so far its log is like ours."""
        follower = self.followers.get(broker_id)
        if follower is None:
            raise NotLeaderOrFollower(f"broker {broker_id} follows nobody in {self.topic_partition}")
        if NO_BROKER_EPOCH < broker_epoch < follower.broker_epoch:
            raise NotLeaderOrFollower(f"broker {broker_id} has been started again since")
        host, log = self.host, self.log
        is_same_start = start_offset == follower.start_offset
        follower.fetched(
            fetch_offset, start_offset, host.clock.monotonic_ms(), log.log_end_offset, broker_epoch
        )
        if broker_id not in self.maximal_isr and self.can_join_isr(follower):
            host.may_join_isr(self, follower)
        if self.maybe_advance_high_watermark() or not is_same_start:
            host.advanced(self)

    def can_join_isr(self, follower: RemoteReplica) -> bool:
        """It has all that is committed, and all that this leader found when it was elected: below
        that a former leader may have committed more than we know of yet."""
        return (
            self.pending_isr is None
            and follower.end_offset >= self.log.high_watermark
            and follower.end_offset >= self.leader_epoch_start_offset
            and self.host.is_live(follower.broker_id)
        )

    def lagging_members(self) -> frozenset[BrokerId]:
        """Members of the ISR that have not been caught up for too long."""
        now_ms = self.host.clock.monotonic_ms()
        lag_time_max_ms = self.host.settings.replica_lag_time_max_ms
        end_offset = self.log.log_end_offset
        return frozenset(
            broker_id
            for broker_id, follower in self.followers.items()
            if broker_id in self.isr and not follower.is_caught_up(end_offset, now_ms, lag_time_max_ms)
        )

    def propose_isr(self, isr: frozenset[BrokerId]) -> PendingIsr:
        """Count with the larger of both sets until the store has confirmed the change."""
        assert self.pending_isr is None, "one change at a time"
        self.pending_isr = PendingIsr(isr, self.leader_epoch, self.partition_epoch)
        self.maximal_isr = self.isr | isr
        return self.pending_isr

    def isr_written(self, pending: PendingIsr, partition_epoch: int) -> bool:
        """The store has the proposed ISR; False if the controller has meanwhile decided otherwise."""
        if self.pending_isr is not pending:
            return False
        self.isr = self.maximal_isr = pending.isr
        self.pending_isr = None
        self.partition_epoch = partition_epoch
        self.maybe_advance_high_watermark()
        return True

    @property
    def is_behind_its_epoch(self) -> bool:
        """A leader just elected does not know yet how much its predecessor had committed (KIP-207):
        what it would tell as the end could be less than a consumer has seen."""
        return self.leader_id == self.broker_id and self.log.high_watermark < self.leader_epoch_start_offset

    @property
    def is_under_replicated(self) -> bool:
        return self.leader_id == self.broker_id and len(self.isr) < len(self.replicas)

    # Acknowledging and deleting

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
        """The lowest start among the logs of the live replicas: everything below is gone everywhere."""
        low = self.log.log_start_offset
        if self.leader_id == self.broker_id:
            for broker_id, follower in self.followers.items():
                if follower.start_offset < low and self.host.is_live(broker_id):
                    low = follower.start_offset
        return low

    # Reading

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


def begin_inside_batch(log: Log, records: memoryview) -> None:
    """A leader's log may start in the middle of a batch, of which the whole is copied: then an empty
    copy has to begin where the batch does."""
    first = next(iter(iterate_whole_batches(records)), None)
    start_offset = log.log_start_offset
    if first is not None and first.base_offset < start_offset <= first.last_offset:
        log.truncate_fully_and_start_at(first.base_offset, log_start_offset=start_offset)


def _chunks(records: memoryview, size_bytes_max: int) -> Iterator[memoryview]:
    """The records in pieces of whole batches; one batch is never cut, however large."""
    start = end = 0
    for batch in iterate_whole_batches(records):
        if end > start and batch.position + batch.size_bytes - start > size_bytes_max:
            yield records[start:end]
            start = end
        end = batch.position + batch.size_bytes
    yield records[start:end]
