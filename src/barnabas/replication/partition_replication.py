"""A partition with its followers: what they have, who is in sync, and what is therefore committed.

The high watermark is the smallest offset that every in-sync replica has made its own; what
lies below it is committed, and only that is shown to consumers. Invariants: it never goes
back within a leader epoch, and it never passes the end of the leader's own durable log.

A leader learns how far its followers are from their fetches (`update_follower`) and counts with
the *maximal* ISR: a follower about to join holds the high watermark back before the store has
heard of it, and one about to leave holds it back until the store has. So whoever is elected
from the ISR in the store has everything that was acknowledged. Who joins and leaves is decided
here; telling the store is `isr`'s part.

A member of the ISR has all that is committed. One that fetches from below the high watermark has lost it, as
a machine does that lost power: it leaves at once, even if the controller did not notice that it was gone, so
that it is not elected with what is left.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from barnabas.cluster.isr_store import Joining
from barnabas.core.errors import NotLeaderOrFollower
from barnabas.core.ids import BrokerId
from barnabas.replication.fetching import NO_OFFSET
from barnabas.replication.leader.remote_replica import NO_BROKER_EPOCH, RemoteReplica
from barnabas.replication.partition_leadership import LedPartition, PendingIsr


class ReplicatedPartition(LedPartition):
    __slots__ = ()

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
        has_led = self.leader_id == self.broker_id
        is_new_epoch = leader_epoch > self.leader_epoch or not has_led
        self._take_state(self.broker_id, leader_epoch, replicas, isr, partition_epoch, controller_epoch)
        if not has_led:
            self.led_since_epoch = leader_epoch
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

    # The high watermark

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
        maximal_isr = self.maximal_isr
        for broker_id, follower in self.followers.items():
            if follower.end_offset < end_offset and (
                broker_id in maximal_isr
                or (
                    follower.end_offset >= 0
                    and follower.is_caught_up(
                        self.log.log_end_offset,
                        host.clock.monotonic_ms(),
                        host.settings.replica_lag_time_max_ms,
                    )
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
        elif fetch_offset < log.high_watermark and broker_id in self.isr:
            host.lost_tail(self, follower)
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

    def propose_isr(self, isr: frozenset[BrokerId], joining: Joining | None = None) -> PendingIsr:
        """Count with the larger of both sets until the store has confirmed the change."""
        assert self.pending_isr is None, "one change at a time"
        self.pending_isr = PendingIsr(isr, self.leader_epoch, self.partition_epoch, joining)
        self.maximal_isr = self.isr | isr
        return self.pending_isr

    def withdraw_isr(self, *, may_be_written: bool) -> PendingIsr | None:
        """The follower that was to join must not. If the store may have taken it in nevertheless, it counts
        until the ISR as it was is written over that; returns what has to be written then."""
        assert self.pending_isr is not None
        self.pending_isr = None
        if may_be_written:
            self.pending_isr = PendingIsr(self.isr, self.leader_epoch, self.partition_epoch)
            return self.pending_isr
        self.maximal_isr = self.isr
        return None

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
    def low_watermark(self) -> int:
        """The lowest start among the logs of the live replicas: everything below is gone everywhere."""
        low = self.log.log_start_offset
        if self.leader_id == self.broker_id:
            for broker_id, follower in self.followers.items():
                if follower.start_offset < low and self.host.is_live(broker_id):
                    low = follower.start_offset
        return low
