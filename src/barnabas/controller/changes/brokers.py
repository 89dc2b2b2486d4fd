"""Broker changes: startup, failure, restart, failed log directories, controlled shutdown."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial

from barnabas.cluster.znodes.brokers import BrokerIdZnode, BrokerInfo
from barnabas.cluster.znodes.json_codec import INT32_MAX
from barnabas.controller.changes.reassignment import Reassignment
from barnabas.controller.changes.topic_deletion import TopicDeletion
from barnabas.controller.channels.broker_channels import BrokerChannels
from barnabas.controller.machines.partition_machine import Election, PartitionMachine
from barnabas.controller.machines.replica_machine import ReplicaMachine
from barnabas.controller.machines.term_parts import TermParts
from barnabas.controller.state.assignments import target_replicas
from barnabas.controller.state.partition_states import PartitionStatus
from barnabas.controller.state.replica_states import PartitionReplica, ReplicaStatus
from barnabas.core.errors import (
    BrokerNotAvailable,
    KafkaStorageError,
    StaleBrokerEpoch,
    StaleControllerEpoch,
)
from barnabas.core.ids import TopicPartition
from barnabas.protocol.messages.leader_and_isr import LeaderAndIsrResponse

logger = logging.getLogger(__name__)

UNKNOWN_BROKER_EPOCH = -1


def registered_ids(names: Iterable[str]) -> list[int]:
    """Broker ids from the names of their nodes."""
    ids = []
    for name in names:
        if name.isascii() and name.isdecimal() and int(name) <= INT32_MAX:
            ids.append(int(name))
        else:
            logger.error("%s/%s is ignored: not a broker id", BrokerIdZnode.PARENT, name)
    return ids


def _is_same(known: Mapping[int, BrokerInfo], broker_id: int, epoch: int) -> bool:
    return broker_id in known and known[broker_id].epoch == epoch


class BrokerChanges:
    def __init__(
        self,
        parts: TermParts,
        channels: BrokerChannels,
        partitions: PartitionMachine,
        replicas: ReplicaMachine,
        deletion: TopicDeletion,
        reassignment: Reassignment,
        modified: Callable[[int], None],
    ) -> None:
        self._context = parts.context
        self._store = parts.store
        self._batch = parts.batch
        self._channels = channels
        self._partitions = partitions
        self._replicas = replicas
        self._deletion = deletion
        self._reassignment = reassignment
        self._watching = parts.watching
        self._modified = modified

    async def load(self, names: Iterable[str]) -> None:
        """Load the registered brokers."""
        ids = registered_ids(names)
        await self.watch(ids)
        self._context.brokers = (await self._store.read_brokers(ids)).brokers

    async def process(self, registered: Iterable[int]) -> None:
        """Compare the registered brokers with the known ones. A changed epoch means that a broker restarted.

        A registration that became unreadable does not count as a failed broker.
        """
        context = self._context
        present, unreadable = await self._store.read_brokers(registered)
        known = context.brokers
        present.update(
            {each: known[each] for each, epoch in unreadable.items() if _is_same(known, each, epoch)}
        )
        await self.watch(each for each in unreadable if each not in present)
        new = [broker for broker in present.values() if broker.id not in known]
        dead = [broker_id for broker_id in known if broker_id not in present]
        bounced = [
            broker
            for broker in present.values()
            if broker.id in known and broker.epoch > known[broker.id].epoch
        ]
        bounced_ids = [broker.id for broker in bounced]
        self._channels.remove([*dead, *bounced_ids])
        self._channels.add([*new, *bounced])
        if new:
            await self._start(new)
        if bounced:
            self._remove(bounced_ids)
            await self._fail(bounced_ids)
            self._batch.flush()
            await self._start(bounced)
        if dead:
            self._remove(dead)
            await self._fail(dead)

    def _remove(self, broker_ids: Iterable[int]) -> None:
        for broker_id in broker_ids:
            del self._context.brokers[broker_id]

    async def watch(self, broker_ids: Iterable[int]) -> None:
        """Watch the registrations for changed endpoints."""
        await self._watching.existences(
            self._store,
            {BrokerIdZnode.path(each): partial(self._modified, each) for each in broker_ids},
        )

    async def _start(self, brokers: Collection[BrokerInfo]) -> None:
        """Send the full state to the started brokers, notify the others, and resume what waited for them."""
        context = self._context
        started = {broker.id for broker in brokers}
        logger.info("brokers %s have started", sorted(started))
        context.brokers.update({broker.id: broker for broker in brokers})
        for broker_id in started:
            context.replicas_on_offline_dirs.pop(broker_id, None)
        self._batch.add_update_metadata(context.brokers.keys() - started)
        self._batch.flush()
        self._batch.add_update_metadata(started, context.partitions_with_leaders())
        # A broker must know the live brokers before it follows one of them.
        self._batch.flush()
        self._batch.complete_lists(started)
        replicas = context.replicas_on_brokers(started)
        await self._replicas.change(
            [replica for replica in replicas if context.replica_may_become(replica, ReplicaStatus.ONLINE)],
            ReplicaStatus.ONLINE,
        )
        await self._partitions.trigger_online()
        await self._reassignment.resume(lambda _, move: not started.isdisjoint(target_replicas(move)))
        await self._deletion.resume_topics({replica.topic for replica in replicas})
        await self.watch(sorted(started))

    async def _fail(self, broker_ids: Collection[int]) -> None:
        context = self._context
        logger.info("brokers %s have failed", sorted(broker_ids))
        for broker_id in broker_ids:
            context.replicas_on_offline_dirs.pop(broker_id, None)
            context.shutting_down_broker_ids.discard(broker_id)
            self._watching.forget(BrokerIdZnode.path(broker_id))
        await self.replicas_offline(context.replicas_on_brokers(set(broker_ids)))

    async def replicas_offline(self, replicas: Collection[PartitionReplica]) -> None:
        """Elect other leaders for these replicas, then take the replicas offline."""
        context = self._context
        leaderless = context.partitions_with_offline_leader()
        self._partitions.change(leaderless, PartitionStatus.OFFLINE)
        await self._partitions.trigger_online()
        deleting = [replica for replica in replicas if context.is_queued_for_deletion(replica.topic)]
        others = [replica for replica in replicas if not context.is_queued_for_deletion(replica.topic)]
        await self._replicas.change(others, ReplicaStatus.OFFLINE)
        if deleting:
            await self._deletion.replicas_failed(deleting)
        # Every broker gets the live brokers, even if no partition changed.
        self._batch.add_update_metadata(context.live_or_shutting_down_broker_ids)

    async def modified(self, broker_id: int) -> None:
        """React to a changed registration: its endpoints, its features, or that it is readable again."""
        await self.watch((broker_id,))
        previous = self._context.brokers.get(broker_id)
        present = (await self._store.read_brokers((broker_id,))).brokers.get(broker_id)
        if previous is None and present is not None:
            await self.process((*self._context.brokers, broker_id))
        elif previous is not None and present is not None and present.epoch == previous.epoch:
            self._changed(previous, present)

    def _changed(self, previous: BrokerInfo, present: BrokerInfo) -> None:
        if present != previous:
            self._context.brokers[present.id] = present
            self._channels.update(present)
            self._batch.add_update_metadata(self._context.live_or_shutting_down_broker_ids)

    # --- log directories ---

    def log_dirs_failed(self, broker_ids: Collection[int]) -> None:
        """Send these brokers their replicas again; their responses name those that they cannot open."""
        replicas = self._context.replicas_on_brokers(broker_ids)
        self._replicas.repeat(
            replica for replica in replicas if self._context.replica_may_become(replica, ReplicaStatus.ONLINE)
        )

    async def leader_and_isr_answered(self, broker_id: int, response: LeaderAndIsrResponse) -> None:
        """Record the replicas in failed log directories."""
        context = self._context
        if broker_id not in context.brokers:
            return
        previous = context.replicas_on_offline_dirs.get(broker_id, set())
        offline = set(previous)
        for topic in response.topics:
            name = context.topic_names.get(topic.topic_id)
            if name is None:
                continue
            for error in topic.partition_errors:
                partition = TopicPartition(name, error.partition_index)
                if error.error_code == KafkaStorageError.code:
                    offline.add(partition)
                elif error.error_code == 0:
                    offline.discard(partition)
                else:
                    # A replica that already has this state, or a later one, needs nothing.
                    is_stale = error.error_code == StaleControllerEpoch.code
                    logger.log(
                        logging.DEBUG if is_stale else logging.WARNING,
                        "broker %d: LeaderAndIsr of partition %s failed with error code %d",
                        broker_id, partition, error.error_code,
                    )  # fmt: skip
        context.replicas_on_offline_dirs[broker_id] = offline
        newly = offline - previous
        if newly:
            logger.warning(
                "%d replicas on broker %d are offline; check the log directories of that broker",
                len(newly),
                broker_id,
            )
            await self.replicas_offline([PartitionReplica(each, broker_id) for each in sorted(newly)])

    # --- controlled shutdown ---

    async def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> list[TopicPartition]:
        """Move leaderships off the broker; returns the partitions with other replicas that it still leads."""
        context = self._context
        broker = context.brokers.get(broker_id)
        if broker is None:
            raise BrokerNotAvailable(f"broker {broker_id} is not registered")
        if broker_epoch not in (UNKNOWN_BROKER_EPOCH, broker.epoch) and broker_epoch < broker.epoch:
            raise StaleBrokerEpoch(f"broker {broker_id} is registered with epoch {broker.epoch}")
        context.shutting_down_broker_ids.add(broker_id)
        movable = [
            replica.topic_partition
            for replica in context.replicas_on_brokers((broker_id,))
            if len(context.replicas(replica.topic_partition)) > 1
            and replica.topic_partition in context.leadership
            and not context.is_queued_for_deletion(replica.topic)
        ]
        led = [each for each in movable if context.leadership[each].leader == broker_id]
        followed = [each for each in movable if context.leadership[each].leader != broker_id]
        await self._partitions.bring_online(led, Election.CONTROLLED_SHUTDOWN)
        await self._replicas.change(
            [PartitionReplica(each, broker_id) for each in followed], ReplicaStatus.OFFLINE
        )
        self._batch.add_update_metadata(context.live_or_shutting_down_broker_ids)
        return context.shared_partitions_led_by(broker_id)
