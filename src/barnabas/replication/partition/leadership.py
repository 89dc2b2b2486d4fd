"""Leadership of a partition: leader, replicas, ISR and their epochs.

The controller sets it (`LeaderAndIsr`). A leader proposes ISR changes, which take effect once the store has
them. Until then both sets count together, as the *maximal* ISR. A joining follower holds the high watermark
back before the store has the change, and a leaving one until the store has it. So every replica elected from
the ISR in the store has all acknowledged records.

Nothing here knows a log or a clock. A request with another epoch, or for another leader, is refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from barnabas.cluster.stores.isr_store import Joining
from barnabas.core.errors import FencedLeaderEpoch, NotLeaderOrFollower, UnknownLeaderEpoch
from barnabas.core.ids import NO_EPOCH, NO_LEADER, BrokerId, TopicPartition
from barnabas.replication.partition.fetching import FetchParams
from barnabas.replication.partition.lease import LeadershipLease
from barnabas.replication.partition.remote_replica import NO_BROKER_EPOCH


class LeaderAndIsr(NamedTuple):
    """State of a partition in a LeaderAndIsr request."""

    leader: BrokerId
    leader_epoch: int
    replicas: tuple[BrokerId, ...]
    isr: Iterable[BrokerId] = ()
    partition_epoch: int = 0
    """Version of the state in the store."""
    controller_epoch: int = 0
    adding_replicas: Iterable[BrokerId] = ()
    removing_replicas: Iterable[BrokerId] = ()


class PendingIsr(NamedTuple):
    """ISR change on its way to the store."""

    isr: frozenset[BrokerId]
    leader_epoch: int
    partition_epoch: int
    joining: Joining | None = None
    withdrawn: frozenset[BrokerId] | None = None
    """ISR that this change takes back, and that the store may hold."""


class Leadership:
    __slots__ = (
        "adding_replicas",
        "broker_id",
        "confirmed_epoch",
        "controller_epoch",
        "is_leader",
        "isr",
        "leader_epoch",
        "leader_id",
        "lease",
        "led_since_epoch",
        "maximal_isr",
        "partition_epoch",
        "pending_isr",
        "removing_replicas",
        "replicas",
        "topic_partition",
    )

    def __init__(
        self, topic_partition: TopicPartition, broker_id: BrokerId, lease: LeadershipLease | None
    ) -> None:
        """Without a `lease`, on a single node, leadership cannot move without this broker's knowledge."""
        self.topic_partition = topic_partition
        self.broker_id = broker_id
        self.lease = lease
        self.leader_id: BrokerId = NO_LEADER
        self.is_leader = False
        self.leader_epoch = NO_EPOCH
        self.led_since_epoch = NO_EPOCH
        """Leader only: the first epoch of its unbroken leadership. Its log was not truncated since, so
        records that wait from an earlier epoch of it may be acknowledged in a later one."""
        self.confirmed_epoch: int | None = None
        """Leader only: the broker epoch under which the controller last confirmed it (`lease`)."""
        self.controller_epoch = 0
        self.partition_epoch = 0
        self.replicas: tuple[BrokerId, ...] = ()
        self.adding_replicas: frozenset[BrokerId] = frozenset()
        self.removing_replicas: frozenset[BrokerId] = frozenset()
        self.isr: frozenset[BrokerId] = frozenset()
        """ISR in the store."""
        self.maximal_isr: frozenset[BrokerId] = frozenset()
        """ISR together with the members of a change that the store has not confirmed."""
        self.pending_isr: PendingIsr | None = None

    def take(self, state: LeaderAndIsr) -> bool:
        """Take over the controller's state; True if the leader or its epoch is new. A lower epoch than the
        current one is stale and refused."""
        if state.leader_epoch < self.leader_epoch:
            raise FencedLeaderEpoch(f"{self.topic_partition} is at leader epoch {self.leader_epoch}")
        is_new = state.leader_epoch > self.leader_epoch or state.leader != self.leader_id
        has_led = self.is_leader
        self.leader_id = state.leader
        self.is_leader = state.leader == self.broker_id
        self.leader_epoch = state.leader_epoch
        self.partition_epoch = state.partition_epoch
        self.controller_epoch = state.controller_epoch
        self.replicas = tuple(state.replicas)
        self.adding_replicas = frozenset(state.adding_replicas)
        self.removing_replicas = frozenset(state.removing_replicas)
        self.isr = self.maximal_isr = frozenset(state.isr)
        self.pending_isr = None
        if self.is_leader and not has_led:
            self.led_since_epoch = state.leader_epoch
        return is_new

    def resign(self) -> None:
        """Stop leading or following; the epoch is kept to recognise stale requests."""
        self.leader_id = NO_LEADER
        self.is_leader = False
        self.pending_isr = None

    # --- checks ---

    def check_leader(self, current_leader_epoch: int) -> None:
        """Refuse a client that believes in another epoch, or in another leader."""
        self._check_epoch(current_leader_epoch)
        if not self.is_leader:
            raise NotLeaderOrFollower(f"this broker does not lead {self.topic_partition}")

    def check_readable(self, params: FetchParams, current_leader_epoch: int) -> None:
        """Refuse a reader that may not read here. Consumers may read from a follower (KIP-392), up to its
        high watermark."""
        self._check_epoch(current_leader_epoch)
        if not self.is_leader and not params.may_read_from_follower:
            raise NotLeaderOrFollower(f"this broker does not lead {self.topic_partition}")

    def _check_epoch(self, current_leader_epoch: int) -> None:
        """Refuse another leader epoch. Comes before the check for the leader: a client ahead of this broker
        must not look elsewhere."""
        if current_leader_epoch in (NO_EPOCH, self.leader_epoch):
            return
        if current_leader_epoch < self.leader_epoch:
            raise FencedLeaderEpoch(f"{self.topic_partition} is at leader epoch {self.leader_epoch}")
        raise UnknownLeaderEpoch(f"{self.topic_partition} is still at leader epoch {self.leader_epoch}")

    @property
    def has_lease(self) -> bool:
        """Whether certainly no other broker leads this partition."""
        return self.lease is None or self.lease.covers(self.confirmed_epoch)

    def confirm(self, broker_epoch: int) -> None:
        """Note that the controller confirms the leadership for this broker epoch. A controller without broker
        epochs addresses any of them."""
        if self.lease is not None:
            self.confirmed_epoch = self.lease.epoch if broker_epoch == NO_BROKER_EPOCH else broker_epoch

    def check_current(self) -> None:
        """Refuse requests that only the current leader may answer or acknowledge."""
        if not self.is_leader:
            raise NotLeaderOrFollower(f"this broker does not lead {self.topic_partition}")
        lease = self.lease
        if lease is not None and not lease.covers(self.confirmed_epoch):
            raise NotLeaderOrFollower(f"this broker may have lost the leadership of {self.topic_partition}")

    # --- ISR changes ---

    @property
    def may_change_isr(self) -> bool:
        """Whether a change may be proposed: one at a time, and none by a possibly replaced leader."""
        return self.is_leader and self.pending_isr is None and self.has_lease

    def propose_isr(self, isr: frozenset[BrokerId], joining: Joining | None = None) -> PendingIsr:
        """Count with both sets until the store has confirmed the change."""
        assert self.pending_isr is None, "one change at a time"
        self.pending_isr = PendingIsr(isr, self.leader_epoch, self.partition_epoch, joining)
        self.maximal_isr = self.isr | isr
        return self.pending_isr

    def withdraw_isr(self, *, may_be_written: bool) -> PendingIsr | None:
        """Withdraw the follower that was about to join. If the store may have it nevertheless, it counts
        until the previous ISR is written over it; returns the change to write."""
        pending, self.pending_isr = self.pending_isr, None
        assert pending is not None
        if may_be_written:
            self.pending_isr = PendingIsr(
                self.isr, self.leader_epoch, self.partition_epoch, withdrawn=pending.isr
            )
            return self.pending_isr
        self.maximal_isr = self.isr
        return None

    def isr_written(self, pending: PendingIsr, partition_epoch: int) -> bool:
        """Apply the ISR that the store has; False if a newer LeaderAndIsr arrived first."""
        if self.pending_isr is not pending:
            return False
        self.isr = self.maximal_isr = pending.isr
        self.pending_isr = None
        self.partition_epoch = partition_epoch
        return True
