"""Right of a broker to acknowledge, judged by the store, which alone knows leaders and ISRs.

- A committed record is on every replica that the store has in the ISR, because one of them leads next. The
  leader's own view does not count.
- Of two brokers that lead a partition at the same moment, at most one has a lease. The other acknowledges
  nothing. An exception is a leader whose session has lasted since its election. Another broker was elected
  while it was alive (the preferred leader, say), and its own LeaderAndIsr may still be on the way. As in
  Apache Kafka it continues until then. Its followers have left it, so it commits nothing.
- Nothing is committed while fewer than `min.insync.replicas` are in sync.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

from barnabas.cluster.znodes.brokers import BrokerIdZnode
from barnabas.cluster.znodes.layout import PartitionState, PartitionStateZnode
from barnabas.core.ids import TopicPartition, Uuid
from barnabas.replication.partition.partition import Partition
from tests.simulation.embedded import EmbeddedView
from tests.simulation.machine import Machine
from tests.simulation.shared import SharedView
from tests.simulation.store import Store

LEASE_S_MAX = 10.0
"""No lease is longer; one whose session is ended by force says nothing while it lasts."""
Everything = Mapping[Machine, Mapping[TopicPartition, Partition]]


class Few(NamedTuple):
    """A leader with too few in sync, and what was committed when it was seen."""

    partition_epoch: int
    leader_epoch: int
    life: int
    high_watermark: int


class Began(NamedTuple):
    """A leader when it was first seen as one in its epoch."""

    topic_id: Uuid
    leader_epoch: int
    broker_epoch: int


def _may_answer(machine: Machine, partition: Partition) -> bool:
    """Neither stopped where it stands, nor on its way out, nor without a disk."""
    is_running = machine.process is not None and machine.process.is_running
    return is_running and machine.is_serving and partition.log.log_directory.failure is None


@lru_cache(maxsize=4096)
def _decoded(data: bytes) -> PartitionState:
    """A look sees the same states again and again."""
    return PartitionStateZnode.decode(data, 0)


class Authority:
    def __init__(self, store: Store | EmbeddedView | SharedView) -> None:
        self._store = store
        self._few: dict[tuple[int, TopicPartition], Few] = {}
        self._both: dict[TopicPartition, int] = {}
        self._began: dict[tuple[int, TopicPartition], Began] = {}

    def look(self, every: Everything, now_s: float) -> Iterator[str]:
        leaders: dict[TopicPartition, list[Machine]] = {}
        for machine, partitions in every.items():
            for place, partition in partitions.items():
                if partition.leadership.is_leader:
                    yield from self._of_committed(machine, place, partition, every)
                    yield from self._of_few(machine, place, partition)
                    self._note_beginning(machine, place, partition)
                    if partition.leadership.has_lease and _may_answer(machine, partition):
                        leaders.setdefault(place, []).append(machine)
        if now_s - self._store.forced_s > LEASE_S_MAX:
            yield from self._of_two(leaders, every)

    def _of_two(self, leaders: dict[TopicPartition, list[Machine]], every: Everything) -> Iterator[str]:
        """Seen twice: a lease may end a moment late by a clock that drifts."""
        both = {place: found for place, found in leaders.items() if len(found) > 1}
        for place, found in both.items():
            first, second, *_ = sorted(found, key=lambda each: self._began[each.number, place].leader_epoch)
            began = self._began[first.number, place]
            if (
                self._both.get(place)
                and began.topic_id == every[second][place].topic_id
                and began.broker_epoch != self._broker_epoch(first)
            ):
                yield f"two leaders at once: {first} and {second} both hold {place}, and may acknowledge"
        self._both = {place: self._both.get(place, 0) + 1 for place in both}

    def _note_beginning(self, machine: Machine, place: TopicPartition, partition: Partition) -> None:
        now = Began(partition.topic_id, partition.leadership.leader_epoch, self._broker_epoch(machine))
        known = self._began.get((machine.number, place))
        if known is None or known[:2] != now[:2]:
            self._began[machine.number, place] = now

    def _broker_epoch(self, machine: Machine) -> int:
        node = self._store.tree.nodes.get(BrokerIdZnode.path(machine.number))
        return -1 if node is None else node.czxid

    def _state(self, place: TopicPartition) -> PartitionState | None:
        node = self._store.tree.nodes.get(PartitionStateZnode.path(*place))
        return None if node is None else _decoded(node.data)

    def _of_committed(
        self, machine: Machine, place: TopicPartition, partition: Partition, every: Everything
    ) -> Iterator[str]:
        """A replica that lost what it had is no witness; the watch looks after those."""
        leadership, high_watermark = partition.leadership, partition.log.high_watermark
        state = self._state(place)
        if state is None or state.leader_epoch != leadership.leader_epoch:
            return
        for other, theirs in every.items():
            replica = theirs.get(place)
            if (
                replica is not None
                and replica.topic_id == partition.topic_id
                and other.number in state.isr
                and other.number not in leadership.isr
                and replica.leadership.leader_epoch == leadership.leader_epoch
                and replica.log.log_end_offset < high_watermark
            ):
                yield (
                    f"not committed: {place} ends at {replica.log.log_end_offset} on {other}, which is in"
                    f" sync in the store, and {machine} has the high watermark {high_watermark}"
                )

    def _of_few(self, machine: Machine, place: TopicPartition, partition: Partition) -> Iterator[str]:
        leadership, key = partition.leadership, (machine.number, place)
        if len(leadership.isr) >= partition.effective_min_isr:
            self._few.pop(key, None)
            return
        now = Few(
            leadership.partition_epoch,
            leadership.leader_epoch,
            machine.lives,
            partition.log.high_watermark,
        )
        before = self._few.get(key)
        if before is not None and before[:3] == now[:3] and before.high_watermark < now.high_watermark:
            yield (
                f"committed by too few: {machine} has moved the high watermark of {place} from"
                f" {before.high_watermark} to {now.high_watermark} with {len(leadership.isr)} in sync"
            )
        self._few[key] = now
