"""Waiting for a change of the metadata that the controller sends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from barnabas.cluster.metadata.cache import MetadataCache
from barnabas.core.scheduler import Scheduler
from barnabas.core.waiting import Signal


class MetadataWait:
    def __init__(self, metadata: MetadataCache, scheduler: Scheduler) -> None:
        self._metadata = metadata
        self._scheduler = scheduler
        self._waiting: dict[Signal, None] = {}

    async def until(self, condition: Callable[[], bool], timeout_ms: float) -> bool:
        """Wait until `condition` holds; returns False after `timeout_ms`.

        `condition` is evaluated again after each metadata change and after `look_again`.
        """
        if condition():
            return True
        if timeout_ms <= 0:
            return False
        is_late = False

        def late() -> None:
            nonlocal is_late
            is_late = True
            changed.set()

        with self.signal() as changed:
            timer = self._scheduler.after(timeout_ms, late)
            try:
                while not is_late:
                    self._metadata.when_changed(changed.set)
                    await changed.wait()
                    if condition():
                        return True
            finally:
                timer.cancel()
        return False

    @contextmanager
    def signal(self) -> Iterator[Signal]:
        """Yield a signal that `look_again` also sets."""
        signal = Signal()
        self._waiting[signal] = None
        try:
            yield signal
        finally:
            del self._waiting[signal]

    def look_again(self) -> None:
        """Evaluate all conditions again, because something other than the metadata has changed."""
        for signal in self._waiting:
            signal.set()
