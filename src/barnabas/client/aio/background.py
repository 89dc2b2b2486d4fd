"""Background tasks whose unexpected end reaches the client that started them.

A task keeps its exception until it is collected, which only writes a line to the log. A client whose task has
ended waits for records that never come, so each task has a callback for its failure.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

OnFailure: TypeAlias = Callable[[BaseException], None]


def background_task(work: Coroutine[Any, Any, None], on_failure: OnFailure) -> asyncio.Task[None]:
    """Start a task. `on_failure` receives the exception that ends it, unless the task is cancelled."""

    def ended(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            on_failure(error)

    task = asyncio.get_running_loop().create_task(work)
    task.add_done_callback(ended)
    return task
