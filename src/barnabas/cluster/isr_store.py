"""The ISR in the store: `/brokers/topics/<topic>/partitions/<n>/state`, written by the leader.

A write is conditional on the version that the leader knows. A connection lost while writing
leaves open whether it happened, so then the node is read: if it holds what was to be written, it
did.

A follower that joins was caught up under one registration; should it have been started again since, its disk
may have lost what it had (KIP-903). So its registration is looked at before each attempt. The gap: one that
ends, and is made and noticed again, while the write that follows the look is on its way.

The controller learns of changes by notes in `/isr_change_notification`. They are gathered: a note
is left when no ISR has changed for a moment, or after a few seconds at the latest, so that a broker that
falls behind with thousands of partitions does not flood the controller.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from barnabas.cluster.broker_znodes import BrokerIdZnode
from barnabas.cluster.coordination import BadVersion, ConnectionLoss, Coordination, CoordinationError
from barnabas.cluster.notification_znodes import IsrChangeZnode, LogDirEventZnode
from barnabas.cluster.znodes import PartitionState, PartitionStateZnode
from barnabas.core.clock import Clock
from barnabas.core.ids import TopicPartition
from barnabas.core.scheduler import Cancellable, Scheduler
from barnabas.core.sweeping import complain
from barnabas.core.waiting import Runner, Signal

logger = logging.getLogger(__name__)


class Joining(NamedTuple):
    """A follower that joins an ISR, and the broker epoch under which it fetched what it has."""

    broker_id: int
    broker_epoch: int


class IneligibleReplica(Exception):
    """The follower is no longer registered as it was when it caught up. This attempt wrote nothing."""


Start = Callable[[Coroutine[Any, Any, None]], object]
"""Begins a task that nobody awaits."""

CHECK_INTERVAL_MS = 200
QUIET_MS = 300
DELAY_MS_MAX = 3_000


class ZnodeIsrStore:
    def __init__(
        self, znodes: Coordination, clock: Clock, scheduler: Scheduler, runner: Runner, start: Start
    ) -> None:
        self._znodes = znodes
        self._now_ms = clock.monotonic_ms
        self._scheduler = scheduler
        self._changed: set[TopicPartition] = set()
        self._last_change_ms = self._last_note_ms = clock.monotonic_ms()
        self._is_started = False
        self._checking: Cancellable | None = None
        self._start_task = start
        self._notes_under_way = 0
        self._note_over = Signal(runner)

    def start(self) -> None:
        self._is_started = True
        self._check_later()

    async def close(self) -> None:
        """Tell the controller what it has not heard yet, and stop."""
        self._is_started = False
        if self._checking is not None:
            self._checking.cancel()
            self._checking = None
        while self._notes_under_way:
            await self._note_over.wait()
        if self._changed:
            await self._tell_controller(self._take_changed())

    async def write(
        self, topic_partition: TopicPartition, state: PartitionState, joining: Joining | None = None
    ) -> int:
        if joining is not None:
            present = await self._znodes.exists(BrokerIdZnode.path(joining.broker_id))
            if present is None or present.czxid != joining.broker_epoch:
                raise IneligibleReplica(
                    f"broker {joining.broker_id} is not there in epoch {joining.broker_epoch}"
                )
        path = PartitionStateZnode.path(*topic_partition)
        data = PartitionStateZnode.encode(state)
        try:
            version = (await self._znodes.set(path, data, state.state_version)).version
        except (BadVersion, ConnectionLoss):
            # After a connection was lost, our own earlier write shows as a version that is not ours.
            found, stat = await self._znodes.get(path)
            if found != data or stat.version != state.state_version + 1:
                raise
            version = stat.version
        self._changed.add(topic_partition)
        self._last_change_ms = self._now_ms()
        self._check_later()
        return version

    def _check_later(self) -> None:
        """Look soon whether it is time for a note, if there is anything to say and nobody looks already."""
        if self._is_started and self._changed and self._checking is None:
            self._checking = self._scheduler.after(CHECK_INTERVAL_MS, self._maybe_tell_controller)

    def _maybe_tell_controller(self) -> None:
        self._checking = None
        now_ms = self._now_ms()
        if now_ms - self._last_change_ms < QUIET_MS and now_ms - self._last_note_ms < DELAY_MS_MAX:
            self._check_later()
        else:
            self._notes_under_way += 1
            self._start_task(self._leave_note(self._take_changed()))

    async def _leave_note(self, changed: set[TopicPartition]) -> None:
        try:
            await self._tell_controller(changed)
        finally:
            self._notes_under_way -= 1
            self._note_over.set()

    def _take_changed(self) -> set[TopicPartition]:
        changed, self._changed = self._changed, set()
        self._last_note_ms = self._now_ms()
        return changed

    async def _tell_controller(self, changed: set[TopicPartition]) -> None:
        try:
            await self._znodes.create(
                IsrChangeZnode.CREATE_PATH, IsrChangeZnode.encode(changed), sequential=True, make_parents=True
            )
        except CoordinationError as error:
            logger.warning("the controller could not be told of %d changed ISRs: %r", len(changed), error)
            self._tell_again(changed)
        except Exception as error:  # noqa: BLE001 - it is told, and tried again
            complain("telling the controller of changed ISRs", len(changed), error)
            self._tell_again(changed)

    def _tell_again(self, changed: set[TopicPartition]) -> None:
        self._changed |= changed
        self._check_later()


async def report_failed_log_dir(znodes: Coordination, broker_id: int) -> None:
    """A log directory of this broker failed: the controller asks which partitions are lost."""
    await znodes.create(
        LogDirEventZnode.CREATE_PATH, LogDirEventZnode.encode(broker_id), sequential=True, make_parents=True
    )
