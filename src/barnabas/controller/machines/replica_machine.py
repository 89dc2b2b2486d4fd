"""Replica state machine, and the requests that its changes send to brokers.

An illegal change is logged and left out; the others go on. A replica that goes offline leaves the ISR, so
that the partition can advance without it. The last replica in the ISR stays there, because only it has all
records.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence

from barnabas.cluster.znodes.layout import PartitionState
from barnabas.controller.machines import leader_selection
from barnabas.controller.machines.partition_machine import written_later
from barnabas.controller.machines.term_parts import TermParts
from barnabas.controller.state.assignments import without
from barnabas.controller.state.replica_states import PartitionReplica, ReplicaStatus
from barnabas.core.ids import TopicPartition
from barnabas.core.reporting import state_changes

logger = logging.getLogger(__name__)


class ReplicaMachine:
    def __init__(self, parts: TermParts) -> None:
        self._context = parts.context
        self._store = parts.store
        self._batch = parts.batch
        self._epoch = parts.epoch

    async def startup(self, *, notify: bool = True) -> None:
        """Take over the replicas as they are.

        With `notify` the online replicas receive their leaders. Otherwise an election follows at once and
        notifies them.
        """
        context = self._context
        online: list[PartitionReplica] = []
        offline: list[PartitionReplica] = []
        for replica in context.replicas_of_partitions(context.all_partitions()):
            is_online = context.is_replica_online(replica.broker_id, replica.topic_partition)
            (online if is_online else offline).append(replica)
            context.replica_states[replica] = ReplicaStatus.ONLINE if is_online else ReplicaStatus.OFFLINE
        if notify:
            await self.change(online, ReplicaStatus.ONLINE)
        await self.change(offline, ReplicaStatus.OFFLINE)

    async def change(self, replicas: Iterable[PartitionReplica], target: ReplicaStatus) -> None:
        legal = self._legal(replicas, target)
        if not legal:
            return
        self._log_changes(legal, target)
        match target:
            case ReplicaStatus.NEW:
                self._start(legal)
            case ReplicaStatus.ONLINE:
                self._bring_online(legal)
            case ReplicaStatus.OFFLINE:
                await self._take_offline(legal)
            case ReplicaStatus.DELETION_STARTED:
                self._delete(legal)
            case ReplicaStatus.DELETION_SUCCESSFUL | ReplicaStatus.DELETION_INELIGIBLE:
                self._context.replica_states.update(dict.fromkeys(legal, target))
            case ReplicaStatus.NON_EXISTENT:
                self._remove(legal)

    def _log_changes(self, replicas: Sequence[PartitionReplica], target: ReplicaStatus) -> None:
        if not state_changes.logger.isEnabledFor(logging.INFO):
            return
        for replica in replicas:
            current = self._context.replica_states.get(replica, ReplicaStatus.NON_EXISTENT)
            if current is not target:
                state_changes.logger.info(
                    "controller epoch %d: partition %s: replica %d changes from %s to %s",
                    self._epoch,
                    replica.topic_partition,
                    replica.broker_id,
                    current.value,
                    target.value,
                )

    def _legal(self, replicas: Iterable[PartitionReplica], target: ReplicaStatus) -> list[PartitionReplica]:
        legal = []
        for replica in replicas:
            if self._context.replica_may_become(replica, target):
                legal.append(replica)
            else:
                current = self._context.replica_states.get(replica, ReplicaStatus.NON_EXISTENT)
                logger.error("%s cannot change from %s to %s", replica, current.value, target.value)
        return legal

    def _put(self, replica: PartitionReplica, status: ReplicaStatus) -> None:
        self._context.replica_states[replica] = status

    def _start(self, replicas: Sequence[PartitionReplica]) -> None:
        for replica in replicas:
            partition = replica.topic_partition
            state = self._context.leadership.get(partition)
            if state is not None:
                if state.leader == replica.broker_id:
                    logger.error("%s cannot become NewReplica, because it is the leader", replica)
                    continue
                self._batch.add_leader_and_isr((replica.broker_id,), partition, state, is_new=True)
            self._put(replica, ReplicaStatus.NEW)

    def repeat(self, replicas: Iterable[PartitionReplica]) -> None:
        """Send the brokers of these replicas their leaders again, without an UpdateMetadata to the others."""
        self._bring_online(self._legal(replicas, ReplicaStatus.ONLINE), is_known=True)

    def _bring_online(self, replicas: Sequence[PartitionReplica], *, is_known: bool = False) -> None:
        for replica in replicas:
            was_new = self._context.replica_states.get(replica) is ReplicaStatus.NEW
            state = self._context.leadership.get(replica.topic_partition)
            # A new replica received its state when it, or its partition, was created.
            if state is not None and not was_new:
                self._batch.add_leader_and_isr(
                    (replica.broker_id,), replica.topic_partition, state, is_known=is_known
                )
            self._put(replica, ReplicaStatus.ONLINE)

    async def _take_offline(self, replicas: Sequence[PartitionReplica]) -> None:
        context = self._context
        by_broker: dict[int, list[TopicPartition]] = defaultdict(list)
        for replica in replicas:
            partition = replica.topic_partition
            self._batch.add_stop_replica((replica.broker_id,), partition, delete=False)
            if partition in context.leadership:
                by_broker[replica.broker_id].append(partition)
            else:
                self._put(replica, ReplicaStatus.OFFLINE)
        for broker_id, partitions in by_broker.items():
            changed = await self._remove_from_isr(broker_id, partitions)
            for partition, state in changed.items():
                if not context.is_queued_for_deletion(partition.topic):
                    others = [replica for replica in context.replicas(partition) if replica != broker_id]
                    self._batch.add_leader_and_isr(others, partition, state)
                self._put(PartitionReplica(partition, broker_id), ReplicaStatus.OFFLINE)

    async def _remove_from_isr(
        self, broker_id: int, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, PartitionState]:
        """States of the partitions after the replica has left the ISR.

        Known states that have the replica in the ISR are not read again, because the write is conditional.
        """
        states: dict[TopicPartition, PartitionState] = {}
        remaining = list(partitions)
        known = self._context.leadership
        found = {partition: known[partition] for partition in partitions if broker_id in known[partition].isr}
        while remaining:
            found.update(await self._store.read_states([each for each in remaining if each not in found]))
            changed = {}
            for partition in remaining:
                state = found.get(partition)
                if state is None:
                    # Another program is deleting the topic's znodes: the known state is used.
                    states[partition] = self._context.leadership[partition]
                elif state.controller_epoch > self._epoch:
                    logger.error("%s", written_later(partition, state).message)
                    states[partition] = state
                elif broker_id in state.isr:
                    narrowed = leader_selection.without_replica(state, broker_id)
                    changed[partition] = narrowed._replace(controller_epoch=self._epoch)
                else:
                    states[partition] = state
            written = await self._store.update_states(changed)
            states.update(written.done)
            remaining, found = written.stale, {}
        self._context.leadership.update(states)
        return states

    def _delete(self, replicas: Sequence[PartitionReplica]) -> None:
        for replica in replicas:
            self._put(replica, ReplicaStatus.DELETION_STARTED)
            self._batch.add_stop_replica((replica.broker_id,), replica.topic_partition, delete=True)

    def _remove(self, replicas: Sequence[PartitionReplica]) -> None:
        context = self._context
        for replica in replicas:
            partition = replica.topic_partition
            context.put_assignment(partition, without(context.assignment(partition), replica.broker_id))
            context.replica_states.pop(replica, None)
