"""Elections that somebody asks for: an administrator, a znode, or the balance of leaders.

Leaders drift: after a broker was down, its partitions are led by others even when it is back. The
balance is restored by electing the preferred replica where more than a given share of the
partitions that a broker should lead are led by others.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection

from barnabas.cluster.coordination import BadVersion, Delete, NoNode
from barnabas.cluster.notification_znodes import PreferredReplicaElectionZnode
from barnabas.cluster.znode_json import MalformedZnode
from barnabas.cluster.znodes import PartitionState
from barnabas.controller import leader_selection
from barnabas.controller.broker_channels import BrokerChannels
from barnabas.controller.context import ControllerContext
from barnabas.controller.partition_machine import Election, PartitionMachine
from barnabas.controller.store import ControllerStore
from barnabas.core.errors import (
    ElectionNotNeeded,
    InvalidTopicException,
    KafkaError,
    UnknownTopicOrPartition,
)
from barnabas.core.ids import TopicPartition

logger = logging.getLogger(__name__)


class LeaderElections:
    def __init__(
        self,
        context: ControllerContext,
        store: ControllerStore,
        partitions: PartitionMachine,
        channels: BrokerChannels,
    ) -> None:
        self._context = context
        self._store = store
        self._partitions = partitions
        self._channels = channels

    async def elect(
        self, election: Election, wanted: Collection[TopicPartition] | None
    ) -> dict[TopicPartition, PartitionState | KafkaError]:
        """Elect for these partitions, or all; the outcome is the new state or why there is none."""
        context = self._context
        partitions = list(context.all_partitions()) if wanted is None else list(dict.fromkeys(wanted))
        outcomes: dict[TopicPartition, PartitionState | KafkaError] = {}
        needed = []
        for partition in partitions:
            refusal = self._refusal(partition, election)
            if refusal is None:
                needed.append(partition)
            else:
                outcomes[partition] = refusal
        if needed:
            outcomes.update(await self._partitions.bring_online(needed, election))
        for partition in needed:
            outcomes.setdefault(
                partition, UnknownTopicOrPartition(f"{partition} is not ready for an election")
            )
        return {partition: outcomes[partition] for partition in partitions}

    def _refusal(self, partition: TopicPartition, election: Election) -> KafkaError | None:
        context = self._context
        replicas = context.replicas(partition)
        if not replicas:
            return UnknownTopicOrPartition(f"there is no partition {partition}")
        if context.is_queued_for_deletion(partition.topic):
            return InvalidTopicException(f"topic {partition.topic} is being deleted")
        state = context.leadership.get(partition)
        if state is None:
            return None
        if election is Election.PREFERRED:
            needed = state.leader != replicas[0]
        else:
            needed = not context.is_replica_online(state.leader, partition)
        return None if needed else ElectionNotNeeded(f"{partition} needs no election")

    async def process_request(self) -> None:
        """Elect the preferred leaders that `/admin/preferred_replica_election` asks for, and remove it."""
        path = PreferredReplicaElectionZnode.PATH
        found = await self._store.get(path)
        if found is None:
            return
        data, stat = found
        try:
            asked = sorted(PreferredReplicaElectionZnode.decode(data))
        except MalformedZnode as error:
            logger.warning("no election is held: %s", error)
            return
        for partition, outcome in (await self.elect(Election.PREFERRED, asked)).items():
            if isinstance(outcome, KafkaError) and not isinstance(outcome, ElectionNotNeeded):
                logger.warning("no preferred leader for %s: %s", partition, outcome.message)
        try:
            await self._store.write([Delete(path, stat.version)])
        except (BadVersion, NoNode):
            logger.debug("%s changed meanwhile", path)

    async def rebalance(self, percentage_max: int) -> None:
        """Elect preferred leaders for brokers of which too many partitions are led by others.

        A leader that does not answer may not hear that it leads no more, and go on: it is left alone until
        it does, for balance is no reason to have two."""
        context = self._context
        by_preferred: dict[int, list[TopicPartition]] = defaultdict(list)
        for partition in context.leadership:
            replicas = context.replicas(partition)
            if replicas and not context.is_queued_for_deletion(partition.topic):
                by_preferred[replicas[0]].append(partition)
        for broker_id, partitions in sorted(by_preferred.items()):
            strayed = [each for each in partitions if context.leadership[each].leader != broker_id]
            if len(strayed) * 100 <= percentage_max * len(partitions):
                continue
            movable = [partition for partition in strayed if self._preferred_can_lead(partition)]
            if movable:
                logger.info("%d partitions go back to their preferred leader %d", len(movable), broker_id)
                await self._partitions.bring_online(movable, Election.PREFERRED)

    def _preferred_can_lead(self, partition: TopicPartition) -> bool:
        context = self._context
        if self._channels.is_silent(context.leadership[partition].leader):
            return False
        return partition not in context.partitions_being_reassigned and (
            leader_selection.select_preferred(
                context.replicas(partition), context.leadership[partition], context.online_replicas(partition)
            )
            is not None
        )
