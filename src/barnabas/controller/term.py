"""Term of a controller, from its election to its resignation.

A term owns its state and its requests: the context, the batch, the channels. A resigned term is dropped as a
whole, so nothing of it can reach the next one. A take-over has a fixed order:

- set the watches before reading, so that no change is missed;
- send all brokers the live brokers;
- take over the replica states, then the partition states, which elects missing leaders;
- resume what the previous controller had begun.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, Protocol

from barnabas.cluster.znodes.brokers import BrokerIdZnode
from barnabas.cluster.znodes.layout import ControllerEpochZnode, TopicZnode
from barnabas.cluster.znodes.notifications import (
    DeleteTopicsZnode,
    IsrChangeZnode,
    LogDirEventZnode,
    PreferredReplicaElectionZnode,
    ReassignPartitionsZnode,
)
from barnabas.config.broker_config import BrokerConfig
from barnabas.config.dynamic.repository import ConfigRepository
from barnabas.controller.changes.brokers import BrokerChanges, registered_ids
from barnabas.controller.changes.leader_elections import LeaderElections
from barnabas.controller.changes.reassignment import Reassignment
from barnabas.controller.changes.topic_deletion import TopicDeletion
from barnabas.controller.changes.topics import TopicChanges
from barnabas.controller.channels.broker_channels import BrokerChannels
from barnabas.controller.channels.request_batch import RequestBatch
from barnabas.controller.machines.leader_selection import without_returned
from barnabas.controller.machines.partition_machine import PartitionMachine
from barnabas.controller.machines.replica_machine import ReplicaMachine
from barnabas.controller.machines.term_parts import TermParts
from barnabas.controller.state.context import ControllerContext
from barnabas.controller.state.replica_states import PartitionReplica
from barnabas.controller.state.store import ControllerStore
from barnabas.controller.state.watches import Watching
from barnabas.core.errors import KafkaError, StaleControllerEpoch
from barnabas.core.ids import BrokerId, Randomness, TopicPartition
from barnabas.core.reporting.metrics import Metrics
from barnabas.protocol.messages.leader_and_isr import LeaderAndIsrResponse
from barnabas.protocol.messages.stop_replica import StopReplicaResponse
from barnabas.protocol.messages.update_metadata import UpdateMetadataResponse

logger = logging.getLogger(__name__)

UNDELIVERED_MS_MAX: Final = 30_000
"""Age before a controller's end of states that some broker may not have received.

