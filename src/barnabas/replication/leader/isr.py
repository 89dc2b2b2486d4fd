"""Writes changes of the ISR to the store, and counts with them once they are there.

A follower leaves when it has not been caught up for `replica.lag.time.max.ms`, and joins when it
has everything that is committed: a `Partition` decides that. The store decides whether it counts: a change
is conditional on the version of the partition's state that this leader knows, one change of a partition at a
time, and it counts only once it is written; a leader that may have been replaced (`lease`) proposes none. If
somebody else has written meanwhile (the controller, always), the change is dropped and the partition changes
no more until the controller's word arrives.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol

from barnabas.cluster.coordination import BadVersion, CoordinationError, NoNode
from barnabas.cluster.isr_store import IneligibleReplica, Joining
from barnabas.cluster.znodes import PartitionState
from barnabas.core.ids import BrokerId, TopicPartition
from barnabas.core.metrics import Metrics
from barnabas.core.scheduler import Scheduler
from barnabas.core.sweeping import sweeping
from barnabas.replication.leader.delayed_requests import DelayedRequests
from barnabas.replication.leadership import PendingIsr
from barnabas.replication.partition import Partition

logger = logging.getLogger(__name__)

RETRY_MS = 1_000
"""The pause before a change is tried again when the store did not answer, or did not know who was to join."""

REPORT_MS = 1_000
"""Changes of so long a time are one line in the log: thousands come at once when a broker starts again."""


class IsrStore(Protocol):
    def write(
        self,
        topic_partition: TopicPartition,
        state: PartitionState,
        joining: Joining | None,
        written: Callable[[int], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """Replace the state on condition that it still has `state.state_version`; later exactly one of
        `written` is called, with the new version, and `failed`: with BadVersion when it has another, NoNode
        when the partition is gone, IneligibleReplica when who joins has been started again."""
        ...


class IsrKeeper:
    def __init__(
        self,
        store: IsrStore | None,
        scheduler: Scheduler,
        delayed: DelayedRequests,
        metrics: Metrics,
    ) -> None:
        """Without a `store`, on a single node, no ISR changes."""
        self._store = store
        self._scheduler = scheduler
        self._delayed = delayed
        self._is_closed = False
        self._unreported: list[str] = []
        self.shrinks = metrics.counter("kafka_isr_shrinks_total", "Times that an ISR lost members.")
        self.expands = metrics.counter("kafka_isr_expands_total", "Times that an ISR gained a member.")
        self.failed = metrics.counter(
            "kafka_failed_isr_updates_total", "Changes of an ISR that the store refused."
        )

    def shrink_all(self, partitions: Iterable[Partition]) -> None:
        """Put out every follower that lags; called from time to time."""
        for partition in partitions:
            with sweeping("the ISR of", partition.topic_partition):
                proposed = partition.maybe_shrink_isr()
                if proposed is not None:
                    self.write(partition, proposed)

    def write(self, partition: Partition, pending: PendingIsr) -> None:
        """Write a change that was proposed, when this turn of the loop is over."""
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
            # A new session has to hear first whether this broker still leads.
            self._try_later(RETRY_MS, partition, pending, may_be_written=may_be_written)
            return
        assert self._store is not None
        self._store.write(
            partition.topic_partition,
            _state_of(partition, pending),
            pending.joining,
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
                "%s: the controller has changed the state since version %d; waiting for its word",
                key,
                pending.partition_epoch,
            )
        elif isinstance(error, IneligibleReplica):
            logger.warning("%s: nobody joins the ISR: %s", key, error)
            if leadership.pending_isr is pending:
                if pending.joining is not None:
                    until_ms = partition.host.clock.monotonic_ms() + RETRY_MS
                    partition.refuse_until(BrokerId(pending.joining.broker_id), until_ms)
                undo = leadership.withdraw_isr(may_be_written=may_be_written)
                if undo is not None:
                    self._try_later(0, partition, undo, may_be_written=True)
        else:
            # As long as the change is pending there is no other, so it is never given up.
            is_expected = isinstance(error, CoordinationError)
            logger.warning(
                "the ISR of %s cannot be written: %r", key, error, exc_info=None if is_expected else error
            )
            self._try_later(RETRY_MS, partition, pending, may_be_written=True)


def _state_of(partition: Partition, pending: PendingIsr) -> PartitionState:
    leadership = partition.leadership
    return PartitionState(
        leader=leadership.broker_id,
        leader_epoch=pending.leader_epoch,
        isr=tuple(each for each in leadership.replicas if each in pending.isr),
        controller_epoch=leadership.controller_epoch,
        state_version=pending.partition_epoch,
    )
