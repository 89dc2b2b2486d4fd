"""Topic deletion: first partitions, then clients' metadata, then every replica, last the znodes.

A deletion needs all replicas. One of them cannot be deleted while its broker is down, its log directory is
offline or the topic is being reassigned. Meanwhile the topic is *ineligible* and waits. The deletion resumes
when the broker is back, the reassignment is over, or after a temporary failure. The deletion mark stays in
the store until the end, so a new controller continues where the previous one stopped.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable

from barnabas.cluster.znodes.layout import TopicZnode
from barnabas.cluster.znodes.notifications import DeleteTopicsZnode
from barnabas.controller.machines.partition_machine import PartitionMachine
from barnabas.controller.machines.replica_machine import ReplicaMachine
from barnabas.controller.machines.term_parts import TermParts
from barnabas.controller.state.partition_states import PartitionStatus
from barnabas.controller.state.replica_states import PartitionReplica, ReplicaStatus

logger = logging.getLogger(__name__)


class TopicDeletion:
    def __init__(
        self,
        parts: TermParts,
        partitions: PartitionMachine,
        replicas: ReplicaMachine,
        *,
        is_enabled: Callable[[], bool],
        tries_offline_replicas: bool = False,
    ) -> None:
        """`tries_offline_replicas`: also try to delete replicas that are offline.

        A damaged log can be deleted all the same, and its broker reports whether it can. This is for a single
        broker, where no other replica exists.
        """
        self._context = parts.context
        self._store = parts.store
        self._batch = parts.batch
        self._partitions = partitions
        self._replicas = replicas
        self._watching = parts.watching
        self._is_enabled = is_enabled
        self._tries_offline_replicas = tries_offline_replicas

    async def startup(self, marked: Collection[str]) -> None:
        """Load the topics marked for deletion; `resume` starts with them."""
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
        """Known topics among `marked`, if deletion is enabled. Marks without a topic are removed.

        The mark of an unreadable topic stays until the topic is readable.
        """
        known = set(marked) & self._context.assignments.keys() if self._is_enabled() else set()
        useless = set(marked) - known
        if useless and self._is_enabled():
            useless -= await self._store.existing_topics(useless)
        if useless:
            logger.warning(
                "deletion marks are removed: no such topic, or delete.topic.enable is false: %s",
                ", ".join(sorted(useless)),
            )
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
            logger.info("deletion of topics %s waits: %s", ", ".join(sorted(halted)), reason)

    async def resume_topics(self, topics: Iterable[str]) -> None:
        """Resume topics whose obstacle is gone, except those that are being reassigned."""
        resumed = (self._context.topics_to_be_deleted & set(topics)) - self._moving()
        if resumed:
            self._context.topics_ineligible_for_deletion -= resumed
            await self.resume()

    async def replicas_failed(self, replicas: Iterable[PartitionReplica]) -> None:
        """Record that these replicas could not be deleted: their broker reported it, or failed."""
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
            # A late response, after the deletion was restarted, means nothing.
            and self._context.replica_may_become(replica, ReplicaStatus.DELETION_SUCCESSFUL)
        ]
        await self._replicas.change(deleted, ReplicaStatus.DELETION_SUCCESSFUL)
        await self.resume()

    async def resume(self) -> None:
        """Take the next step of every eligible topic."""
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
            logger.info("deletion of topics %s starts", ", ".join(begun))
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
        # A replica is offline before its deletion starts, a dead one before it is ineligible.
        await self._replicas.change([*dead, *alive], ReplicaStatus.OFFLINE)
        await self._replicas.change(dead, ReplicaStatus.DELETION_INELIGIBLE)
        await self._replicas.change(alive, ReplicaStatus.DELETION_STARTED)
        self.mark_ineligible({replica.topic for replica in dead}, "replicas are offline")
