"""Keeps the ISR of the partitions led here, in the store and in the partitions.

A follower leaves when it has not been caught up for `replica.lag.time.max.ms`, and joins when it
has everything that is committed. The store decides: a change is conditional on the version of the
partition's state that this leader knows, one change of a partition at a time, and it counts only
once it is written; a leader that may have been replaced (`lease`) proposes none. If somebody else has
written meanwhile (the controller, always), the change is dropped and the partition changes no more
until the controller's word arrives.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Protocol

from barnabas.cluster.coordination import BadVersion, CoordinationError, NoNode
from barnabas.cluster.isr_store import IneligibleReplica, Joining
from barnabas.cluster.znodes import PartitionState
from barnabas.core.ids import BrokerId, TopicPartition
from barnabas.core.metrics import Metrics
from barnabas.core.sweeping import sweeping
from barnabas.replication.leader.remote_replica import NO_BROKER_EPOCH, RemoteReplica
from barnabas.replication.partition_leadership import PendingIsr
from barnabas.replication.partition_replication import ReplicatedPartition

logger = logging.getLogger(__name__)

RETRY_MS = 1_000
"""The pause before a change is tried again when the store did not answer, or did not know who was to join."""


class IsrStore(Protocol):
    async def write(
        self, topic_partition: TopicPartition, state: PartitionState, joining: Joining | None = None
    ) -> int:
        """Replace the state on condition that it still has `state.state_version`; returns the new
        version. Raises BadVersion when it has another, NoNode when the partition is gone,
        IneligibleReplica when who joins has been started again."""
        ...


class IsrKeeper:
    def __init__(
        self, store: IsrStore | None, completed: Callable[[ReplicatedPartition], None], metrics: Metrics
    ) -> None:
        self._store = store
        self._completed = completed
        self._tasks: set[asyncio.Task[None]] = set()
        self.shrinks = metrics.counter("kafka_isr_shrinks_total", "Times that an ISR lost members.")
        self.expands = metrics.counter("kafka_isr_expands_total", "Times that an ISR gained a member.")
        self.failed = metrics.counter(
            "kafka_failed_isr_updates_total", "Changes of an ISR that the store refused."
        )

    def expand(self, partition: ReplicatedPartition, follower: RemoteReplica) -> None:
        """Take in a follower that has caught up."""
        if self._store is None or partition.pending_isr is not None or not partition.has_lease:
            return
        if partition.host.clock.monotonic_ms() < follower.refused_until_ms:
            return
        logger.debug("%s: broker %d joins the ISR", partition.topic_partition, follower.broker_id)
        self.expands.value += 1
        epoch = follower.broker_epoch
        joining = None if epoch == NO_BROKER_EPOCH else Joining(follower.broker_id, epoch)
        self._change(partition, partition.isr | {follower.broker_id}, joining)

    def expel(self, partition: ReplicatedPartition, follower: RemoteReplica) -> None:
        """Put out a member that has less than is committed: it has lost what it had."""
        if self._store is None or partition.pending_isr is not None or not partition.has_lease:
            return
        logger.warning(
            "%s: broker %d ends at %d, below the high watermark %d, and leaves the ISR",
            partition.topic_partition,
            follower.broker_id,
            follower.end_offset,
            partition.log.high_watermark,
        )
        self.shrinks.value += 1
        self._change(partition, partition.isr - {follower.broker_id})

    def shrink_all(self, partitions: Iterable[ReplicatedPartition]) -> None:
        """Put out every follower that lags; called from time to time."""
        if self._store is None:
            return
        for partition in partitions:
            with sweeping("the ISR of", partition.topic_partition):
                self._shrink(partition)

    def _shrink(self, partition: ReplicatedPartition) -> None:
        if not partition.is_leader or partition.pending_isr is not None or len(partition.isr) <= 1:
            return
        if not partition.has_lease:
            return
        lagging = partition.lagging_members()
        if lagging:
            logger.warning(
                "%s: brokers %s lag behind %d and leave the ISR",
                partition.topic_partition,
                sorted(lagging),
                partition.log.log_end_offset,
            )
            self.shrinks.value += 1
            self._change(partition, partition.isr - lagging)

    def _change(
        self, partition: ReplicatedPartition, isr: frozenset[BrokerId], joining: Joining | None = None
    ) -> None:
        pending = partition.propose_isr(isr, joining)
        task = asyncio.get_running_loop().create_task(self._write(partition, pending))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _write(self, partition: ReplicatedPartition, proposed: PendingIsr) -> None:
        assert self._store is not None
        pending: PendingIsr | None = proposed
        may_be_written = False
        while pending is not None and partition.pending_isr is pending:
            if not partition.has_lease:
                # A new session has to hear first whether this broker still leads.
                await asyncio.sleep(RETRY_MS / 1_000)
                continue
            state = _state_of(partition, pending)
            try:
                version = await self._store.write(partition.topic_partition, state, pending.joining)
            except IneligibleReplica as error:
                self.failed.value += 1
                logger.warning("%s: nobody joins the ISR: %s", partition.topic_partition, error)
                if partition.pending_isr is pending:
                    refused = pending.joining and partition.followers.get(BrokerId(pending.joining.broker_id))
                    if refused:
                        refused.refused_until_ms = partition.host.clock.monotonic_ms() + RETRY_MS
                    pending = partition.withdraw_isr(may_be_written=may_be_written)
            except (BadVersion, NoNode):
                self.failed.value += 1
                logger.info(
                    "%s: the controller has changed the state since version %d; waiting for its word",
                    partition.topic_partition,
                    pending.partition_epoch,
                )
                return
            except Exception as error:
                # As long as the change is pending there is no other, so it is never given up.
                self.failed.value += 1
                is_expected = isinstance(error, CoordinationError)
                logger.warning(
                    "the ISR of %s cannot be written: %r",
                    partition.topic_partition,
                    error,
                    exc_info=not is_expected,
                )
                may_be_written = True
                await asyncio.sleep(RETRY_MS / 1_000)
            else:
                self._written(partition, pending, version)
                return

    def _written(self, partition: ReplicatedPartition, pending: PendingIsr, version: int) -> None:
        if partition.isr_written(pending, version):
            logger.info(
                "%s: the ISR is %s as of version %d", partition.topic_partition, sorted(pending.isr), version
            )
            self._completed(partition)

    async def close(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _state_of(partition: ReplicatedPartition, pending: PendingIsr) -> PartitionState:
    return PartitionState(
        leader=partition.broker_id,
        leader_epoch=pending.leader_epoch,
        isr=tuple(each for each in partition.replicas if each in pending.isr),
        controller_epoch=partition.controller_epoch,
        state_version=pending.partition_epoch,
    )
