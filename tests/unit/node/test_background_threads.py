"""Background threads deliver every outcome, also when the system refuses threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from barnabas.node import background_threads
from barnabas.node.background_threads import ThreadBackground

TIMEOUT_S = 30.0


class Limit:
    """The number of threads that may still be started."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = 1_000
        start = threading.Thread.start

        def limited(thread: threading.Thread) -> None:
            if thread.name == "background":
                if not self.left:
                    raise RuntimeError("can't start new thread")
                self.left -= 1
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", limited)
        monkeypatch.setattr(background_threads, "START_RETRY_S", 0.001)


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> Limit:
    return Limit(monkeypatch)


def submitted(background: ThreadBackground, work: Callable[[], object]) -> asyncio.Future[object]:
    outcome = asyncio.get_running_loop().create_future()
    background.submit(work, outcome.set_result, outcome.set_exception)
    return outcome


async def test_work_gets_its_outcome() -> None:
    background = ThreadBackground(asyncio.get_running_loop(), 2)

    def fail() -> None:
        raise OSError("a disk")

    done, failed = submitted(background, threading.get_ident), submitted(background, fail)
    assert await asyncio.wait_for(done, TIMEOUT_S) != threading.get_ident()
    with pytest.raises(OSError, match="a disk"):
        await asyncio.wait_for(failed, TIMEOUT_S)
    await background.close()


async def test_work_waits_until_a_thread_can_be_started(
    limit: Limit, caplog: pytest.LogCaptureFixture
) -> None:
    background = ThreadBackground(asyncio.get_running_loop(), 4)
    limit.left = 0
    outcomes = [submitted(background, lambda number=number: number) for number in range(3)]  # type: ignore[misc]
    await asyncio.sleep(0.01)
    assert not any(outcome.done() for outcome in outcomes)
    assert "cannot start a thread (can't start new thread)" in caplog.text
    limit.left = 1
    assert await asyncio.wait_for(asyncio.gather(*outcomes), TIMEOUT_S) == [0, 1, 2]
    await background.close()


async def test_one_thread_does_the_work_of_those_that_could_not_be_started(limit: Limit) -> None:
    background = ThreadBackground(asyncio.get_running_loop(), 4)
    limit.left = 1
    gate = threading.Event()
    first = submitted(background, lambda: gate.wait(TIMEOUT_S))
    second = submitted(background, lambda: "second")
    assert not second.done()
    gate.set()
    assert await asyncio.wait_for(second, TIMEOUT_S) == "second"
    assert await first is True
    await background.close()


async def test_the_end_does_what_no_thread_did(limit: Limit) -> None:
    background = ThreadBackground(asyncio.get_running_loop(), 4)
    limit.left = 0
    outcome = submitted(background, lambda: "done")
    await background.close()
    assert outcome.result() == "done"
    with pytest.raises(RuntimeError, match="have ended"):
        submitted(background, lambda: None)


async def test_no_more_threads_than_allowed() -> None:
    background = ThreadBackground(asyncio.get_running_loop(), 3)
    gate, at_work = threading.Event(), threading.Semaphore(0)

    def work() -> None:
        at_work.release()
        gate.wait(TIMEOUT_S)

    outcomes = [submitted(background, work) for _ in range(8)]
    for _ in range(3):
        assert await asyncio.to_thread(at_work.acquire, timeout=TIMEOUT_S)
    assert not at_work.acquire(blocking=False)
    background.resize(4)
    outcomes.append(submitted(background, work))
    assert await asyncio.to_thread(at_work.acquire, timeout=TIMEOUT_S)
    assert not at_work.acquire(blocking=False)
    background.resize(1)
    gate.set()
    await asyncio.wait_for(asyncio.gather(*outcomes), TIMEOUT_S)
    assert background.threads == 1
    await background.close()


async def test_threads_are_used_again() -> None:
    background = ThreadBackground(asyncio.get_running_loop(), 8)
    seen = {await submitted(background, threading.get_ident) for _ in range(20)}
    assert len(seen) == 1
    await background.close()


async def test_the_end_waits_for_work_under_way() -> None:
    background = ThreadBackground(asyncio.get_running_loop(), 2)
    gate = threading.Event()
    outcome = submitted(background, lambda: gate.wait(TIMEOUT_S))
    closing = asyncio.create_task(background.close())
    await asyncio.sleep(0)
    assert not closing.done()
    gate.set()
    await closing
    assert outcome.result() is True
