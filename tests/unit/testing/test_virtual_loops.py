"""Jumps through time with several loops: timers run in their order, each at its own moment."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from barnabas.testing.running.virtual_time import VirtualClock, VirtualLoop, VirtualTime


@contextmanager
def loops(clock: VirtualClock, count: int) -> Iterator[list[VirtualLoop]]:
    running = [VirtualLoop(clock) for _ in range(count)]
    threads = [threading.Thread(target=each.run_forever) for each in running]
    for each in threads:
        each.start()
    try:
        yield running
    finally:
        for loop, thread in zip(running, threads, strict=True):
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()


def on(loop: VirtualLoop, work: Callable[[], object]) -> None:
    async def run() -> None:
        work()

    asyncio.run_coroutine_threadsafe(run(), loop).result()


def test_timers_of_several_loops_run_in_their_order_at_their_moments() -> None:
    clock = VirtualClock()
    began_ms = clock.monotonic_ms()
    ran: list[tuple[int, int]] = []
    with loops(clock, 3) as running:

        def repeat(number: int, loop: VirtualLoop, period_s: int) -> None:
            def tick() -> None:
                ran.append((number, round((clock.monotonic_ms() - began_ms) / 1_000)))
                loop.call_later(period_s, tick)

            loop.call_later(period_s, tick)

        for number, period_s in enumerate((60, 100, 90)):
            on(running[number], lambda n=number, p=period_s: repeat(n, running[n], p))  # type: ignore[misc]
        VirtualTime(clock, lambda: running).advance("650s")
    wanted = [
        (number, at) for number, period in enumerate((60, 100, 90)) for at in range(period, 651, period)
    ]
    assert sorted(ran) == sorted(wanted)
    assert [at for _, at in ran] == sorted(at for _, at in wanted)


def test_a_jump_waits_for_the_threads_that_a_timer_keeps_busy() -> None:
    clock = VirtualClock()
    done: list[float] = []
    with loops(clock, 1) as running:
        background = running[0].threads(running[0], 1)

        def write() -> None:
            background.submit(lambda: time.sleep(0.05), lambda _: done.append(clock.monotonic_ms()), print)

        on(running[0], lambda: running[0].call_later(60, write))
        began_ms = clock.monotonic_ms()
        VirtualTime(clock, lambda: running).advance("2h")
        assert len(done) == 1
        assert done[0] - began_ms < 120_000, "time waited for the write"
        asyncio.run_coroutine_threadsafe(background.close(), running[0]).result()


def test_jumps_of_several_threads_add_up() -> None:
    clock = VirtualClock()
    began_ms = clock.monotonic_ms()
    with loops(clock, 3) as running:
        passed = VirtualTime(clock, lambda: running)

        def tick(loop: VirtualLoop) -> None:
            loop.call_later(1, tick, loop)

        for each in running:
            on(each, lambda loop=each: tick(loop))  # type: ignore[misc]
        jumps = [threading.Thread(target=passed.advance, args=("1m",)) for _ in range(4)]
        for jump in jumps:
            jump.start()
        for jump in jumps:
            jump.join()
    assert clock.monotonic_ms() - began_ms >= 240_000


async def test_a_loop_does_not_wait_for_its_own_jump() -> None:
    refused: list[str] = []
    clock = VirtualClock()
    with loops(clock, 1) as running:

        def advance() -> None:
            with pytest.raises(RuntimeError, match="must not wait for it") as error:
                VirtualTime(clock, lambda: running).advance("1s")
            refused.append(str(error.value))

        on(running[0], advance)
    assert len(refused) == 1


def test_time_passes_for_brokers_that_do_not_run() -> None:
    clock = VirtualClock()
    began_ms = clock.monotonic_ms()
    VirtualTime(clock, list).advance("1h")
    assert clock.monotonic_ms() - began_ms >= 3_600_000
