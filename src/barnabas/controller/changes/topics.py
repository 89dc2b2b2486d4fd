"""Topic changes: new topics and partitions in the store, and topics removed from it by hand."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial

from barnabas.cluster.znodes.json_codec import MalformedZnode
from barnabas.cluster.znodes.layout import ReplicaAssignment, TopicInfo, TopicZnode
from barnabas.controller.machines.partition_machine import Election, PartitionMachine
from barnabas.controller.machines.replica_machine import ReplicaMachine
from barnabas.controller.machines.term_parts import TermParts
from barnabas.controller.state.partition_states import PartitionStatus
from barnabas.controller.state.replica_states import ReplicaStatus
from barnabas.core.ids import Randomness, TopicPartition, Uuid

logger = logging.getLogger(__name__)


class TopicChanges:
    def __init__(
        self,
        parts: TermParts,
        partitions: PartitionMachine,
        replicas: ReplicaMachine,
        randomness: Randomness,
        modified: Callable[[str], None],
    ) -> None:
        self._context = parts.context
        self._store = parts.store
        self._partitions = partitions
        self._replicas = replicas
        self._watching = parts.watching
        self._randomness = randomness
        self._modified = modified

    async def load(self, topics: Iterable[str]) -> list[TopicPartition]:
        """Load these topics; returns their partitions. A topic from before topic ids gets an id."""
        names = list(topics)
        await self._watching.existences(
            self._store, {TopicZnode.path(name): partial(self._modified, name) for name in names}
        )
        loaded = []
        found = await self._store.read_topics(names)
        unreadable = await self._store.existing_topics(name for name in names if name not in found)
        self._context.unreadable_topics.difference_update(names)
        self._context.unreadable_topics |= unreadable
        for name, info in found.items():
            topic_id = info.topic_id or await self._give_id(name)
            self._context.put_topic_id(name, topic_id)
            for number, assignment in info.assignment.items():
                partition = TopicPartition(name, number)
                self._context.put_assignment(partition, assignment)
                if assignment.is_being_reassigned:
                    self._context.partitions_being_reassigned.add(partition)
                loaded.append(partition)
        return loaded

    async def _give_id(self, topic: str) -> Uuid:
        proposed = Uuid.generate(self._randomness)
        info: TopicInfo = await self._store.set_assignments(topic, proposed, dict)
        return info.topic_id or proposed

    async def process(self, present: Collection[str]) -> None:
        """Compare the topics in the store with the known ones."""
        context = self._context
        context.unreadable_topics.intersection_update(present)
        for topic in sorted(context.assignments.keys() - set(present)):
            logger.warning(
                "topic %s: its znode was removed from the store by another program; its logs become stray",
                topic,
            )
            self._watching.forget(TopicZnode.path(topic))
            context.remove_topic(topic)
        new = [topic for topic in present if topic not in context.assignments]
        if new:
            await self.bring_up(await self.load(new))

    async def modified(self, topic: str) -> bool:
        """React to a changed topic znode: more partitions, or readable again. Returns whether the topic is
        new.
        """
        context = self._context
        if topic not in context.assignments:
            await self.bring_up(await self.load((topic,)))
            return topic in context.assignments
        path = TopicZnode.path(topic)
        found = await self._watching.data(self._store, path, lambda: self._modified(topic))
        if found is not None:
            try:
                info = TopicZnode.decode(topic, found[0])
            except MalformedZnode as error:
                logger.error("topic keeps its last known state until its znode is repaired: %s", error)
                return False
            if info.topic_id is None:
                # Brokers keep the topic's logs under its id, and would take them for stray under another one.
                logger.warning("topic %s: topic id is missing in its znode and is written again", topic)
                await self._store.set_assignments(topic, context.topic_ids.get(topic), dict)
            await self._grow(topic, info.assignment)
        return False

    async def _grow(self, topic: str, present: Mapping[int, ReplicaAssignment]) -> None:
        """Start with partitions that are new."""
        context = self._context
        known = context.assignments[topic]
        added = {number: each for number, each in present.items() if number not in known}
        if not added:
            return
        if context.is_queued_for_deletion(topic):
            logger.warning(
                "topic %s: added partitions are removed, because the topic is being deleted", topic
            )
            await self._store.set_assignments(topic, None, lambda now: _only(now, known))
            return
        for number, assignment in added.items():
            context.put_assignment(TopicPartition(topic, number), assignment)
        await self.bring_up([TopicPartition(topic, number) for number in added])

    async def bring_up(self, partitions: Collection[TopicPartition]) -> None:
        """Elect the first leaders of new partitions."""
        if not partitions:
            return
        context = self._context
        logger.info("%d new partitions are brought online", len(partitions))
        replicas = context.replicas_of_partitions(partitions)
        self._partitions.change(partitions, PartitionStatus.NEW)
        await self._replicas.change(replicas, ReplicaStatus.NEW)
        await self._partitions.bring_online(partitions, Election.OFFLINE)
        await self._replicas.change(replicas, ReplicaStatus.ONLINE)


def _only(
    now: Mapping[int, ReplicaAssignment], wanted: Mapping[int, ReplicaAssignment]
) -> dict[int, ReplicaAssignment]:
    return {number: each for number, each in now.items() if number in wanted}
