"""Tasks that nobody awaits. The event loop refers to a task only weakly, so somebody has to keep it.

They are kept, and cancelled, in the order in which they were started.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


class Tasks:
    def __init__(self) -> None:
        self._running: dict[asyncio.Task[None], None] = {}

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        self.keep(asyncio.get_running_loop().create_task(work))

    def keep(self, task: asyncio.Task[None]) -> None:
        self._running[task] = None
        task.add_done_callback(self._ended)

    def __len__(self) -> int:
        return len(self._running)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.pop(task, None)

    def cancel(self) -> None:
        for task in list(self._running):
            task.cancel()

    async def finished(self) -> None:
        """Wait for those that run now, however they end; what one of them raises, the loop logs."""
        if self._running:
            await asyncio.wait(self._running)

    async def close(self) -> None:
        """Cancel those that run now, and wait until they have ended."""
        self.cancel()
        await self.finished()
