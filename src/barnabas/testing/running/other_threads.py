"""Calls from the thread of a test to the loop of a broker or of the store.

Two calls would wait for ever, and are refused. In a forked process no loop runs: a fork copies no threads.
And a loop cannot wait for itself, so a function of a fault rule cannot ask its own broker.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError
from typing import TypeVar

T = TypeVar("T")


class KitThread(threading.Thread):
    """Thread of a broker or of the store, with a loop."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.process = os.getpid()


def check_process(name: str, process: int) -> None:
    """Raise RuntimeError in a forked process."""
    if os.getpid() != process:
        raise RuntimeError(f"{name} runs in the process that forked this one, which knows its address alone")


def check_other_loop(name: str, loop: asyncio.AbstractEventLoop) -> None:
    """Raise RuntimeError on the loop itself."""
    try:
        is_same = asyncio.get_running_loop() is loop
    except RuntimeError:
        return
    if is_same:
        raise RuntimeError(f"a function of a fault rule runs on the loop of {name}, and must not wait for it")


def ask(
    thread: KitThread,
    loop: asyncio.AbstractEventLoop,
    question: Callable[[], Awaitable[T]],
    timeout_s: float | None = None,
) -> T:
    """Run a coroutine on the loop of a thread, and wait for it."""
    check_process(thread.name, thread.process)
    check_other_loop(thread.name, loop)

    async def run() -> T:
        return await question()

    try:
        return asyncio.run_coroutine_threadsafe(run(), loop).result(timeout_s)
    except CancelledError:
        raise RuntimeError(f"{thread.name} ended before it answered") from None