The store's clock stamps the states, so it is only compared with itself. The controller's session may have
outlived the controller.
"""


class Enqueue(Protocol):
    """Queues an event of this term; events of a term that is over are dropped."""

    def __call__(
        self, kind: str, process: Callable[[], Awaitable[None]], *, key: str | None = None
    ) -> None: ...


class Term:
    def __init__(
        self,
        broker_id: BrokerId,
        epoch: int,
        store: ControllerStore,
        watching: Watching,
        channels: BrokerChannels,
        configs: ConfigRepository,
        randomness: Randomness,
        metrics: Metrics,
        config: BrokerConfig,
        enqueue: Enqueue,
        doubt: Callable[[], None],
    ) -> None:
        self.epoch = epoch
        self.context = ControllerContext()
        self.channels = channels
        self._store = store
        self._watching = watching
        self._enqueue = enqueue
        self._doubt = doubt
        self._config = config
        self.batch = RequestBatch(
            self.context, broker_id, epoch, config.inter_broker_listener.listener_name, channels.send, self
        )
        parts = TermParts(self.context, store, self.batch, watching, epoch)
        self.partitions = PartitionMachine(
            parts, lambda: configs.broker_config.unclean_leader_election_enable, metrics
        )
        self.replicas = ReplicaMachine(parts)
        self.deletion = TopicDeletion(
            parts,
            self.partitions,
            self.replicas,
            is_enabled=lambda: config.delete_topic_enable,
            tries_offline_replicas=config.owns_store,
        )
        self.reassignment = Reassignment(
            parts, self.partitions, self.replicas, self.deletion, self._reassigned_isr_changed
        )
        self.brokers = BrokerChanges(
            parts,
            channels,
            self.partitions,
            self.replicas,
            self.deletion,
            self.reassignment,
            self._broker_modified,
        )
        self.topics = TopicChanges(parts, self.partitions, self.replicas, randomness, self._topic_modified)
        self.elections = LeaderElections(parts, self.partitions, channels)

    async def take_over(self) -> None:
        """Read the cluster's state and bring it into order."""
        context = self.context
        # Changes that the previous controller missed are in the states that are read below.
        await self._store.delete_notifications(
            [f"{parent}/{name}" for parent in (LogDirEventZnode.PARENT, IsrChangeZnode.PARENT)
             for name in await self._store.children(parent)]
        )  # fmt: skip
        await self._watch_children(IsrChangeZnode.PARENT, self.isr_changed)
        await self._watch_children(LogDirEventZnode.PARENT, self.log_dirs_failed)
        marked = await self._watch_children(DeleteTopicsZnode.PARENT, self.topics_marked)
        topics = await self._watch_children(TopicZnode.PARENT, self.topics_changed)
        await self.brokers.load(await self._watch_children(BrokerIdZnode.PARENT, self.brokers_changed))
        await self.topics.load(topics)
        written = await self._store.read_written_states(context.all_partitions())
        context.leadership = {partition: state for partition, (state, _) in written.items()}
        self.channels.add(context.brokers.values())
        await self.deletion.startup(marked)
        self.batch.add_update_metadata(context.brokers)
        self.batch.flush()
        if self._config.owns_store:
            await self._elect_all()
        else:
            self.batch.complete_lists(context.brokers)
            await self._leave_out_returned({each: stat.mzxid for each, (_, stat) in written.items()})
            await self._doubt_leaders({each: stat.mtime_ms for each, (_, stat) in written.items()})
            await self.replicas.startup()
            await self.partitions.startup()
        await self._go_on()

    async def _leave_out_returned(self, written_in: Mapping[TopicPartition, int]) -> None:
        """Remove restarted brokers from ISRs.

        A broker whose registration is newer than a partition's state has restarted without a controller's
        noticing. It is treated as any restarted broker.
        """
        context = self.context
        returned = {
            partition: members
            for partition, zxid in written_in.items()
            if (
                members := {
                    each
                    for each in context.leadership[partition].isr
                    if each in context.brokers and context.brokers[each].epoch > zxid
                }
            )
        }
        while returned:
            changed = {}
            for partition, members in returned.items():
                state = context.leadership[partition]
                online = context.online_replicas(partition)
                without = without_returned(context.replicas(partition), state, online, members)
                if without != state:
                    changed[partition] = without._replace(controller_epoch=self.epoch)
            outcome = await self._store.update_states(changed)
            context.leadership.update(outcome.done)
            present = await self._store.read_states(outcome.stale)
            context.leadership.update(present)
            returned = {partition: returned[partition] for partition in present}

    async def _doubt_leaders(self, written_ms: Mapping[TopicPartition, int]) -> None:
        """Doubt the leaders of recent states: a demoted broker may not have received its LeaderAndIsr."""
        node = await self._store.get(ControllerEpochZnode.PATH)
        if node is not None:
            oldest_ms = node[1].mtime_ms - UNDELIVERED_MS_MAX
            self.batch.doubt_leaders([each for each, at_ms in written_ms.items() if at_ms >= oldest_ms])

    async def _elect_all(self) -> None:
        """Elect all leaders in new epochs: no broker has led anything since this single broker stopped."""
        await self.replicas.startup(notify=False)
        outcomes = await self.partitions.startup(elect_all=True)
        leaderless = [each for each in self.context.leadership if isinstance(outcomes.get(each), KafkaError)]
        self.batch.add_update_metadata(self.context.brokers, leaderless)

    async def _go_on(self) -> None:
        """Resume the reassignments, deletions and elections of the previous controller."""
        await self._watch_request(ReassignPartitionsZnode.PATH, self.reassignment_asked)
        begun = await self.reassignment.process_request()
        await self.reassignment.resume(lambda partition, _: partition not in begun)
        await self.deletion.resume()
        await self._watch_request(PreferredReplicaElectionZnode.PATH, self.preferred_election_asked)
        await self.elections.process_request()

    def close(self) -> None:
        """Send nothing more and remove the watch handlers."""
        self.batch.clear()
        self.channels.close()
        for path in (
            IsrChangeZnode.PARENT,
            LogDirEventZnode.PARENT,
            DeleteTopicsZnode.PARENT,
            TopicZnode.PARENT,
            BrokerIdZnode.PARENT,
            ReassignPartitionsZnode.PATH,
            PreferredReplicaElectionZnode.PATH,
            *map(BrokerIdZnode.path, self.context.brokers),
            *map(TopicZnode.path, self.context.assignments),
        ):
            self._watching.forget(path)

    # --- watches ---

    async def _watch_children(self, path: str, process: Callable[[], Awaitable[None]]) -> list[str]:
        return await self._watching.children(
            self._store, path, lambda: self._enqueue(path, process, key=path)
        )

    async def _watch_request(self, path: str, process: Callable[[], Awaitable[None]]) -> bool:
        return await self._watching.existence(
            self._store, path, lambda: self._enqueue(path, process, key=path)
        )

    def _broker_modified(self, broker_id: int) -> None:
        self._enqueue(
            "broker modification", lambda: self.brokers.modified(broker_id), key=BrokerIdZnode.path(broker_id)
        )

    def _topic_modified(self, topic: str) -> None:
        self._enqueue("topic modification", lambda: self.topic_modified(topic), key=TopicZnode.path(topic))

    def _reassigned_isr_changed(self, partition: TopicPartition) -> None:
        self._enqueue(
            "ISR of a reassigned partition",
            lambda: self.reassignment.complete_if_caught_up(partition),
            key=f"reassigned {partition}",
        )

    # --- events ---

    async def brokers_changed(self) -> None:
        registered = await self._watch_children(BrokerIdZnode.PARENT, self.brokers_changed)
        await self.brokers.process(registered_ids(registered))

    async def topics_changed(self) -> None:
        await self.topics.process(await self._watch_children(TopicZnode.PARENT, self.topics_changed))

    async def topic_modified(self, topic: str) -> None:
        if await self.topics.modified(topic):
            # The deletion mark of an unreadable topic waited for this.
            await self.topics_marked()

    async def topics_marked(self) -> None:
        marked = await self._watch_children(DeleteTopicsZnode.PARENT, self.topics_marked)
        # A topic may have been created and marked before this event.
        unknown = [topic for topic in marked if topic not in self.context.assignments]
        if unknown:
            await self.topics_changed()
        known = await self.deletion.drop_marks_without_topic(marked)
        if known:
            await self.deletion.enqueue(known)

    async def isr_changed(self) -> None:
        """Send changed ISRs to all brokers."""
        names = await self._watch_children(IsrChangeZnode.PARENT, self.isr_changed)
        paths = [f"{IsrChangeZnode.PARENT}/{name}" for name in names]
        partitions = set().union(*await self._store.read_notifications(paths, IsrChangeZnode.decode))
        known = [partition for partition in sorted(partitions) if partition in self.context.leadership]
        self.context.leadership.update(await self._store.read_states(known))
        self.batch.add_update_metadata(self.context.live_or_shutting_down_broker_ids, known)
        await self._store.delete_notifications(paths)
        for partition in known:
            await self.reassignment.complete_if_caught_up(partition)

    async def log_dirs_failed(self) -> None:
        names = await self._watch_children(LogDirEventZnode.PARENT, self.log_dirs_failed)
        paths = [f"{LogDirEventZnode.PARENT}/{name}" for name in names]
        brokers = set(await self._store.read_notifications(paths, LogDirEventZnode.decode))
        if brokers:
            self.brokers.log_dirs_failed(brokers)
        await self._store.delete_notifications(paths)

    async def reassignment_asked(self) -> None:
        if await self._watch_request(ReassignPartitionsZnode.PATH, self.reassignment_asked):
            await self.reassignment.process_request()

    async def preferred_election_asked(self) -> None:
        if await self._watch_request(PreferredReplicaElectionZnode.PATH, self.preferred_election_asked):
            await self.elections.process_request()

    async def rebalance(self) -> None:
        await self.elections.rebalance(self._config.leader_imbalance_per_broker_percentage)

    async def unclean_election_enabled(self, topics: Iterable[str] | None) -> None:
        """Elect leaders for partitions that wait for an in-sync replica."""
        await self.partitions.trigger_online(None if topics is None else set(topics))

    # --- responses of brokers ---

    def leader_and_isr_answered(self, broker_id: int, response: LeaderAndIsrResponse) -> None:
        if not self._is_refused("LeaderAndIsr", broker_id, response.error_code):
            self._take_answer(
                "LeaderAndIsr response",
                broker_id,
                lambda: self.brokers.leader_and_isr_answered(broker_id, response),
            )

    def update_metadata_answered(self, broker_id: int, response: UpdateMetadataResponse) -> None:
        self._is_refused("UpdateMetadata", broker_id, response.error_code)

    def stop_replica_answered(
        self, broker_id: int, response: StopReplicaResponse, deleted: frozenset[TopicPartition]
    ) -> None:
        refused = self._is_refused("StopReplica", broker_id, response.error_code)
        errors = {
            TopicPartition(e.topic_name, e.partition_index): e.error_code for e in response.partition_errors
        }
        mine = [each for each in sorted(deleted) if self.context.is_queued_for_deletion(each.topic)]
        if mine:
            outcome = {each: refused or errors.get(each, 0) != 0 for each in mine}
            self._take_answer(
                "topic deletion response", broker_id, lambda: self._replicas_deleted(broker_id, outcome)
            )

    def _take_answer(self, name: str, broker_id: int, take: Callable[[], Awaitable[None]]) -> None:
        """Process a response as an event, unless the broker restarted meanwhile.

        A broker that has failed by then was handled with all its requests. After a restart it received them
        again, and only the later response counts.
        """
        answering = self.context.brokers.get(broker_id)

        async def take_if_same() -> None:
            present = self.context.brokers.get(broker_id)
            if answering is not None and present is not None and present.epoch == answering.epoch:
                await take()

        self._enqueue(name, take_if_same)

    async def _replicas_deleted(self, broker_id: int, failed: Mapping[TopicPartition, bool]) -> None:
        replicas = {PartitionReplica(each, broker_id): bad for each, bad in failed.items()}
        await self.deletion.replicas_failed([replica for replica, bad in replicas.items() if bad])
        await self.deletion.replicas_deleted([replica for replica, bad in replicas.items() if not bad])

    def _is_refused(self, what: str, broker_id: int, error_code: int) -> bool:
        if error_code == 0:
            return False
        logger.warning("broker %d: %s failed with error code %d", broker_id, what, error_code)
        if error_code == StaleControllerEpoch.code:
            self._doubt()
        return True
