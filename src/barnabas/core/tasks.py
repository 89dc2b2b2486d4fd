"""Background tasks of one owner. The event loop holds only weak references to tasks, so the owner keeps them.

Tasks are cancelled in the order of their start.
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
        """Wait until the running tasks have ended. The loop logs the errors that they raise."""
        if self._running:
            await asyncio.wait(self._running)

    async def close(self) -> None:
        """Cancel the running tasks, and wait until they have ended."""
        self.cancel()
        await self.finished()
