"""Background thread with the event loop of all synchronous clients of a process.

`run(coroutine)` runs a coroutine there and waits for its result. A caller that is interrupted (Ctrl-C)
cancels its coroutine, so that nothing goes on without a caller.

The thread starts with the first call, and is a daemon: a program that forgets to close a client still ends.
A forked child has no copy of the thread, so it starts another. Clients of the parent have their connections
and timers on the parent's loop: their `Runner` refuses calls in the child.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from barnabas.client.core.client_errors import IllegalState

T = TypeVar("T")


class LoopThread:
    def __init__(self, name: str = "barnabas-client") -> None:
        self._name = name
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self.generation = 0
        """Grows with each fork and stop: clients of an earlier loop are of no use."""

    def runner(self) -> Runner:
        """Runner for one client."""
        return Runner(self)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop; returns its result or raises its error."""
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise IllegalState("a synchronous client was called on the clients' own loop")
        future = self.submit(coroutine)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine on the loop, without a wait."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    def call_soon(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.loop.call_soon_threadsafe(function, *arguments)

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop, started by the first use."""
        loop = self._loop
        if loop is None:
            with self._lock:
                loop = self._loop or self._start()
        return loop

    def stop(self) -> None:
        """End the thread. Only tests need it: a daemon thread ends with its process."""
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
            self.generation += 1
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()

    def forget(self) -> None:
        """Forget the thread in a forked child, which has no copy of it."""
        self._lock = threading.Lock()
        self._loop = self._thread = None
        self.generation += 1

    def _start(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.new_event_loop()

        def serve() -> None:
            asyncio.set_event_loop(loop)
            try:
                loop.run_forever()
            finally:
                loop.close()

        self._thread = threading.Thread(target=serve, name=self._name, daemon=True)
        self._thread.start()
        self._loop = loop
        return loop


class Runner:
    """Runs the coroutines of one client, on the loop on which it was made."""

    def __init__(self, thread: LoopThread) -> None:
        self._thread = thread
        self._generation = thread.generation

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        if self._thread.generation != self._generation:
            coroutine.close()
            raise IllegalState("this client belongs to the parent process: make another one after a fork")
        return self._thread.run(coroutine)


SHARED = LoopThread()
"""Loop of all synchronous clients of this process."""

os.register_at_fork(after_in_child=SHARED.forget)
