"""Background loop of the synchronous clients."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator

import pytest

from barnabas.client.core.client_errors import IllegalState
from barnabas.client.sync.loop_thread import LoopThread


@pytest.fixture
def thread() -> Iterator[LoopThread]:
    started = LoopThread("test-loop")
    yield started
    started.stop()


def test_coroutines_run_on_one_loop_in_a_daemon_thread(thread: LoopThread) -> None:
    async def where() -> tuple[str, bool, asyncio.AbstractEventLoop]:
        current = threading.current_thread()
        return current.name, current.daemon, asyncio.get_running_loop()

    first, second = thread.run(where()), thread.run(where())
    assert first == second == ("test-loop", True, thread.loop)


def test_errors_reach_the_caller(thread: LoopThread) -> None:
    async def fail() -> None:
        raise ValueError("reason")

    with pytest.raises(ValueError, match="reason"):
        thread.run(fail())


def test_a_call_on_the_loop_itself_is_refused_instead_of_a_deadlock(thread: LoopThread) -> None:
    async def inner() -> None: ...

    async def outer() -> None:
        thread.run(inner())

    with pytest.raises(IllegalState, match="own loop"):
        thread.run(outer())


def test_a_caller_that_is_interrupted_cancels_its_coroutine(thread: LoopThread) -> None:
    started, cancelled = threading.Event(), threading.Event()

    async def wait() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    future = thread.submit(wait())
    assert started.wait(10)
    future.cancel()
    assert cancelled.wait(10)


def test_a_forked_child_starts_a_thread_of_its_own() -> None:
    from barnabas.client.sync.loop_thread import SHARED

    async def pid() -> int:
        return os.getpid()

    assert SHARED.run(pid()) == os.getpid()
    of_parent = SHARED.runner()
    try:
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            ok = SHARED.run(pid()) == os.getpid()
            try:
                of_parent.run(pid())
            except IllegalState as error:
                ok = ok and "after a fork" in str(error)
            else:
                ok = False
            os.write(write, b"1" if ok else b"0")
            os._exit(0)
        assert os.read(read, 1) == b"1"
        os.waitpid(child, 0)
        os.close(read)
        os.close(write)
    finally:
        SHARED.stop()
