"""Signals, locks, deadlines and work off the loop, with a clock that is moved by hand."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.manual_time import ManualClock, ManualScheduler

from barnabas.core.scheduler import InlineBackground
from barnabas.core.waiting import Lock, Signal, elsewhere, gather, turn_over, within


class Time:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.scheduler = ManualScheduler(self.clock)

    async def advance(self, ms: float) -> None:
        for _ in range(5):
            await asyncio.sleep(0)
        self.clock.advance(ms)
        self.scheduler.run_due()
        for _ in range(5):
            await asyncio.sleep(0)


async def test_a_signal_wakes_its_waiters_and_can_be_waited_for_again() -> None:
    signal = Signal()
    signal.set()
    signal.set()
    await signal.wait()
    waiting = asyncio.ensure_future(signal.wait())
    await asyncio.sleep(0)
    assert not waiting.done()
    signal.set()
    await waiting


async def test_a_wait_ends_with_its_time() -> None:
    time = Time()
    waiting = asyncio.ensure_future(Signal().wait_at_most(100, time.scheduler))
    await time.advance(99)
    assert not waiting.done()
    await time.advance(1)
    assert waiting.done()


async def test_work_that_is_done_in_time() -> None:
    done = []

    async def work() -> None:
        await asyncio.sleep(0)
        done.append(True)

    assert await within(100, work(), Time().scheduler)
    assert done == [True]


async def test_what_work_raises_is_raised() -> None:
    async def work() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await within(100, work(), Time().scheduler)


async def test_work_that_takes_too_long_is_given_up() -> None:
    time = Time()
    ends: list[str] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ends.append("given up")

    waiting = asyncio.ensure_future(within(100, work(), time.scheduler))
    await time.advance(99)
    assert not waiting.done()
    await time.advance(1)
    assert await waiting is False
    assert ends == ["given up"]


async def test_works_run_beside_each_other_and_their_outcomes_are_in_order() -> None:
    gate = asyncio.Event()

    async def first() -> int:
        await gate.wait()
        return 1

    async def second() -> int:
        gate.set()
        return 2

    assert await gather([first(), second()]) == [1, 2]
    assert await gather([]) == []


async def test_one_error_is_raised_when_all_are_over() -> None:
    ended = []

    async def fail() -> None:
        raise ValueError("no")

    async def go_on() -> None:
        await asyncio.sleep(0)
        ended.append(True)

    with pytest.raises(ValueError, match="no"):
        await gather([fail(), go_on()])
    assert ended == [True]


async def test_a_cancelled_task_takes_its_works_along() -> None:
    ended = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    waiting = asyncio.ensure_future(gather([work(), work()]))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert ended == [True, True]


async def test_a_lock_is_held_by_one_at_a_time_in_the_order_of_asking() -> None:
    lock, inside, order = Lock(), [0], list[int]()

    async def hold(place: int) -> None:
        async with lock:
            inside[0] += 1
            await asyncio.sleep(0)
            assert inside == [1]
            order.append(place)
            inside[0] -= 1

    await asyncio.gather(*map(hold, range(5)))
    assert order == [0, 1, 2, 3, 4]
    await hold(5)


@pytest.mark.parametrize("is_released_first", [False, True])
async def test_a_task_that_is_cancelled_while_it_waits_does_not_keep_the_lock(
    is_released_first: bool,
) -> None:
    lock = Lock()

    async def hold() -> None:
        async with lock:
            pass

    async with lock:
        waiting = [asyncio.ensure_future(hold()) for _ in range(3)]
        await turn_over()
        if not is_released_first:
            waiting[0].cancel()
    waiting[0].cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting[0]
    await asyncio.wait_for(asyncio.gather(*waiting[1:], hold()), 5)


async def test_when_a_turn_is_over_everybody_has_run_who_could() -> None:
    ran = []

    async def run() -> None:
        ran.append(True)

    others = [asyncio.ensure_future(run()) for _ in range(3)]
    await turn_over()
    assert len(ran) == len(others)


async def test_what_is_done_elsewhere_comes_back_or_its_error() -> None:
    def fail() -> None:
        raise ValueError("no")

    assert await elsewhere(lambda: 7, InlineBackground()) == 7
    with pytest.raises(ValueError, match="no"):
        await elsewhere(fail, InlineBackground())


async def test_what_comes_back_without_a_waiter_is_dropped() -> None:
    class Later:
        def submit(self, work: Any, then: Any, failed: Any) -> None:
            asyncio.get_running_loop().call_later(0.01, then, None)

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(elsewhere(lambda: None, Later()), 0)
    await asyncio.sleep(0.02)
