"""Deleting topics: first the partitions, then what clients know, then every replica, last the znodes.

A deletion needs all replicas. While one of them cannot be deleted (its broker is down, its disk
failed, the topic is being moved) the topic is *ineligible* and waits; it is taken up again when the
broker comes back, the deletion failed for a passing reason, or the move is over. The request to
delete stays in the store until the end, so a new controller goes on where the old one stopped.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable

from barnabas.cluster.notification_znodes import DeleteTopicsZnode
from barnabas.cluster.znodes import TopicZnode
from barnabas.controller.context import ControllerContext
from barnabas.controller.partition_machine import PartitionMachine
from barnabas.controller.partition_states import PartitionStatus
from barnabas.controller.replica_machine import ReplicaMachine
from barnabas.controller.replica_states import PartitionReplica, ReplicaStatus
from barnabas.controller.request_batch import RequestBatch
from barnabas.controller.store import ControllerStore
from barnabas.controller.watching import Watching

logger = logging.getLogger(__name__)


class TopicDeletion:
    def __init__(
        self,
        context: ControllerContext,
        store: ControllerStore,
        batch: RequestBatch,
        partitions: PartitionMachine,
        replicas: ReplicaMachine,
        watching: Watching,
        *,
        is_enabled: Callable[[], bool],
        tries_offline_replicas: bool = False,
    ) -> None:
        """`tries_offline_replicas`: a log that is damaged can be deleted all the same, and the broker that
        has it says whether it can; worth while where it is the only one."""
        self._context = context
        self._store = store
        self._batch = batch
        self._partitions = partitions
        self._replicas = replicas
        self._watching = watching
        self._is_enabled = is_enabled
        self._tries_offline_replicas = tries_offline_replicas

    async def startup(self, marked: Collection[str]) -> None:
        """Know what was to be deleted; `resume` begins with it."""
        context = self._context
        known = await self.drop_marks_without_topic(marked)
        if not known:
            return
        context.topics_to_be_deleted |= known
        moving = self._moving()
        for topic in known:
            offline = any(not self._may_be_deleted(replica) for replica in context.replicas_of(topic))
            if offline or topic in moving:
                context.topics_ineligible_for_deletion.add(topic)

    def _may_be_deleted(self, replica: PartitionReplica) -> bool:
        if self._tries_offline_replicas:
            return replica.broker_id in self._context.brokers
        return self._context.is_replica_online(replica.broker_id, replica.topic_partition)

    async def drop_marks_without_topic(self, marked: Collection[str]) -> set[str]:
        """The topics among `marked` that are known, if deleting is allowed. Marks of topics that are not
        there are removed; that of one which cannot be read waits until it can."""
        known = set(marked) & self._context.assignments.keys() if self._is_enabled() else set()
        useless = set(marked) - known
        if useless and self._is_enabled():
            useless -= await self._store.existing_topics(useless)
        if useless:
            logger.warning("these topics are not deleted: %s", ", ".join(sorted(useless)))
            await self._store.delete_all([DeleteTopicsZnode.path(topic) for topic in sorted(useless)])
        return known

    async def enqueue(self, topics: Collection[str]) -> None:
        self._context.topics_to_be_deleted.update(topics)
        self.mark_ineligible(self._moving() & set(topics), "a reassignment is in progress")
        await self.resume()

    def _moving(self) -> set[str]:
        return {partition.topic for partition in self._context.partitions_being_reassigned}

    def mark_ineligible(self, topics: Iterable[str], reason: str) -> None:
        halted = self._context.topics_to_be_deleted & set(topics)
        self._context.topics_ineligible_for_deletion |= halted
        if halted:
            logger.info("the deletion of %s waits: %s", ", ".join(sorted(halted)), reason)

    async def resume_topics(self, topics: Iterable[str]) -> None:
        """What made these topics wait is over; but a topic that moves waits for that as well."""
        resumed = (self._context.topics_to_be_deleted & set(topics)) - self._moving()
        if resumed:
            self._context.topics_ineligible_for_deletion -= resumed
            await self.resume()

    async def replicas_failed(self, replicas: Iterable[PartitionReplica]) -> None:
        """These replicas could not be deleted: their broker said so, or is gone."""
        failed = [replica for replica in replicas if self._context.is_queued_for_deletion(replica.topic)]
        if failed:
            started = [
                replica
                for replica in failed
                if self._context.replica_states.get(replica) is not ReplicaStatus.DELETION_INELIGIBLE
                and self._context.replica_may_become(replica, ReplicaStatus.DELETION_INELIGIBLE)
            ]
            await self._replicas.change(started, ReplicaStatus.DELETION_INELIGIBLE)
            self.mark_ineligible({replica.topic for replica in failed}, "replicas could not be deleted")
            await self.resume()

    async def replicas_deleted(self, replicas: Iterable[PartitionReplica]) -> None:
        deleted = [
            replica
            for replica in replicas
            if self._context.is_queued_for_deletion(replica.topic)
            # An answer that comes late, after the deletion was begun anew, says nothing.
            and self._context.replica_may_become(replica, ReplicaStatus.DELETION_SUCCESSFUL)
        ]
        await self._replicas.change(deleted, ReplicaStatus.DELETION_SUCCESSFUL)
        await self.resume()

    async def resume(self) -> None:
        """Take the next step with every topic that can make one."""
        context = self._context
        retried: list[PartitionReplica] = []
        begun: list[str] = []
        for topic in sorted(context.topics_to_be_deleted):
            if context.are_all_replicas_in_state(topic, ReplicaStatus.DELETION_SUCCESSFUL):
                await self._complete(topic)
                continue
            if context.is_any_replica_in_state(topic, ReplicaStatus.DELETION_STARTED):
                continue
            retried += context.replicas_in_state(topic, ReplicaStatus.DELETION_INELIGIBLE)
            if topic not in context.topics_ineligible_for_deletion:
                begun.append(topic)
        await self._replicas.change(retried, ReplicaStatus.OFFLINE)
        if begun:
            logger.info("the deletion of topics %s goes on", ", ".join(begun))
            await self._begin(begun)

    async def _complete(self, topic: str) -> None:
        context = self._context
        self._watching.forget(TopicZnode.path(topic))
        deleted = context.replicas_in_state(topic, ReplicaStatus.DELETION_SUCCESSFUL)
        await self._replicas.change(deleted, ReplicaStatus.NON_EXISTENT)
        await self._store.delete_topic(topic)
        context.remove_topic(topic)
        logger.info("topic %s is deleted", topic)

    async def _begin(self, topics: Collection[str]) -> None:
        context = self._context
        unseen = [topic for topic in topics if topic not in context.topics_with_deletion_started]
        partitions = [partition for topic in unseen for partition in context.partitions_of(topic)]
        self._partitions.change(partitions, PartitionStatus.OFFLINE)
        self._partitions.change(partitions, PartitionStatus.NON_EXISTENT)
        context.topics_with_deletion_started.update(unseen)
        self._batch.add_update_metadata(
            context.live_or_shutting_down_broker_ids,
            [partition for topic in topics for partition in context.partitions_of(topic)],
        )
        await self._begin_replicas(topics)

    async def _begin_replicas(self, topics: Collection[str]) -> None:
        context = self._context
        dead: list[PartitionReplica] = []
        alive: list[PartitionReplica] = []
        for topic in topics:
            for replica in context.replicas_of(topic):
                if context.replica_states.get(replica) is ReplicaStatus.DELETION_SUCCESSFUL:
                    continue
                (alive if self._may_be_deleted(replica) else dead).append(replica)
        # A replica is offline before its deletion begins, a dead one before it is ineligible.
        await self._replicas.change([*dead, *alive], ReplicaStatus.OFFLINE)
        await self._replicas.change(dead, ReplicaStatus.DELETION_INELIGIBLE)
        await self._replicas.change(alive, ReplicaStatus.DELETION_STARTED)
        self.mark_ineligible({replica.topic for replica in dead}, "replicas are offline")
