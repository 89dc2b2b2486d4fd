"""Partition reassignment: moving the replicas of a partition to other brokers.

The new replicas are added first, so the partition has old and new ones. When all target replicas are in sync,
the leadership moves if it must. Then the replicas that are not in the target are stopped and deleted. The
topic's znode records the adding and removing replicas, so a reassignment survives the controller.

Cancelling moves the partition back to its origin. A new target during a reassignment also starts from the
origin, never from the half-moved set. The replicas that such a change drops may be the only ones in sync, if
those of the origin fell behind. Then no remaining replica may lead, and the change is refused.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from barnabas.cluster.coordination.contract import BadVersion, Delete, NoNode, SetData
from barnabas.cluster.znodes.json_codec import MalformedZnode
from barnabas.cluster.znodes.layout import PartitionState, PartitionStateZnode, ReplicaAssignment
from barnabas.cluster.znodes.notifications import ReassignPartitionsZnode
from barnabas.controller.changes.topic_deletion import TopicDeletion
from barnabas.controller.machines import leader_selection
from barnabas.controller.machines.partition_machine import Election, PartitionMachine, written_later
from barnabas.controller.machines.replica_machine import ReplicaMachine
from barnabas.controller.machines.term_parts import TermParts
from barnabas.controller.state.assignments import origin_replicas, reassigned_to, target_replicas
from barnabas.controller.state.replica_states import PartitionReplica, ReplicaStatus
from barnabas.core.errors import (
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    KafkaError,
    NoReassignmentInProgress,
    StaleControllerEpoch,
    UnknownTopicOrPartition,
)
from barnabas.core.ids import TopicPartition

logger = logging.getLogger(__name__)

Targets = Mapping[TopicPartition, Sequence[int] | None]
"""Target replicas of partitions; None cancels a reassignment."""


class Reassignment:
    def __init__(
        self,
        parts: TermParts,
        partitions: PartitionMachine,
        replicas: ReplicaMachine,
        deletion: TopicDeletion,
        isr_changed: Callable[[TopicPartition], None],
    ) -> None:
        self._context = parts.context
        self._store = parts.store
        self._batch = parts.batch
        self._partitions = partitions
        self._replicas = replicas
        self._deletion = deletion
        self._watching = parts.watching
        self._epoch = parts.epoch
        self._isr_changed = isr_changed

    # --- requests ---

    async def alter(
        self, targets: Targets, *, allow_replication_factor_change: bool = True
    ) -> dict[TopicPartition, KafkaError | None]:
        """Start, change or cancel reassignments; per partition None or the error."""
        outcomes: dict[TopicPartition, KafkaError | None] = {}
        moves: dict[TopicPartition, ReplicaAssignment] = {}
        for partition, target in targets.items():
            try:
                move = self._plan(
                    partition, target, allow_replication_factor_change=allow_replication_factor_change
                )
            except KafkaError as error:
                outcomes[partition] = error
                continue
            if move == self._context.assignment(partition) and not move.is_being_reassigned:
                outcomes[partition] = None  # already there: no step, and no new leader epoch
            else:
                moves[partition] = move
        await self._remove_request(lambda partition, _: partition in moves)
        outcomes.update(await self._start(moves))
        return {partition: outcomes[partition] for partition in targets}

    async def process_request(self) -> set[TopicPartition]:
        """Start the reassignments in `/admin/reassign_partitions`, and remove the invalid ones from it."""
        asked = await self._store.read_notifications(
            (ReassignPartitionsZnode.PATH,), ReassignPartitionsZnode.decode
        )
        if not asked:
            return set()
        outcomes: dict[TopicPartition, KafkaError | None] = {}
        moves: dict[TopicPartition, ReplicaAssignment] = {}
        for partition, target in asked[0].items():
            try:
                moves[partition] = self._plan(partition, target)
            except KafkaError as error:
                outcomes[partition] = error
        outcomes.update(await self._start(moves))
        failed = {partition for partition, error in outcomes.items() if error is not None}
        if failed:
            logger.warning(
                "reassignment of partitions %s failed and is removed", ", ".join(map(str, sorted(failed)))
            )
            await self._remove_request(lambda partition, _: partition in failed)
        return outcomes.keys() - failed

    async def resume(self, concerned: Callable[[TopicPartition, ReplicaAssignment], bool]) -> None:
        """Take the next step of the ongoing reassignments that `concerned` selects."""
        for partition in sorted(self._context.partitions_being_reassigned):
            assignment = self._context.assignment(partition)
            if concerned(partition, assignment):
                await self._start({partition: assignment})

    async def complete_if_caught_up(self, partition: TopicPartition) -> None:
        """Take the next step after an ISR change if the new replicas are in sync."""
        if partition not in self._context.partitions_being_reassigned:
            return
        await self._watch_isr(partition)
        assignment = self._context.assignment(partition)
        if await self._is_complete(partition, assignment):
            await self._start({partition: assignment})

    def ongoing(self, wanted: Iterable[TopicPartition] | None) -> dict[TopicPartition, ReplicaAssignment]:
        """Ongoing reassignments of these partitions, or of all."""
        partitions = self._context.partitions_being_reassigned if wanted is None else wanted
        assignment = self._context.assignment
        return {
            each: assignment(each)
            for each in sorted(each for each in partitions if assignment(each).is_being_reassigned)
        }

    def _plan(
        self,
        partition: TopicPartition,
        target: Sequence[int] | None,
        *,
        allow_replication_factor_change: bool = True,
    ) -> ReplicaAssignment:
        """Intermediate assignment on the way to `target`; raises if the target is invalid."""
        context = self._context
        assignment = context.assignment(partition)
        is_deleted = context.is_queued_for_deletion(partition.topic)
        # A topic deletion waits for reassignments, so one that cannot end may still be cancelled.
        if not assignment.replicas or (
            is_deleted and not (target is None and assignment.is_being_reassigned)
        ):
            raise UnknownTopicOrPartition(f"there is no partition {partition}")
        if target is None:
            if not assignment.is_being_reassigned:
                raise NoReassignmentInProgress(f"{partition} is not being reassigned")
            return reassigned_to(assignment, origin_replicas(assignment))
        if not target:
            raise InvalidReplicaAssignment("the replica list is empty")
        if len(set(target)) != len(target):
            raise InvalidReplicaAssignment(f"the replica list {list(target)} contains a broker twice")
        if any(broker_id < 0 for broker_id in target):
            raise InvalidReplicaAssignment(f"the replica list {list(target)} contains an invalid broker id")
        move = reassigned_to(assignment, target)
        dead = sorted(set(move.adding_replicas) - context.live_broker_ids)
        if dead:
            raise InvalidReplicaAssignment(f"the replica list contains brokers that are not live: {dead}")
        if not allow_replication_factor_change and len(target) != len(origin_replicas(assignment)):
            raise InvalidReplicationFactor(
                f"the replication factor of {partition} would change from "
                f"{len(origin_replicas(assignment))} to {len(target)}"
            )
        return move

    async def _start(
        self, moves: Mapping[TopicPartition, ReplicaAssignment]
    ) -> dict[TopicPartition, KafkaError | None]:
        """Take the next step of each reassignment; an error in one does not stop the others."""
        outcomes: dict[TopicPartition, KafkaError | None] = {}
        for partition, move in moves.items():
            try:
                await self._advance(partition, move)
                outcomes[partition] = None
            except StaleControllerEpoch:
                raise
            except KafkaError as error:
                logger.warning("partition %s: reassignment failed: %s", partition, error.message)
                outcomes[partition] = error
        return outcomes

    # --- steps of a reassignment ---

    async def _advance(self, partition: TopicPartition, move: ReplicaAssignment) -> None:
        self._deletion.mark_ineligible({partition.topic}, "a reassignment is in progress")
        await self._record(partition, move)
        if await self._is_complete(partition, move):
            await self._complete(partition, move)
        else:
            await self._raise_epoch(partition, move)
            await self._start_replicas(partition, move)

    async def _record(self, partition: TopicPartition, move: ReplicaAssignment) -> None:
        """Write the intermediate assignment, and drop the replicas that an earlier reassignment added."""
        context = self._context
        current = context.assignment(partition)
        if current != move:
            unneeded = [replica for replica in current.replicas if replica not in move.replicas]
            if unneeded:
                await self._find_heir(partition, move, unneeded)
            await self._write_assignment(partition, move)
            context.put_assignment(partition, move)
            await self._stop_replicas(partition, unneeded)
        context.partitions_being_reassigned.add(partition)
        await self._watch_isr(partition)

    async def _find_heir(
        self, partition: TopicPartition, move: ReplicaAssignment, unneeded: Collection[int]
    ) -> None:
        """Elect a remaining replica if the leader is dropped.

        INVALID_REPLICA_ASSIGNMENT if all in-sync replicas would be dropped. The leadership moves before the
        assignment is written, so a new controller in between finds a leader among the replicas.
        """
        context = self._context
        state = (await self._store.read_states((partition,))).get(partition)
        if state is None:
            return
        context.leadership[partition] = state
        staying = [replica for replica in move.replicas if replica in state.isr]
        online = [replica for replica in staying if context.is_replica_online(replica, partition)]
        if not (online if state.leader in unneeded else staying):
            raise InvalidReplicaAssignment(
                f"the reassignment of {partition} would drop its only in-sync replicas"
                f" {[each for each in state.isr if each in unneeded]}"
            )
        if state.leader in unneeded:
            previous = context.assignment(partition)
            context.put_assignment(partition, move)
            outcomes = await self._partitions.bring_online((partition,), Election.OFFLINE)
            context.put_assignment(partition, previous)
            outcome = outcomes.get(partition)
            if isinstance(outcome, KafkaError):
                raise outcome

    async def _start_replicas(self, partition: TopicPartition, move: ReplicaAssignment) -> None:
        added = [PartitionReplica(partition, replica) for replica in move.adding_replicas]
        states = self._context.replica_states
        await self._replicas.change(
            [replica for replica in added if replica not in states], ReplicaStatus.NEW
        )

    async def _complete(self, partition: TopicPartition, move: ReplicaAssignment) -> None:
        context = self._context
        added = [PartitionReplica(partition, replica) for replica in move.adding_replicas]
        await self._replicas.change(added, ReplicaStatus.ONLINE)
        final = ReplicaAssignment(target_replicas(move))
        context.put_assignment(partition, final)
        await self._move_leader(partition, final)
        await self._stop_replicas(partition, move.removing_replicas)
        context.put_assignment(partition, final)
        await self._write_assignment(partition, final)
        await self._forget(partition, final)
        self._batch.add_update_metadata(context.live_or_shutting_down_broker_ids, (partition,))
        logger.info("partition %s: reassignment to brokers %s is complete", partition, list(final.replicas))
        await self._deletion.resume_topics({partition.topic})

    async def _is_complete(self, partition: TopicPartition, move: ReplicaAssignment) -> bool:
        """Whether all target replicas are in sync and one of them can lead."""
        if not move.is_being_reassigned:
            return True
        target = target_replicas(move)
        state = (await self._store.read_states((partition,))).get(partition)
        return (
            state is not None
            and set(target) <= set(state.isr)
            and any(self._context.is_replica_online(replica, partition) for replica in target)
        )

    async def _move_leader(self, partition: TopicPartition, final: ReplicaAssignment) -> None:
        state = self._context.leadership.get(partition)
        if state is None:
            return
        stays = state.leader in final.replicas and self._context.is_replica_online(state.leader, partition)
        if stays:
            await self._raise_epoch(partition, final)
        else:
            await self._partitions.bring_online((partition,), Election.REASSIGNED)

    async def _raise_epoch(self, partition: TopicPartition, move: ReplicaAssignment) -> None:
        """Send the changed assignment to the replicas, in a new leader epoch."""
        while True:
            state = (await self._store.read_states((partition,))).get(partition)
            if state is None:
                raise UnknownTopicOrPartition(f"{partition} has no state")
            if state.controller_epoch > self._epoch:
                raise written_later(partition, state)
            raised = leader_selection.no_op(state)._replace(controller_epoch=self._epoch)
            written = await self._store.update_states({partition: raised})
            if partition in written.done:
                break
        current: PartitionState = written.done[partition]
        self._context.leadership[partition] = current
        self._batch.add_leader_and_isr(origin_replicas(move), partition, current)
        self._batch.add_leader_and_isr(move.adding_replicas, partition, current, is_new=True)

    async def _stop_replicas(self, partition: TopicPartition, broker_ids: Collection[int]) -> None:
        """Stop and delete replicas, without waiting for the deletion."""
        stopped = [
            replica
            for replica in (PartitionReplica(partition, broker_id) for broker_id in broker_ids)
            if replica in self._context.replica_states
        ]
        for status in (
            ReplicaStatus.OFFLINE,
            ReplicaStatus.DELETION_STARTED,
            ReplicaStatus.DELETION_SUCCESSFUL,
            ReplicaStatus.NON_EXISTENT,
        ):
            await self._replicas.change(stopped, status)

    # --- store ---

    async def _write_assignment(self, partition: TopicPartition, assignment: ReplicaAssignment) -> None:
        await self._store.set_assignments(
            partition.topic,
            self._context.topic_ids.get(partition.topic),
            lambda present: {**present, partition.partition: assignment},
        )

    async def _watch_isr(self, partition: TopicPartition) -> None:
        path = PartitionStateZnode.path(*partition)
        await self._watching.existence(self._store, path, lambda: self._isr_changed(partition))

    async def _forget(self, partition: TopicPartition, final: ReplicaAssignment) -> None:
        self._watching.forget(PartitionStateZnode.path(*partition))
        await self._remove_request(
            lambda each, replicas: each == partition and tuple(replicas) == final.replicas
        )
        self._context.partitions_being_reassigned.discard(partition)

    async def _remove_request(self, is_done: Callable[[TopicPartition, Sequence[int]], bool]) -> None:
        """Remove completed entries from `/admin/reassign_partitions`; the last one removes the node."""
        path = ReassignPartitionsZnode.PATH
        while True:
            found = await self._store.get(path)
            if found is None:
                return
            data, stat = found
            try:
                asked = ReassignPartitionsZnode.decode(data)
            except MalformedZnode:
                return
            left = {each: replicas for each, replicas in asked.items() if not is_done(each, replicas)}
            if left == asked:
                return
            change = (
                SetData(path, ReassignPartitionsZnode.encode(left), stat.version)
                if left
                else Delete(path, stat.version)
            )
            try:
                await self._store.write([change])
            except (BadVersion, NoNode):
                continue
            return
