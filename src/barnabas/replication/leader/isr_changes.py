"""ISR changes of a leader: written to the store, and in effect once they are there.

A `Partition` decides. A follower leaves when it has not been caught up for `replica.lag.time.max.ms`; it
joins when it has everything that is committed. A change takes effect only once the store has it. It is
conditional on the partition epoch that this leader knows, and each partition has one change in flight. A
leader that may have been replaced (`lease`) proposes none. If the state has changed meanwhile (only the
controller does that), the change is dropped. The ISR then stays as it is until the next LeaderAndIsr arrives.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol

from barnabas.cluster.coordination.contract import BadVersion, CoordinationError, NoNode
from barnabas.cluster.stores.isr_store import IneligibleReplica, Joining
from barnabas.cluster.znodes.layout import PartitionState
from barnabas.core.ids import BrokerId, TopicPartition
from barnabas.core.reporting.error_isolation import sweeping
from barnabas.core.reporting.metrics import Metrics
from barnabas.core.scheduler import Scheduler
from barnabas.replication.leader.delayed_requests import DelayedRequests
from barnabas.replication.partition.leadership import PendingIsr
from barnabas.replication.partition.partition import Partition

logger = logging.getLogger(__name__)

RETRY_MS = 1_000
"""Pause before a retry, when the store did not answer, or did not know the joining follower."""

REPORT_MS = 1_000
"""Changes within this time share one log line: thousands come at once when a broker starts again."""


class IsrStore(Protocol):
    def write(
        self,
        topic_partition: TopicPartition,
        state: PartitionState,
        joining: Joining | None,
        withdrawn: PartitionState | None,
        done: Callable[[int], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """Replace the state on condition that it still has `state.state_version`. Later exactly one of
        `done`, with the new version, and `failed` is called. BadVersion: the state has another version.
        NoNode: the partition is gone. IneligibleReplica: the joining follower has restarted. A `withdrawn`
        state that the store may hold, under the next version, is replaced too."""
        ...


class IsrKeeper:
    def __init__(
        self,
        store: IsrStore | None,
        scheduler: Scheduler,
        delayed: DelayedRequests,
        metrics: Metrics,
    ) -> None:
        """Without a `store`, on a single node, the ISR never changes."""
        self._store = store
        self._scheduler = scheduler
        self._delayed = delayed
        self._is_closed = False
        self._unreported: list[str] = []
        self.shrinks = metrics.counter("kafka_isr_shrinks_total", "ISR changes that removed followers.")
        self.expands = metrics.counter("kafka_isr_expands_total", "ISR changes that added a follower.")
        self.failed = metrics.counter("kafka_failed_isr_updates_total", "ISR changes that the store refused.")

    def shrink_all(self, partitions: Iterable[Partition]) -> None:
        """Remove lagging followers from every ISR; called periodically."""
        for partition in partitions:
            with sweeping("the ISR of", partition.topic_partition):
                proposed = partition.maybe_shrink_isr()
                if proposed is not None:
                    self.write(partition, proposed)

    def write(self, partition: Partition, pending: PendingIsr) -> None:
        """Write a proposed change at the end of this turn of the loop."""
        if len(pending.isr) < len(partition.leadership.isr):
            self.shrinks.value += 1
        else:
            self.expands.value += 1
        self._try_later(0, partition, pending, may_be_written=False)

    def close(self) -> None:
        self._is_closed = True
        self._report_all()

    def _try_later(
        self, delay_ms: float, partition: Partition, pending: PendingIsr, *, may_be_written: bool
    ) -> None:
        self._scheduler.after(delay_ms, partial(self._try, partition, pending, may_be_written=may_be_written))

    def _try(self, partition: Partition, pending: PendingIsr, *, may_be_written: bool) -> None:
        leadership = partition.leadership
        if self._is_closed or leadership.pending_isr is not pending:
            return
        if not leadership.has_lease:
            # After a new session, the controller first has to confirm the leadership.
            self._try_later(RETRY_MS, partition, pending, may_be_written=may_be_written)
            return
        assert self._store is not None
        self._store.write(
            partition.topic_partition,
            _state_of(partition, pending, pending.isr),
            pending.joining,
            None if pending.withdrawn is None else _state_of(partition, pending, pending.withdrawn),
            partial(self._written, partition, pending),
            partial(self._failed, partition, pending, may_be_written),
        )

    def _written(self, partition: Partition, pending: PendingIsr, version: int) -> None:
        if not self._is_closed and partition.leadership.isr_written(pending, version):
            self._report(
                f"{partition.topic_partition}: the ISR is {sorted(pending.isr)} as of version {version}"
            )
            partition.maybe_advance_high_watermark()
            self._delayed.complete_all(partition.topic_partition)

    def _report(self, change: str) -> None:
        if not self._unreported:
            self._scheduler.after(REPORT_MS, self._report_all)
        self._unreported.append(change)

    def _report_all(self) -> None:
        changes, self._unreported = self._unreported, []
        for change in changes[:-1]:
            logger.debug("%s", change)
        for change in changes[-1:]:
            logger.info("%s%s", change, f" (and {len(changes) - 1} more changed)" if changes[1:] else "")

    def _failed(
        self, partition: Partition, pending: PendingIsr, may_be_written: bool, error: Exception
    ) -> None:
        self.failed.value += 1
        key, leadership = partition.topic_partition, partition.leadership
        if isinstance(error, BadVersion | NoNode):
            logger.info(
                "partition %s: state changed after partition epoch %d; waiting for LeaderAndIsr",
                key,
                pending.partition_epoch,
            )
        elif isinstance(error, IneligibleReplica):
            logger.warning("partition %s: the follower does not join the ISR: %s", key, error)
            if leadership.pending_isr is pending:
                if pending.joining is not None:
                    until_ms = partition.host.clock.monotonic_ms() + RETRY_MS
                    partition.refuse_until(BrokerId(pending.joining.broker_id), until_ms)
                undo = leadership.withdraw_isr(may_be_written=may_be_written)
                if undo is not None:
                    self._try_later(0, partition, undo, may_be_written=True)
        else:
            # A pending change blocks every other, so it is retried without end.
            is_expected = isinstance(error, CoordinationError)
            logger.warning(
                "partition %s: writing the ISR failed and is retried: %r",
                key,
                error,
                exc_info=None if is_expected else error,
            )
            self._try_later(RETRY_MS, partition, pending, may_be_written=True)


def _state_of(partition: Partition, pending: PendingIsr, isr: frozenset[BrokerId]) -> PartitionState:
    leadership = partition.leadership
    return PartitionState(
        leader=leadership.broker_id,
        leader_epoch=pending.leader_epoch,
        isr=tuple(each for each in leadership.replicas if each in isr),
        controller_epoch=leadership.controller_epoch,
        state_version=pending.partition_epoch,
    )
