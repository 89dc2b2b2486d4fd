"""The timing wheel's growth: cost of one insert and one cancel with 10^4 and with 10^6 tasks pending.

Each round adds `BATCH` tasks to a timer that already holds N and cancels them again; delays are spread
over half a minute. Rounds of the sizes alternate, medians are printed. Also: tasks that all expire, and
operations through the purgatory.
"""

from __future__ import annotations

import gc
import random
import statistics
import time

from tests.support.manual_time import ManualClock

from barnabas.core.reporting.metrics import Metrics
from barnabas.purgatory.purgatory import DelayedOperation, Purgatory
from barnabas.purgatory.timer import Timer
from barnabas.purgatory.timing_wheel import TimerTask

SIZES = (10_000, 100_000, 1_000_000)
BATCH = 10_000
ROUNDS = 15


class Task(TimerTask):
    __slots__ = ()

    def run(self) -> None:
        pass


class Wait(DelayedOperation):
    __slots__ = ()

    def try_complete(self) -> bool:
        return False

    def on_complete(self) -> None:
        pass


def delays(count: int, seed: int) -> list[float]:
    chance = random.Random(seed)
    return [chance.uniform(1, 30_000) for _ in range(count)]


def filled(size: int) -> tuple[Timer, list[TimerTask]]:
    timer = Timer(ManualClock())
    tasks: list[TimerTask] = [Task(delay_ms) for delay_ms in delays(size, 1)]
    for task in tasks:
        timer.add(task)
    return timer, tasks


def one_round(timer: Timer, seed: int) -> tuple[float, float]:
    tasks = [Task(delay_ms) for delay_ms in delays(BATCH, seed)]
    began = time.perf_counter()
    for task in tasks:
        timer.add(task)
    added = time.perf_counter()
    for task in tasks:
        task.cancel()
    ended = time.perf_counter()
    return (added - began) / BATCH * 1e9, (ended - added) / BATCH * 1e9


def wheel() -> None:
    timers = {size: filled(size) for size in SIZES}
    found: dict[int, list[tuple[float, float]]] = {size: [] for size in SIZES}
    for turn in range(ROUNDS):
        for size in SIZES:
            found[size].append(one_round(timers[size][0], turn))
    for size in SIZES:
        insert, cancel = (statistics.median(column) for column in zip(*found[size], strict=True))
        print(f"pending {size:>9,}: insert {insert:6.0f} ns, cancel {cancel:6.0f} ns")


def expiry(size: int) -> None:
    clock = ManualClock()
    timer = Timer(clock)
    for delay_ms in delays(size, 3):
        timer.add(Task(delay_ms))
    began = time.perf_counter()
    wakes = 0
    while (next_ms := timer.next_expiry_ms()) is not None:
        clock.advance(max(0.0, next_ms - clock.monotonic_ms()))
        timer.advance()
        wakes += 1
    took = time.perf_counter() - began
    print(f"expire  {size:>9,}: {took / size * 1e9:6.0f} ns a task, {wakes:,} wakes")


def purgatory(size: int) -> None:
    pool = Purgatory("bench", Timer(ManualClock()), Metrics(), 1_000)
    for index in range(size):
        pool.try_complete_else_watch(Wait(500), [("topic", index % 1_000)])
    operations = [Wait(500) for _ in range(BATCH)]
    began = time.perf_counter()
    for index, operation in enumerate(operations):
        pool.try_complete_else_watch(operation, [("topic", index % 1_000)])
    watched = time.perf_counter()
    for operation in operations:
        operation.force_complete()
    done = time.perf_counter()
    for _ in range(100_000):
        pool.check_and_complete(("topic", -1))
    idle = time.perf_counter()
    print(
        f"purgatory {size:>7,}: watch {(watched - began) / BATCH * 1e9:6.0f} ns, "
        f"complete {(done - watched) / BATCH * 1e9:6.0f} ns, idle key {(idle - done) / 1e5 * 1e9:4.0f} ns"
    )


if __name__ == "__main__":
    gc.disable()
    wheel()
    expiry(100_000)
    purgatory(10_000)
    purgatory(100_000)
