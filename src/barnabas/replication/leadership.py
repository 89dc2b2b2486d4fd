"""Who leads a partition, who follows it, who is in sync, and under which epochs.

The controller says it (`LeaderAndIsr`); a leader proposes changes of the ISR, which count once the
store has them. Until then both sets count together, as the *maximal* ISR: a follower about to join holds
the high watermark back before the store has heard of it, and one about to leave holds it back until the
store has. So whoever is elected from the ISR in the store has everything that was acknowledged.

Nothing here knows a log or a clock. Whoever believes in another epoch, or in another leader, is refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from barnabas.cluster.isr_store import Joining
from barnabas.core.errors import FencedLeaderEpoch, NotLeaderOrFollower, UnknownLeaderEpoch
from barnabas.core.ids import NO_EPOCH, NO_LEADER, BrokerId, TopicPartition
from barnabas.replication.fetching import FetchParams
from barnabas.replication.leader.lease import LeadershipLease
from barnabas.replication.leader.remote_replica import NO_BROKER_EPOCH


class LeaderAndIsr(NamedTuple):
    """The state of a partition as the controller tells it."""

    leader: BrokerId
    leader_epoch: int
    replicas: tuple[BrokerId, ...]
    isr: Iterable[BrokerId] = ()
    partition_epoch: int = 0
    """The version of the state in the store."""
    controller_epoch: int = 0
    adding_replicas: Iterable[BrokerId] = ()
    removing_replicas: Iterable[BrokerId] = ()


class PendingIsr(NamedTuple):
    """An ISR on its way to the store."""

    isr: frozenset[BrokerId]
    leader_epoch: int
    partition_epoch: int
    joining: Joining | None = None


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
        """Without a `lease` leadership cannot be taken away behind the broker's back: on a single node."""
        self.topic_partition = topic_partition
        self.broker_id = broker_id
        self.lease = lease
        self.leader_id: BrokerId = NO_LEADER
        self.is_leader = False
        self.leader_epoch = NO_EPOCH
        self.led_since_epoch = NO_EPOCH
        """Of a leader: the first of the epochs that it has led without a break. In none of them was its
        log cut, so records that wait in one of them may be acknowledged in a later one."""
        self.confirmed_epoch: int | None = None
        """Of a leader: the broker epoch under which the controller last said so (`lease`)."""
        self.controller_epoch = 0
        self.partition_epoch = 0
        self.replicas: tuple[BrokerId, ...] = ()
        self.adding_replicas: frozenset[BrokerId] = frozenset()
        self.removing_replicas: frozenset[BrokerId] = frozenset()
        self.isr: frozenset[BrokerId] = frozenset()
        """As the store has it."""
        self.maximal_isr: frozenset[BrokerId] = frozenset()
        """With the members of a change that the store has not confirmed."""
        self.pending_isr: PendingIsr | None = None

    def take(self, state: LeaderAndIsr) -> bool:
        """Lead or follow as the controller says; True if the leader or its epoch is new. A lower epoch
        than the present one is a message from the past."""
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
        """Neither lead nor follow; the epoch is remembered, to recognise old orders."""
        self.leader_id = NO_LEADER
        self.is_leader = False
        self.pending_isr = None

    # Who is refused

    def check_leader(self, current_leader_epoch: int) -> None:
        """Refuse a client that believes in another epoch, or in another leader than us."""
        self._check_epoch(current_leader_epoch)
        if not self.is_leader:
            raise NotLeaderOrFollower(f"this broker does not lead {self.topic_partition}")

    def check_readable(self, params: FetchParams, current_leader_epoch: int) -> None:
        """Consumers may read from a follower (KIP-392), up to the high watermark that it knows."""
        self._check_epoch(current_leader_epoch)
        if not self.is_leader and not params.may_read_from_follower:
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
        """Whether what this broker leads is certainly led by nobody else."""
        return self.lease is None or self.lease.covers(self.confirmed_epoch)

    def confirm(self, broker_epoch: int) -> None:
        """The controller says to the broker of this epoch that it leads. One that knows no such epochs speaks
        to whoever listens."""
        if self.lease is not None:
            self.confirmed_epoch = self.lease.epoch if broker_epoch == NO_BROKER_EPOCH else broker_epoch

    def check_current(self) -> None:
        """Refuse what only the present leader can tell, or promise."""
        if not self.is_leader:
            raise NotLeaderOrFollower(f"this broker does not lead {self.topic_partition}")
        lease = self.lease
        if lease is not None and not lease.covers(self.confirmed_epoch):
            raise NotLeaderOrFollower(f"this broker may have lost {self.topic_partition}")

    # Changes of the ISR

    @property
    def may_change_isr(self) -> bool:
        """One change at a time, and none by a leader that may have been replaced."""
        return self.is_leader and self.pending_isr is None and self.has_lease

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
        return True
