"""Waiting until this broker has heard of something from the controller."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from barnabas.cluster.metadata_cache import MetadataCache
from barnabas.core.scheduler import Scheduler


async def wait_for(
    metadata: MetadataCache,
    condition: Callable[[], bool],
    timeout_ms: float,
    scheduler: Scheduler,
    changed: asyncio.Event | None = None,
) -> bool:
    """Until the metadata fulfil `condition`, which is asked again after each change of them, and whenever
    `changed` is set; False: too late."""
    if condition():
        return True
    if timeout_ms <= 0:
        return False
    is_late = False
    changed = changed or asyncio.Event()

    def late() -> None:
        nonlocal is_late
        is_late = True
        changed.set()

    timer = scheduler.after(timeout_ms, late)
    try:
        while not is_late:
            metadata.when_changed(changed.set)
            await changed.wait()
            changed.clear()
            if condition():
                return True
    finally:
        timer.cancel()
    return False
