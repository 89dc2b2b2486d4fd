"""Purgatory of delayed operations: tried once, watched by key, completed exactly once by event or timeout.

A `DelayedOperation` is a produce or a DeleteRecords that waits for replicas, or a fetch that waits for bytes.
Each is watched under the keys of what can complete it: a partition, or a follower's session. Code that
changes such a key calls `check_and_complete(key)`. The event and the timeout may both come; `force_complete`
lets only the first through.

Everything runs on the loop's thread. Nothing can change between trying an operation and watching it, so one
try is enough. Re-entrance is possible: completing an operation may complete, watch or check others, also
under the same key.

A completed operation leaves the timer at once. It stays in the watch lists of its other keys until a later
check. Lists that are never checked would grow, so the purgatory estimates how many operations they hold. The
estimate grows by one with each watched operation. When estimate - pending exceeds `purge_interval`, a sweep
of all lists sets it to the number pending. The removed operations pay for the sweep.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence

from barnabas.core.reporting.metrics import Metrics
from barnabas.purgatory.timer import Timer
from barnabas.purgatory.timing_wheel import TimerTask

logger = logging.getLogger(__name__)


class DelayedOperation(TimerTask, ABC):
    """Request that waits. Subclasses define the condition of completion and the completion itself."""

    __slots__ = ("is_completed", "purgatory")

    def __init__(self, delay_ms: float) -> None:
        super().__init__(delay_ms)
        self.is_completed = False
        self.purgatory: Purgatory | None = None

    @abstractmethod
    def try_complete(self) -> bool:
        """If the condition holds, `return self.force_complete()`; else False."""

    def check(self, key: Hashable) -> bool:  # noqa: ARG002 - subclasses use the key to save work
        """Try again after a change of `key`, one of the keys it waits for."""
        return self.try_complete()

    @abstractmethod
    def on_complete(self) -> None:
        """Answer the request. Called exactly once, by the event or by the timeout."""

    def on_expiration(self) -> None:
        """Called after `on_complete` when the timeout completed the operation."""

    def force_complete(self) -> bool:
        """Complete now unless already completed; True for the one caller that completed it."""
        if self.is_completed:
            return False
        self._leave()
        self.on_complete()
        return True

    def run(self) -> None:
        purgatory = self.purgatory
        if self.force_complete():
            if purgatory is not None:
                purgatory.expired.value += 1
            self.on_expiration()

    def _leave(self) -> None:
        self.is_completed = True
        purgatory = self.purgatory
        if purgatory is not None:
            self.cancel()
            purgatory.pending -= 1
            self.purgatory = None


class Purgatory:
    """Waiting operations of one kind."""

    __slots__ = ("_estimated_total", "_purge_interval", "_timer", "_watchers", "expired", "name", "pending")

    def __init__(
        self,
        name: str,
        timer: Timer,
        metrics: Metrics,
        purge_interval: int,
    ) -> None:
        self.name = name
        self.pending = 0
        """Operations that are not completed."""
        self._timer = timer
        self._purge_interval = purge_interval
        self._estimated_total = 0
        self._watchers: dict[Hashable, list[DelayedOperation]] = {}
        self.expired = metrics.counter(
            "barnabas_purgatory_expired_total",
            "Operations that expired instead of being completed by an event.",
            purgatory=name,
        )
        metrics.gauge(
            "barnabas_purgatory_pending",
            "Operations waiting in the purgatory.",
            lambda: self.pending,
            purgatory=name,
        )
        metrics.gauge(
            "barnabas_purgatory_watched", "Entries in watch lists.", lambda: self.watched, purgatory=name
        )

    @property
    def watched(self) -> int:
        """Entries in all watch lists: an operation counts once per key, completed ones until purged."""
        return sum(map(len, self._watchers.values()))

    def try_complete_else_watch(self, operation: DelayedOperation, keys: Sequence[Hashable]) -> bool:
        """True if the operation is complete at once; otherwise it waits under each of `keys`."""
        assert keys, "an operation that watches nothing could only time out"
        if operation.try_complete():
            return True
        if self._estimated_total - self.pending > self._purge_interval:
            self.purge()
        operation.purgatory = self
        self.pending += 1
        self._estimated_total += 1
        self._timer.add(operation)
        watchers = self._watchers
        for key in keys:
            operations = watchers.get(key)
            if operations is None:
                watchers[key] = [operation]
            else:
                operations.append(operation)
        return False

    def check_and_complete(self, key: Hashable) -> int:
        """Complete the operations under a changed `key` that can be completed; returns how many were."""
        operations = self._watchers.get(key)
        if operations is None:
            return 0
        return self._try_watched(key, operations)

    def complete_all(self, wanted: Callable[[DelayedOperation], bool] = lambda _: True) -> int:
        """Complete the wanted operations as if their timeout had come: their event will not come."""
        completed = 0
        for operation in {each for operations in self._watchers.values() for each in operations}:
            try:
                if not operation.is_completed and wanted(operation):
                    completed += operation.force_complete()
            except Exception:
                logger.exception(
                    "purgatory %s: completing a delayed operation failed: %r", self.name, operation
                )
        self.purge()
        return completed

    def purge(self) -> int:
        """Drop completed operations from every watch list; returns how many entries went."""
        self._estimated_total = self.pending
        purged = 0
        for key, operations in list(self._watchers.items()):
            before = len(operations)
            operations[:] = [operation for operation in operations if not operation.is_completed]
            purged += before - len(operations)
            if not operations:
                del self._watchers[key]
        return purged

    def _try_watched(self, key: Hashable, operations: list[DelayedOperation]) -> int:
        completed = 0
        stale = False
        # A copy: completing one operation may lead back here for the same key.
        for operation in tuple(operations):
            if operation.is_completed:
                stale = True
                continue
            try:
                completed += operation.check(key)
            except Exception:
                # The change of the key belongs to another request, which must not fail because of this one.
                # The operation still has its timeout.
                stale = True
                logger.exception("purgatory %s: trying a delayed operation failed: %r", self.name, operation)
        if completed or stale:
            operations[:] = [operation for operation in operations if not operation.is_completed]
            if not operations and self._watchers.get(key) is operations:
                del self._watchers[key]
        return completed
