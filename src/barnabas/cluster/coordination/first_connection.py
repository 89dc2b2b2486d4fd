"""First connection of a session: a start that waits for its store names it in the log."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

logger = logging.getLogger(__name__)

ANNOUNCE_S = 4.0
"""Pause between two lines: no start is silent for five seconds."""


async def connected_within(connected: asyncio.Event, timeout_ms: float, store: str) -> None:
    """Wait until `connected` is set; TimeoutError after `timeout_ms`."""
    async with asyncio.timeout(timeout_ms / 1_000):
        while not connected.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(ANNOUNCE_S):
                    await connected.wait()
                    return
            logger.info("waiting for %s", store)
