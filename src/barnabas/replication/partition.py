"""A topic-partition as this broker sees it: its log, its leadership, its followers.

Who leads and who is in sync is its `leadership`; what its `followers` have, and what is therefore
committed, is computed in `leader.followers`; here the two meet the log. Invariants: the high watermark
never goes back within a leader epoch, and it never passes the end of the leader's own durable log.

A member of the ISR has all that is committed. One that fetches from below the high watermark has lost it, as
a machine does that lost power: it leaves at once, even if the controller did not notice that it was gone, so
that it is not elected with what is left. Who joins and leaves is decided here; telling the store is
`leader.isr`'s part.

A follower copies batches as they are. Its high watermark is the leader's, as far as its own log
goes; where to cut its log is decided by leader epochs alone (`follower.truncation`).

What survives a crash: a process that dies loses nothing, its writes are with the kernel. A
machine that loses power may lose what was not flushed. The controller takes a broker that comes
back with a new registration out of the ISR, so it rejoins only after catching up; the exception
is the last member of an ISR, which leads again with what its disk kept. Topics that must survive
the loss of power of all in-sync replicas at once set `flush.messages`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from barnabas.cluster.isr_store import Joining
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
from barnabas.replication.leader.followers import (
    Followers,
    followers_of,
    lagging_members,
    low_watermark,
    replicated_end_offset,
)
from barnabas.replication.leader.lease import LeadershipLease
from barnabas.replication.leader.remote_replica import NO_BROKER_EPOCH, RemoteReplica
from barnabas.replication.leadership import LeaderAndIsr, Leadership, PendingIsr
from barnabas.replication.topic_metrics import TopicMetrics
from barnabas.storage.log.append import AppendInfo
from barnabas.storage.log.append_elsewhere import append_elsewhere
from barnabas.storage.log.log import Log
from barnabas.storage.log.truncation import truncate_fully_and_start_at
from barnabas.storage.log.write_elsewhere import Outcome
from barnabas.storage.producers.append_checks import AppendOrigin

logger = logging.getLogger(__name__)

DELETE_TO_HIGH_WATERMARK = -1
"""DeleteRecords with this offset means "everything that is committed"."""


@dataclass(slots=True, frozen=True)
class PartitionHost:
    """What all partitions of a broker share."""

    broker_id: BrokerId
    clock: Clock
    settings: BrokerConfig
    lease: LeadershipLease | None
    is_live: Callable[[int], bool]
    keeps_isr: bool
    """Whether there is a store that changes of the ISR can be written to."""


class FollowerUpdate(NamedTuple):
    """What a follower's fetch changed, for those who have to act on it."""

    has_advanced: bool
    """A watermark moved: who waits for that may go on."""
    proposed_isr: PendingIsr | None = None
    """To be written to the store."""


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
        """The topic has got an id since the log was made."""
        self.log.assign_topic_id(topic_id)
        self.topic_id = topic_id

    def replace_log(self, log: Log) -> None:
        """The same log, in another directory."""
        self.log = log

    # Who leads

    def become_leader(self, state: LeaderAndIsr) -> bool:
        """Lead from here on; True if that is new."""
        self.log.settle()  # what was appended under the former epoch belongs to it
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
        # The log notes the epoch with its first append: an idle partition writes nothing at a start.
        self.maybe_advance_high_watermark()
        return is_new_epoch

    def become_follower(self, state: LeaderAndIsr) -> bool:
        """Follow another broker, or nobody while there is no leader; True if the leader or its
        epoch is new."""
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
        """A topic with fewer replicas than `min.insync.replicas` needs all that it has."""
        return min(self.log.config.min_insync_replicas, len(self.leadership.replicas))

    @property
    def has_enough_replicas(self) -> bool:
        leadership = self.leadership
        return len(leadership.isr) >= min(self.log.config.min_insync_replicas, len(leadership.replicas))

    @property
    def is_behind_its_epoch(self) -> bool:
        """A leader just elected does not know yet how much its predecessor had committed (KIP-207):
        what it would tell as the end could be less than a consumer has seen."""
        return self.leadership.is_leader and self.log.high_watermark < self.leader_epoch_start_offset

    # What is committed

    def maybe_advance_high_watermark(self) -> bool:
        """Move the high watermark as far as the in-sync replicas allow; says whether it moved. Below
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
                host.settings.replica_lag_time_max_ms,
                host.is_live,
            )
            if committed <= log.high_watermark:
                return False
        log.advance_high_watermark(committed)
        return True

    @property
    def has_new_high_watermark(self) -> bool:
        """Whether it has moved since producers were last looked at: below it none of them waits."""
        return self._checked_high_watermark != self.log.high_watermark

    def high_watermark_checked(self) -> None:
        self._checked_high_watermark = self.log.high_watermark

    @property
    def low_watermark(self) -> int:
        return low_watermark(self.followers, self.log.log_start_offset, self.host.is_live)

    # Followers

    def update_follower(
        self, broker_id: BrokerId, fetch_offset: int, start_offset: int, broker_epoch: int = NO_BROKER_EPOCH
    ) -> FollowerUpdate:
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
        # Before the high watermark is computed: who is about to join counts in it.
        proposed = self._isr_after_fetch(follower) if host.keeps_isr else None
        has_advanced = self.maybe_advance_high_watermark() or not is_same_start
        if proposed is not None:
            return FollowerUpdate(has_advanced, proposed)
        return ADVANCED if has_advanced else NO_CHANGE

    def _isr_after_fetch(self, follower: RemoteReplica) -> PendingIsr | None:
        """The change of the ISR that the position of a follower calls for."""
        leadership, log = self.leadership, self.log
        broker_id = follower.broker_id
        if broker_id not in leadership.maximal_isr:
            if not self._can_join_isr(follower) or not leadership.may_change_isr:
                return None
            logger.debug("%s: broker %d joins the ISR", self.topic_partition, broker_id)
            epoch = follower.broker_epoch
            joining = None if epoch == NO_BROKER_EPOCH else Joining(broker_id, epoch)
            return leadership.propose_isr(leadership.isr | {broker_id}, joining)
        if follower.end_offset < log.high_watermark and broker_id in leadership.isr:
            if not leadership.may_change_isr:
                return None
            logger.warning(
                "%s: broker %d ends at %d, below the high watermark %d, and leaves the ISR",
                self.topic_partition,
                broker_id,
                follower.end_offset,
                log.high_watermark,
            )
            return leadership.propose_isr(leadership.isr - {broker_id})
        return None

    def _can_join_isr(self, follower: RemoteReplica) -> bool:
        """It has all that is committed, and all that this leader found when it was elected: below
        that a former leader may have committed more than we know of yet."""
        host = self.host
        return (
            self.leadership.pending_isr is None
            and follower.end_offset >= self.log.high_watermark
            and follower.end_offset >= self.leader_epoch_start_offset
            and host.is_live(follower.broker_id)
            and host.clock.monotonic_ms() >= follower.refused_until_ms
        )

    def refuse_until(self, broker_id: BrokerId, time_ms: float) -> None:
        """Do not propose the follower for the ISR before: the store did not know it as what it says it is."""
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
            host.settings.replica_lag_time_max_ms,
        )

    def maybe_shrink_isr(self) -> PendingIsr | None:
        """Put out the members that lag; the change has to be written to the store."""
        leadership = self.leadership
        if not leadership.may_change_isr or len(leadership.isr) <= 1:
            return None
        lagging = self.lagging_members()
        if not lagging:
            return None
        logger.warning(
            "%s: brokers %s lag behind %d and leave the ISR",
            self.topic_partition,
            sorted(lagging),
            self.log.log_end_offset,
        )
        return leadership.propose_isr(leadership.isr - lagging)

    # Writing

    def append(
        self, records: memoryview, required_acks: int, origin: AppendOrigin = AppendOrigin.CLIENT
    ) -> AppendInfo:
        self._check_may_append(required_acks)
        leader_epoch = self.leadership.leader_epoch
        info = self.log.append_as_leader(records, leader_epoch=leader_epoch, origin=origin)
        self._appended(info)
        return info

    def append_elsewhere(
        self, records: memoryview, required_acks: int, report: Callable[[Outcome], None]
    ) -> None:
        """The same with the write in a thread: `report` hears when it is over."""
        self._check_may_append(required_acks)

        def written(outcome: Outcome) -> None:
            try:
                if isinstance(outcome, AppendInfo):
                    self._appended(outcome)
            finally:
                report(outcome)

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

    def append_as_follower(self, records: memoryview, leader_epoch: int) -> AppendInfo:
        """Copy what the leader has written, unless its time has passed."""
        leadership = self.leadership
        if leadership.leader_epoch != leader_epoch or leadership.is_leader:
            raise FencedLeaderEpoch(f"{self.topic_partition} is at leader epoch {leadership.leader_epoch}")
        log = self.log
        if log.log_end_offset == log.log_start_offset:
            begin_inside_batch(log, records)
        return log.append_as_follower(records)

    def is_acknowledged(self, end_offset: int, required_acks: int) -> bool:
        """Whether everything below `end_offset` is as safe as the producer asked for."""
        log = self.log
        if required_acks == ACKS_ALL:
            return log.high_watermark >= end_offset
        return log.durable_end_offset >= end_offset

    def delete_records_before(self, offset: int) -> int:
        """Forget what lies below `offset`; returns the new start of the log."""
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

    # Epochs of the log

    def epoch_for_offset(self, offset: int) -> int:
        """The leader epoch in which the record at `offset` was, or will be, appended; -1 if unknown."""
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
            # Nothing was appended in our own epoch yet, so it begins where the log ends.
            return (epoch if latest == NO_EPOCH else latest), log.log_end_offset
        return log.end_offset_for_epoch(epoch)


def begin_inside_batch(log: Log, records: memoryview) -> None:
    """A leader's log may start in the middle of a batch, of which the whole is copied: then an empty
    copy has to begin where the batch does."""
    first = next(iter(iterate_whole_batches(records)), None)
    start_offset = log.log_start_offset
    if first is not None and first.base_offset < start_offset <= first.last_offset:
        truncate_fully_and_start_at(log, first.base_offset, log_start_offset=start_offset)
