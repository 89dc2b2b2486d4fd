"""Topic-partition on this broker: its log, its leadership, its followers.

`leadership` holds the leader and the ISR. `partition.followers` computes the committed offset from the
followers' positions. A `Partition` brings both together with the log. Invariants: the high watermark never
goes back within a leader epoch, and never passes the end of the leader's own durable log.

An ISR member has every committed record. A follower that fetches from below the high watermark has lost
records, as after a power failure. It leaves the ISR at once, even if the controller did not notice its
absence, so that it is not elected with the rest. The partition decides about joining and leaving;
`leader.isr_changes` writes it to the store.

A follower copies batches unchanged. Its high watermark is the leader's, as far as its own log goes. Leader
epochs alone decide where its log is truncated (`follower.truncation`).

A process that dies loses nothing: its writes are with the kernel. A machine that loses power may lose what
was not flushed. The controller removes a broker with a new registration from the ISR, so it rejoins only
after catching up. The last member of an ISR is the exception: it leads again with what its disk kept. Topics
that must survive a power failure of all in-sync replicas at once set `flush.messages`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from barnabas.cluster.stores.isr_store import Joining
from barnabas.config.broker_config import BrokerConfig
from barnabas.core.clock import Clock
from barnabas.core.errors import (
    FencedLeaderEpoch,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    PolicyViolation,
)
from barnabas.core.ids import ACKS_ALL, NO_EPOCH, NO_OFFSET, BrokerId, TopicPartition, Uuid
from barnabas.records.batch import iterate_whole_batches
from barnabas.replication.partition.followers import (
    Followers,
    followers_of,
    lagging_members,
    low_watermark,
    replicated_end_offset,
)
from barnabas.replication.partition.leadership import LeaderAndIsr, Leadership, PendingIsr
from barnabas.replication.partition.lease import LeadershipLease
from barnabas.replication.partition.remote_replica import NO_BROKER_EPOCH, RemoteReplica
from barnabas.replication.partition.topic_metrics import TopicMetrics
from barnabas.storage.log.log import Log
from barnabas.storage.log.parts.append import AppendInfo, Outcome, Records
from barnabas.storage.log.threaded_append import append_elsewhere
from barnabas.storage.log.truncation import truncate_fully_and_start_at
from barnabas.storage.producers.append_checks import AppendOrigin

logger = logging.getLogger(__name__)

DELETE_TO_HIGH_WATERMARK = -1
"""Offset in DeleteRecords that stands for the high watermark."""


@dataclass(slots=True, frozen=True)
class PartitionHost:
    """Settings and services that all partitions of a broker share."""

    broker_id: BrokerId
    clock: Clock
    config: BrokerConfig
    lease: LeadershipLease | None
    is_live: Callable[[int], bool]
    keeps_isr: bool
    """Whether there is a store for ISR changes."""


class FollowerUpdate(NamedTuple):
    """Changes caused by a follower's fetch, for the caller to act on."""

    has_advanced: bool
    """A watermark moved: requests that wait for it may complete."""
    proposed_isr: PendingIsr | None = None
    """Change to write to the store."""


NO_CHANGE = FollowerUpdate(has_advanced=False)
ADVANCED = FollowerUpdate(has_advanced=True)


