"""Requested leader elections: by an administrator, by a znode, or by the leader rebalance.

After a broker was down, other brokers still lead its partitions. The rebalance elects the preferred replica
again where other brokers lead more than a given share of a broker's preferred partitions.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection

from barnabas.cluster.coordination.contract import BadVersion, Delete, NoNode
from barnabas.cluster.znodes.json_codec import MalformedZnode
from barnabas.cluster.znodes.layout import PartitionState
from barnabas.cluster.znodes.notifications import PreferredReplicaElectionZnode
from barnabas.controller.channels.broker_channels import BrokerChannels
from barnabas.controller.machines import leader_selection
from barnabas.controller.machines.partition_machine import Election, PartitionMachine
from barnabas.controller.machines.term_parts import TermParts
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
        parts: TermParts,
        partitions: PartitionMachine,
        channels: BrokerChannels,
    ) -> None:
        self._context = parts.context
        self._store = parts.store
        self._partitions = partitions
        self._channels = channels

    async def elect(
        self, election: Election, wanted: Collection[TopicPartition] | None
    ) -> dict[TopicPartition, PartitionState | KafkaError]:
        """Elect leaders for these partitions, or all; each outcome is the new state or the error."""
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
        """Elect the preferred leaders requested in `/admin/preferred_replica_election`, and remove the
        request.
        """
        path = PreferredReplicaElectionZnode.PATH
        found = await self._store.get(path)
        if found is None:
            return
        data, stat = found
        try:
            asked = sorted(PreferredReplicaElectionZnode.decode(data))
        except MalformedZnode as error:
            logger.warning("preferred replica election is ignored: %s", error)
            return
        for partition, outcome in (await self.elect(Election.PREFERRED, asked)).items():
            if isinstance(outcome, KafkaError) and not isinstance(outcome, ElectionNotNeeded):
                logger.warning(
                    "partition %s: preferred replica election failed: %s", partition, outcome.message
                )
        try:
            await self._store.write([Delete(path, stat.version)])
        except (BadVersion, NoNode):
            logger.debug("%s changed meanwhile", path)

    async def rebalance(self, percentage_max: int) -> None:
        """Elect preferred leaders for brokers with too many partitions led by others.

        A leader that does not answer may not notice its demotion and go on leading. The rebalance skips it
        until it answers, because balance does not justify two leaders.
        """
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
                logger.info("leader rebalance: %d partitions move to broker %d", len(movable), broker_id)
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
