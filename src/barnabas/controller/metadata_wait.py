"""Waiting until this broker has heard of something from the controller."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from barnabas.cluster.metadata_cache import MetadataCache
from barnabas.core.scheduler import Scheduler
from barnabas.core.waiting import Runner, Signal


class MetadataWait:
    def __init__(self, metadata: MetadataCache, scheduler: Scheduler, runner: Runner) -> None:
        self._metadata = metadata
        self._scheduler = scheduler
        self._runner = runner
        self._waiting: dict[Signal, None] = {}

    async def until(self, condition: Callable[[], bool], timeout_ms: float) -> bool:
        """Until the metadata fulfil `condition`, which is asked again after each change of them, and by
        `look_again`; False: too late."""
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
        """One that `look_again` sets as well."""
        signal = Signal(self._runner)
        self._waiting[signal] = None
        try:
            yield signal
        finally:
            del self._waiting[signal]

    def look_again(self) -> None:
        """Something else has changed that conditions look at."""
        for signal in self._waiting:
            signal.set()