class Partition:
    __slots__ = (
        "_checked_high_watermark",
        "followers",
        "host",
        "leader_epoch_start_offset",
        "leadership",
        "log",
        "metrics",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: Uuid,
        log: Log,
        metrics: TopicMetrics,
        host: PartitionHost,
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log = log
        self.metrics = metrics
        self.host = host
        self.leadership = Leadership(topic_partition, host.broker_id, host.lease)
        self.followers: Followers = {}
        self.leader_epoch_start_offset = NO_OFFSET
        self._checked_high_watermark = NO_OFFSET

    def assign_topic_id(self, topic_id: Uuid) -> None:
        """Store the topic id, which the topic got after its log was made."""
        self.log.assign_topic_id(topic_id)
        self.topic_id = topic_id

    def replace_log(self, log: Log) -> None:
        """Continue with the same log in another directory."""
        self.log = log

    # --- leadership ---

    def become_leader(self, state: LeaderAndIsr) -> bool:
        """Become the leader; True if that is new."""
        self.log.settle()  # what was appended under the previous epoch belongs to it
        log, leadership = self.log, self.leadership
        is_new_epoch = leadership.take(state)
        self.followers = followers_of(
            leadership.broker_id,
            leadership.replicas,
            leadership.isr,
            self.followers,
            self.host.clock.monotonic_ms(),
            log.log_end_offset,
            is_new_epoch=is_new_epoch,
        )
        if is_new_epoch:
            self.leader_epoch_start_offset = log.log_end_offset
        # The log notes the epoch with its first append: an idle partition writes nothing at startup.
        self.maybe_advance_high_watermark()
        return is_new_epoch

    def become_follower(self, state: LeaderAndIsr) -> bool:
        """Become a follower, or a replica without a leader; True if the leader or its epoch is new."""
        self.log.settle()
        is_new = self.leadership.take(state)
        self.followers = {}
        self.leader_epoch_start_offset = NO_OFFSET
        return is_new

    def resign(self) -> None:
        self.leadership.resign()
        self.followers = {}

    @property
    def effective_min_isr(self) -> int:
        """`min.insync.replicas`, or the number of replicas if that is smaller."""
        return min(self.log.config.min_insync_replicas, len(self.leadership.replicas))

    @property
    def has_enough_replicas(self) -> bool:
        leadership = self.leadership
        return len(leadership.isr) >= min(self.log.config.min_insync_replicas, len(leadership.replicas))

    @property
    def is_behind_its_epoch(self) -> bool:
        """Whether a new leader does not know yet how much its predecessor had committed (KIP-207). The end
        offset it would report could be less than a consumer has seen."""
        return self.leadership.is_leader and self.log.high_watermark < self.leader_epoch_start_offset

    # --- high watermark ---

    def maybe_advance_high_watermark(self) -> bool:
        """Advance the high watermark as far as the in-sync replicas allow; True if it moved. Below
        `min.insync.replicas` nothing more is committed, as in Apache Kafka since 4.0."""
        log = self.log
        committed = log.durable_end_offset
        if committed <= log.high_watermark or not self.leadership.is_leader:
            return False
        if self.followers:
            if not self.has_enough_replicas:
                return False
            host = self.host
            committed = replicated_end_offset(
                self.followers,
                committed,
                self.leadership.maximal_isr,
                log.log_end_offset,
                host.clock.monotonic_ms(),
                host.config.replica_lag_time_max_ms,
                host.is_live,
            )
            if committed <= log.high_watermark:
                return False
        log.advance_high_watermark(committed)
        return True

    @property
    def has_new_high_watermark(self) -> bool:
        """Whether the high watermark has moved since the produces were last checked: none of them waits below
        it."""
        return self._checked_high_watermark != self.log.high_watermark

    def high_watermark_checked(self) -> None:
        self._checked_high_watermark = self.log.high_watermark

    @property
    def low_watermark(self) -> int:
        return low_watermark(self.followers, self.log.log_start_offset, self.host.is_live)

    # --- followers ---

    def update_follower(
        self, broker_id: BrokerId, fetch_offset: int, start_offset: int, broker_epoch: int = NO_BROKER_EPOCH
    ) -> FollowerUpdate:
        """Note a follower's fetch from `fetch_offset`: its log equals the leader's up to there."""
        follower = self.followers.get(broker_id)
        if follower is None:
            raise NotLeaderOrFollower(f"broker {broker_id} is not a follower of {self.topic_partition}")
        if NO_BROKER_EPOCH < broker_epoch < follower.broker_epoch:
            raise NotLeaderOrFollower(f"broker {broker_id} has restarted with a newer broker epoch")
        host, log = self.host, self.log
        is_same_start = start_offset == follower.start_offset
        follower.fetched(
            fetch_offset, start_offset, host.clock.monotonic_ms(), log.log_end_offset, broker_epoch
        )
        # Before the high watermark is computed: a follower about to join counts in it.
        proposed = self._isr_after_fetch(follower) if host.keeps_isr else None
        has_advanced = self.maybe_advance_high_watermark() or not is_same_start
        if proposed is not None:
            return FollowerUpdate(has_advanced, proposed)
        return ADVANCED if has_advanced else NO_CHANGE

    def _isr_after_fetch(self, follower: RemoteReplica) -> PendingIsr | None:
        """ISR change that the position of a follower calls for."""
        leadership, log = self.leadership, self.log
        broker_id = follower.broker_id
        if broker_id not in leadership.maximal_isr:
            if not self._can_join_isr(follower) or not leadership.may_change_isr:
                return None
            logger.debug("partition %s: follower %d joins the ISR", self.topic_partition, broker_id)
            epoch = follower.broker_epoch
            joining = None if epoch == NO_BROKER_EPOCH else Joining(broker_id, epoch)
            return leadership.propose_isr(leadership.isr | {broker_id}, joining)
        if follower.end_offset < log.high_watermark and broker_id in leadership.isr:
            if not leadership.may_change_isr:
                return None
            logger.warning(
                "partition %s: follower %d leaves the ISR: log end offset %d is below the high watermark %d",
                self.topic_partition,
                broker_id,
                follower.end_offset,
                log.high_watermark,
            )
            return leadership.propose_isr(leadership.isr - {broker_id})
        return None

    def _can_join_isr(self, follower: RemoteReplica) -> bool:
        """Whether a follower has all that is committed, and all that this leader had at its election. Below
        that, a previous leader may have committed more than is known yet."""
        host = self.host
        return (
            self.leadership.pending_isr is None
            and follower.end_offset >= self.log.high_watermark
            and follower.end_offset >= self.leader_epoch_start_offset
            and host.is_live(follower.broker_id)
            and host.clock.monotonic_ms() >= follower.refused_until_ms
        )

    def refuse_until(self, broker_id: BrokerId, time_ms: float) -> None:
        """Do not propose the follower for the ISR before `time_ms`: the store has another registration."""
        follower = self.followers.get(broker_id)
        if follower is not None:
            follower.refused_until_ms = time_ms

    def lagging_members(self) -> frozenset[BrokerId]:
        host = self.host
        return lagging_members(
            self.followers,
            self.leadership.isr,
            self.log.log_end_offset,
            host.clock.monotonic_ms(),
            host.config.replica_lag_time_max_ms,
        )

    def maybe_shrink_isr(self) -> PendingIsr | None:
        """Propose an ISR without the lagging members; the caller writes it to the store."""
        leadership = self.leadership
        if not leadership.may_change_isr or len(leadership.isr) <= 1:
            return None
        lagging = self.lagging_members()
        if not lagging:
            return None
        logger.warning(
            "partition %s: followers %s leave the ISR: they lag behind log end offset %d",
            self.topic_partition,
            sorted(lagging),
            self.log.log_end_offset,
        )
        return leadership.propose_isr(leadership.isr - lagging)

    # --- appends ---

    def append(
        self, records: Records, required_acks: int, origin: AppendOrigin = AppendOrigin.CLIENT
    ) -> AppendInfo:
        self._check_may_append(required_acks)
        leader_epoch = self.leadership.leader_epoch
        info = self.log.append_as_leader(records, leader_epoch=leader_epoch, origin=origin)
        self._appended(info)
        return info

    def append_elsewhere(self, records: Records, required_acks: int, done: Callable[[Outcome], None]) -> None:
        """`append` with the write in a thread; `done` is called when it is over."""
        self._check_may_append(required_acks)

        def written(outcome: Outcome) -> None:
            try:
                if isinstance(outcome, AppendInfo):
                    self._appended(outcome)
            finally:
                done(outcome)

        append_elsewhere(self.log, records, self.leadership.leader_epoch, written)

    def _check_may_append(self, required_acks: int) -> None:
        self.leadership.check_current()
        if required_acks == ACKS_ALL and not self.has_enough_replicas:
            raise NotEnoughReplicas(
                f"{self.topic_partition} has {len(self.leadership.isr)} in-sync replicas, "
                f"min.insync.replicas asks for {self.log.config.min_insync_replicas}"
            )

    def _appended(self, info: AppendInfo) -> None:
        self.maybe_advance_high_watermark()
        metrics = self.metrics
        metrics.messages_in.value += info.record_count
        metrics.bytes_in.value += info.size_bytes
        metrics.total_produce.value += 1

    def append_as_follower(self, records: memoryview, leader_epoch: int) -> AppendInfo:
        """Append a copy of the leader's batches, unless the leader epoch is outdated."""
        leadership = self.leadership
        if leadership.leader_epoch != leader_epoch or leadership.is_leader:
            raise FencedLeaderEpoch(f"{self.topic_partition} is at leader epoch {leadership.leader_epoch}")
        log = self.log
        if log.log_end_offset == log.log_start_offset:
            begin_inside_batch(log, records)
        return log.append_as_follower(records)

    def is_acknowledged(self, end_offset: int, required_acks: int) -> bool:
        """Whether everything below `end_offset` is as safe as `required_acks` asks."""
        log = self.log
        if required_acks == ACKS_ALL:
            return log.high_watermark >= end_offset
        return log.durable_end_offset >= end_offset

    def delete_records_before(self, offset: int) -> int:
        """Move the log start up to `offset`; returns the new log start offset."""
        self.leadership.check_current()
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

    # --- leader epochs of the log ---

    def epoch_for_offset(self, offset: int) -> int:
        """Leader epoch of the record at `offset`, present or future; -1 if unknown."""
        log = self.log
        if offset >= log.log_end_offset:
            return self.leadership.leader_epoch
        return log.leader_epochs.epoch_for_offset(offset)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """`(epoch, end offset)` of the largest epoch up to `epoch`; both -1 when unknown."""
        log, leader_epoch = self.log, self.leadership.leader_epoch
        if epoch == leader_epoch:
            return epoch, log.log_end_offset
        latest = log.leader_epochs.latest_epoch
        if latest < epoch < leader_epoch:
            # Nothing was appended in the current epoch yet, so it begins where the log ends.
            return (epoch if latest == NO_EPOCH else latest), log.log_end_offset
        return log.end_offset_for_epoch(epoch)


def begin_inside_batch(log: Log, records: memoryview) -> None:
    """Start an empty copy at the beginning of its first batch. A leader's log may start inside a batch, which
    is copied whole."""
    first = next(iter(iterate_whole_batches(records)), None)
    start_offset = log.log_start_offset
    if first is not None and first.base_offset < start_offset <= first.last_offset:
        truncate_fully_and_start_at(log, first.base_offset, log_start_offset=start_offset)
