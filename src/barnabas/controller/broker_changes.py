"""Brokers come, go, come back under the same id, lose a disk, and shut down in an orderly way."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial

from barnabas.cluster.broker_znodes import BrokerIdZnode, BrokerInfo
from barnabas.cluster.znode_json import INT32_MAX
from barnabas.controller.assignments import target_replicas
from barnabas.controller.broker_channels import BrokerChannels
from barnabas.controller.context import ControllerContext
from barnabas.controller.partition_machine import Election, PartitionMachine
from barnabas.controller.partition_states import PartitionStatus
from barnabas.controller.reassignment import Reassignment
from barnabas.controller.replica_machine import ReplicaMachine
from barnabas.controller.replica_states import PartitionReplica, ReplicaStatus
from barnabas.controller.request_batch import RequestBatch
from barnabas.controller.store import ControllerStore
from barnabas.controller.topic_deletion import TopicDeletion
from barnabas.controller.watching import Watching
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
    """The ids of brokers from the names of their nodes."""
    ids = []
    for name in names:
        if name.isascii() and name.isdecimal() and int(name) <= INT32_MAX:
            ids.append(int(name))
        else:
            logger.error("%s/%s is no broker", BrokerIdZnode.PARENT, name)
    return ids


def _is_same(known: Mapping[int, BrokerInfo], broker_id: int, epoch: int) -> bool:
    return broker_id in known and known[broker_id].epoch == epoch


class BrokerChanges:
    def __init__(
        self,
        context: ControllerContext,
        store: ControllerStore,
        batch: RequestBatch,
        channels: BrokerChannels,
        partitions: PartitionMachine,
        replicas: ReplicaMachine,
        deletion: TopicDeletion,
        reassignment: Reassignment,
        watching: Watching,
        modified: Callable[[int], None],
    ) -> None:
        self._context = context
        self._store = store
        self._batch = batch
        self._channels = channels
        self._partitions = partitions
        self._replicas = replicas
        self._deletion = deletion
        self._reassignment = reassignment
        self._watching = watching
        self._modified = modified

    async def load(self, names: Iterable[str]) -> None:
        """Know who is registered."""
        ids = registered_ids(names)
        await self.watch(ids)
        self._context.brokers = (await self._store.read_brokers(ids)).brokers

    async def process(self, registered: Iterable[int]) -> None:
        """Compare who is registered with who was; a changed epoch is a broker that was gone in between.
        Nobody dies of a registration that became unreadable."""
        context = self._context
        present, spoilt = await self._store.read_brokers(registered)
        known = context.brokers
        present.update({each: known[each] for each, epoch in spoilt.items() if _is_same(known, each, epoch)})
        await self.watch(each for each in spoilt if each not in present)
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
        """Hear of changed endpoints."""
        await self._watching.existences(
            self._store,
            {BrokerIdZnode.path(each): partial(self._modified, each) for each in broker_ids},
        )

    async def _start(self, brokers: Collection[BrokerInfo]) -> None:
        """Tell the new ones everything, the others of the new ones; then look for what can go on."""
        context = self._context
        started = {broker.id for broker in brokers}
        logger.info("brokers %s are up", sorted(started))
        context.brokers.update({broker.id: broker for broker in brokers})
        for broker_id in started:
            context.replicas_on_offline_dirs.pop(broker_id, None)
        self._batch.add_update_metadata(context.brokers.keys() - started)
        self._batch.flush()
        self._batch.add_update_metadata(started, context.partitions_with_leaders())
        # Before it follows anyone, a broker knows who lives.
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
        logger.info("brokers %s are gone", sorted(broker_ids))
        for broker_id in broker_ids:
            context.replicas_on_offline_dirs.pop(broker_id, None)
            context.shutting_down_broker_ids.discard(broker_id)
            self._watching.forget(BrokerIdZnode.path(broker_id))
        await self.replicas_offline(context.replicas_on_brokers(set(broker_ids)))

    async def replicas_offline(self, replicas: Collection[PartitionReplica]) -> None:
        """Elect others to lead in their place, then take them offline."""
        context = self._context
        leaderless = context.partitions_with_offline_leader()
        self._partitions.change(leaderless, PartitionStatus.OFFLINE)
        await self._partitions.trigger_online()
        deleting = [replica for replica in replicas if context.is_queued_for_deletion(replica.topic)]
        others = [replica for replica in replicas if not context.is_queued_for_deletion(replica.topic)]
        await self._replicas.change(others, ReplicaStatus.OFFLINE)
        if deleting:
            await self._deletion.replicas_failed(deleting)
        # Everyone hears who lives now, even if no partition changed.
        self._batch.add_update_metadata(context.live_or_shutting_down_broker_ids)

    async def modified(self, broker_id: int) -> None:
        """The registration of a broker changed: its endpoints, its features, or that it can be read."""
        await self.watch((broker_id,))
        former = self._context.brokers.get(broker_id)
        present = (await self._store.read_brokers((broker_id,))).brokers.get(broker_id)
        if former is None and present is not None:
            await self.process((*self._context.brokers, broker_id))
        elif former is not None and present is not None and present.epoch == former.epoch:
            self._changed(former, present)

    def _changed(self, former: BrokerInfo, present: BrokerInfo) -> None:
        if present != former:
            self._context.brokers[present.id] = present
            self._channels.update(present)
            self._batch.add_update_metadata(self._context.live_or_shutting_down_broker_ids)

    # Disks

    def log_dirs_failed(self, broker_ids: Collection[int]) -> None:
        """Send these brokers their replicas again: they answer which of them they cannot open."""
        replicas = self._context.replicas_on_brokers(broker_ids)
        self._replicas.repeat(
            replica for replica in replicas if self._context.replica_may_become(replica, ReplicaStatus.ONLINE)
        )

    async def leader_and_isr_answered(self, broker_id: int, response: LeaderAndIsrResponse) -> None:
        """Learn which replicas are on a failed disk."""
        context = self._context
        if broker_id not in context.brokers:
            return
        former = context.replicas_on_offline_dirs.get(broker_id, set())
        offline = set(former)
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
                    # A replica that has this state already, or a later one, is no trouble.
                    is_stale = error.error_code == StaleControllerEpoch.code
                    logger.log(
                        logging.DEBUG if is_stale else logging.WARNING,
                        "broker %d answered LeaderAndIsr of %s with error %d",
                        broker_id, partition, error.error_code,
                    )  # fmt: skip
        context.replicas_on_offline_dirs[broker_id] = offline
        newly = offline - former
        if newly:
            logger.warning("%d replicas on broker %d are offline", len(newly), broker_id)
            await self.replicas_offline([PartitionReplica(each, broker_id) for each in sorted(newly)])

    # Orderly shutdown

    async def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> list[TopicPartition]:
        """Move leaderships off the broker; returns what it still leads though others have replicas of it."""
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
