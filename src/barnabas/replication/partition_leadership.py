"""Who leads a partition, who follows it, and under which epochs, as the controller has told us.

The lowest layer of a `Partition`: its fields, the change from leader to follower and back, and the
refusal of whoever believes in another epoch or another leader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from barnabas.cluster.isr_store import Joining
from barnabas.core.clock import Clock
from barnabas.core.errors import FencedLeaderEpoch, NotLeaderOrFollower, UnknownLeaderEpoch
from barnabas.core.ids import NO_LEADER, BrokerId, TopicPartition, Uuid
from barnabas.replication.fetching import NO_EPOCH, NO_OFFSET, FetchParams
from barnabas.replication.leader.lease import Lease
from barnabas.replication.leader.remote_replica import NO_BROKER_EPOCH, RemoteReplica
from barnabas.replication.settings import ReplicationSettings
from barnabas.replication.topic_metrics import TopicMetrics
from barnabas.storage.log.log import Log

if TYPE_CHECKING:
    from barnabas.replication.partition_replication import ReplicatedPartition


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
    advanced: Callable[[ReplicatedPartition], None] = _ignore
    """A follower's fetch moved a watermark: who waits for that may go on."""
    may_join_isr: Callable[[ReplicatedPartition, RemoteReplica], None] = _ignore
    """A follower that is not in the ISR has caught up."""
    lost_tail: Callable[[ReplicatedPartition, RemoteReplica], None] = _ignore
    """A member of the ISR has less than is committed."""


class PendingIsr(NamedTuple):
    """An ISR on its way to the store."""

    isr: frozenset[BrokerId]
    leader_epoch: int
    partition_epoch: int
    joining: Joining | None = None


class LedPartition:
    __slots__ = (
        "adding_replicas",
        "broker_id",
        "confirmed_epoch",
        "controller_epoch",
        "followers",
        "host",
        "isr",
        "leader_epoch",
        "leader_epoch_start_offset",
        "leader_id",
        "led_since_epoch",
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
        self.led_since_epoch = NO_EPOCH
        """Of a leader: the first of the epochs that it has led without a break. In none of them was its
        log cut, so records that wait in one of them may be acknowledged in a later one."""
        self.confirmed_epoch: int | None = None
        """Of a leader: the broker epoch under which the controller last said so (`lease`)."""
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

    @property
    def is_leader(self) -> bool:
        return self.leader_id == self.broker_id

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
        """Whether what this broker leads is certainly led by nobody else."""
        lease = self.host.lease
        return lease is None or lease.covers(self.confirmed_epoch)

    def confirm(self, broker_epoch: int) -> None:
        """The controller says to the broker of this epoch that it leads. One that knows no such epochs speaks
        to whoever listens."""
        lease = self.host.lease
        if lease is not None:
            self.confirmed_epoch = lease.epoch if broker_epoch == NO_BROKER_EPOCH else broker_epoch

    def check_current(self) -> None:
        """Refuse what only the present leader can tell, or promise."""
        if self.leader_id != self.broker_id:
            raise NotLeaderOrFollower(f"this broker does not lead {self.topic_partition}")
        lease = self.host.lease
        if lease is not None and not lease.covers(self.confirmed_epoch):
            raise NotLeaderOrFollower(f"this broker may have lost {self.topic_partition}")

    @property
    def has_enough_replicas(self) -> bool:
        return len(self.isr) >= min(self.log.config.min_insync_replicas, len(self.replicas))

    @property
    def effective_min_isr(self) -> int:
        """A topic with fewer replicas than `min.insync.replicas` needs all that it has."""
        return min(self.log.config.min_insync_replicas, len(self.replicas))

    @property
    def is_behind_its_epoch(self) -> bool:
        """A leader just elected does not know yet how much its predecessor had committed (KIP-207):
        what it would tell as the end could be less than a consumer has seen."""
        return self.leader_id == self.broker_id and self.log.high_watermark < self.leader_epoch_start_offset

    @property
    def is_under_replicated(self) -> bool:
        return self.leader_id == self.broker_id and len(self.isr) < len(self.replicas)
