"""ISR store: `/brokers/topics/<topic>/partitions/<n>/state`, written by the leader.

A write is conditional on the version that the leader knows. A connection lost during the write leaves open
whether it happened. The leader then reads the node: if it holds the written state, the write happened.

A follower that joins caught up under one registration. If the follower restarted since, its disk may have
lost records (KIP-903). So its registration is checked before each attempt. The gap: the registration may end
and be renewed while the write that follows the check is on its way.

The controller learns of changes from notifications in `/isr_change_notification`. A notification covers many
changes: it is written when no ISR has changed for a moment, or after a few seconds at the latest. So a
follower that falls behind with thousands of partitions does not flood the controller.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from barnabas.cluster.coordination.contract import BadVersion, ConnectionLoss, Coordination, CoordinationError
from barnabas.cluster.znodes.brokers import BrokerIdZnode
from barnabas.cluster.znodes.layout import PartitionState, PartitionStateZnode
from barnabas.cluster.znodes.notifications import IsrChangeZnode, LogDirEventZnode
from barnabas.core.clock import Clock
from barnabas.core.ids import TopicPartition
from barnabas.core.reporting.error_isolation import complain
from barnabas.core.scheduler import Cancellable, Scheduler
from barnabas.core.waiting import Signal

logger = logging.getLogger(__name__)


class Joining(NamedTuple):
    """Follower that joins an ISR, and the broker epoch under which it fetched its records."""

    broker_id: int
    broker_epoch: int


class IneligibleReplica(Exception):
    """The follower's registration has changed since it caught up. This attempt wrote nothing."""


Start = Callable[[Coroutine[Any, Any, None]], object]
"""Starts a background task that is never awaited."""

CHECK_INTERVAL_MS = 200
QUIET_MS = 300
DELAY_MS_MAX = 3_000


class ZnodeIsrStore:
    def __init__(self, znodes: Coordination, clock: Clock, scheduler: Scheduler, start: Start) -> None:
        self._znodes = znodes
        self._now_ms = clock.monotonic_ms
        self._scheduler = scheduler
        self._changed: set[TopicPartition] = set()
        self._last_change_ms = self._last_note_ms = clock.monotonic_ms()
        self._is_started = False
        self._checking: Cancellable | None = None
        self._start_task = start
        self._notes_under_way = 0
        self._note_over = Signal()

    def start(self) -> None:
        self._is_started = True
        self._check_later()

    async def close(self) -> None:
        """Notify the controller of the remaining changes, and stop."""
        self._is_started = False
        if self._checking is not None:
            self._checking.cancel()
            self._checking = None
        while self._notes_under_way:
            await self._note_over.wait()
        if self._changed:
            await self._notify_controller(self._take_changed())

    async def write(
        self,
        topic_partition: TopicPartition,
        state: PartitionState,
        joining: Joining | None = None,
        withdrawn: PartitionState | None = None,
    ) -> int:
        """Write the state; returns its new version.

        `withdrawn` is an earlier change of this leader whose response was lost, and which this write takes
        back. The store may hold it, under the version that follows.
        """
        if joining is not None:
            present = await self._znodes.exists(BrokerIdZnode.path(joining.broker_id))
            if present is None or present.czxid != joining.broker_epoch:
                raise IneligibleReplica(
                    f"broker {joining.broker_id} is not registered with epoch {joining.broker_epoch}"
                )
        path = PartitionStateZnode.path(*topic_partition)
        data = PartitionStateZnode.encode(state)
        try:
            version = (await self._znodes.set(path, data, state.state_version)).version
        except (BadVersion, ConnectionLoss):
            # After a lost connection, our own earlier write shows as an unexpected version.
            found, stat = await self._znodes.get(path)
            later = stat.version - state.state_version
            if withdrawn is not None and later == 1 and found == PartitionStateZnode.encode(withdrawn):
                version = (await self._znodes.set(path, data, stat.version)).version
            elif found == data and (later == 1 or (later == 2 and withdrawn is not None)):
                version = stat.version
            else:
                raise
        self._changed.add(topic_partition)
        self._last_change_ms = self._now_ms()
        self._check_later()
        return version

    def _check_later(self) -> None:
        """Schedule a check whether a notification is due, unless one is scheduled."""
        if self._is_started and self._changed and self._checking is None:
            self._checking = self._scheduler.after(CHECK_INTERVAL_MS, self._maybe_notify_controller)

    def _maybe_notify_controller(self) -> None:
        self._checking = None
        now_ms = self._now_ms()
        if now_ms - self._last_change_ms < QUIET_MS and now_ms - self._last_note_ms < DELAY_MS_MAX:
            self._check_later()
        else:
            self._notes_under_way += 1
            self._start_task(self._leave_note(self._take_changed()))

    async def _leave_note(self, changed: set[TopicPartition]) -> None:
        try:
            await self._notify_controller(changed)
        finally:
            self._notes_under_way -= 1
            self._note_over.set()

    def _take_changed(self) -> set[TopicPartition]:
        changed, self._changed = self._changed, set()
        self._last_note_ms = self._now_ms()
        return changed

    async def _notify_controller(self, changed: set[TopicPartition]) -> None:
        try:
            await self._znodes.create(
                IsrChangeZnode.CREATE_PATH, IsrChangeZnode.encode(changed), sequential=True, make_parents=True
            )
        except CoordinationError as error:
            logger.warning("the controller is notified later of %d changed ISRs: %r", len(changed), error)
            self._notify_again(changed)
        except Exception as error:  # noqa: BLE001 - it is logged, and tried again
            complain("notifying the controller of changed ISRs", len(changed), error)
            self._notify_again(changed)

    def _notify_again(self, changed: set[TopicPartition]) -> None:
        self._changed |= changed
        self._check_later()


async def report_failed_log_dir(znodes: Coordination, broker_id: int) -> None:
    """Notify the controller of a failed log directory; it then asks which partitions are offline."""
    await znodes.create(
        LogDirEventZnode.CREATE_PATH, LogDirEventZnode.encode(broker_id), sequential=True, make_parents=True
    )
