from __future__ import annotations

import random

import pytest
from tests.support.manual_time import ManualClock

from barnabas.core.limits import TURN_MS_MAX
from barnabas.purgatory.timer import Timer
from barnabas.purgatory.timing_wheel import TimerTask, TimingWheel


class Recorder(TimerTask):
    def __init__(self, delay_ms: float, ran: list[float], clock: ManualClock) -> None:
        super().__init__(delay_ms)
        self.ran = ran
        self.clock = clock

    def run(self) -> None:
        self.ran.append(self.clock.monotonic_ms())


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def level(timer: Timer, number: int) -> TimingWheel:
    wheel = timer._wheel
    for _ in range(number - 1):
        assert wheel.overflow is not None
        wheel = wheel.overflow
    return wheel


def slots(wheel: TimingWheel) -> list[int]:
    return [slot for slot, bucket in enumerate(wheel.buckets) if not bucket.is_empty]


def test_a_task_of_350_ms_sits_in_slot_17_of_the_second_wheel_and_drops_at_340(clock: ManualClock) -> None:
    timer = Timer(clock)
    ran: list[float] = []
    timer.add(Recorder(350, ran, clock))
    assert slots(level(timer, 1)) == []
    assert slots(level(timer, 2)) == [17]
    assert timer.next_expiry_ms() == 340

    clock.advance(ms=339)
    timer.advance()
    assert slots(level(timer, 2)) == [17]

    clock.advance(ms=1)
    timer.advance()
    assert slots(level(timer, 2)) == []
    assert slots(level(timer, 1)) == [10]
    assert timer.next_expiry_ms() == 350
    assert ran == []

    clock.advance(ms=10)
    timer.advance()
    assert ran == [350]
    assert timer.next_expiry_ms() is None


def test_wheels_are_made_when_needed_and_start_at_the_lower_wheels_present(clock: ManualClock) -> None:
    clock.advance(ms=1_234)
    timer = Timer(clock)
    timer.add(Recorder(5, [], clock))
    assert timer._wheel.overflow is None
    timer.add(Recorder(30, [], clock))
    second = level(timer, 2)
    assert second.overflow is None
    assert (second.tick_ms, second.interval_ms, second.current_ms) == (20, 400, 1_220)
    timer.add(Recorder(500, [], clock))
    assert (level(timer, 3).tick_ms, level(timer, 3).current_ms) == (400, 1_200)


def test_a_cancelled_task_does_not_run_and_leaves_no_wake_behind(clock: ManualClock) -> None:
    timer = Timer(clock)
    ran: list[float] = []
    task = Recorder(10, ran, clock)
    timer.add(task)
    assert timer.pending == 1
    task.cancel()
    task.cancel()
    assert timer.pending == 0
    assert timer.next_expiry_ms() is None
    clock.advance(ms=50)
    assert timer.advance() == 0
    assert ran == []


def test_a_task_never_runs_early(clock: ManualClock) -> None:
    clock.advance(ms=0.9)
    timer = Timer(clock)
    ran: list[float] = []
    timer.add(Recorder(10.3, ran, clock))
    clock.advance(ms=10.2)
    timer.advance()
    assert ran == []
    clock.advance(ms=0.9)
    timer.advance()
    assert len(ran) == 1


def test_a_task_without_delay_runs_in_the_next_advance_not_in_add(clock: ManualClock) -> None:
    timer = Timer(clock)
    ran: list[float] = []
    timer.add(Recorder(0, ran, clock))
    assert ran == []
    assert timer.next_expiry_ms() == 0
    timer.advance()
    assert ran == [0]


def test_a_late_driver_runs_everything_due_in_order(clock: ManualClock) -> None:
    timer = Timer(clock)
    order: list[int] = []

    class Numbered(TimerTask):
        def run(self) -> None:
            order.append(self.expiration_ms)

    for delay_ms in (350, 3, 9_000, 345, 20, 19, 401, 8_001):
        timer.add(Numbered(delay_ms))
    clock.advance(ms=10_000)
    assert timer.advance() == 8
    assert order == [3, 19, 20, 345, 350, 401, 8_001, 9_000]
    assert timer.pending == 0


def test_a_timer_that_slept_for_long_uses_the_finest_wheel_again(clock: ManualClock) -> None:
    timer = Timer(clock)
    clock.advance(ms=3_600_000)
    ran: list[float] = []
    timer.add(Recorder(7, ran, clock))
    assert timer._wheel.overflow is None
    assert timer.next_expiry_ms() == 3_600_007


def test_a_short_task_beside_a_long_one_lands_in_the_finest_wheel(clock: ManualClock) -> None:
    timer = Timer(clock)
    timer.add(Recorder(100_000_000, [], clock))
    clock.advance(ms=1_000)
    timer.advance()
    timer.add(Recorder(7, [], clock))
    assert slots(timer._wheel) == [1_007 % 20]


def test_a_task_may_cancel_and_add_others_while_the_due_ones_run(clock: ManualClock) -> None:
    timer = Timer(clock)
    ran: list[float] = []
    victim = Recorder(5, ran, clock)
    successor = Recorder(20, ran, clock)

    class Meddler(TimerTask):
        def run(self) -> None:
            victim.cancel()
            timer.add(successor)

    timer.add(Meddler(5))
    timer.add(victim)
    clock.advance(ms=5)
    assert timer.advance() == 1
    assert ran == []
    clock.advance(ms=20)
    timer.advance()
    assert ran == [25]


def test_a_failing_task_does_not_keep_the_others_from_running(clock: ManualClock) -> None:
    timer = Timer(clock)
    ran: list[float] = []

    class Failing(TimerTask):
        def run(self) -> None:
            raise RuntimeError("broken")

    timer.add(Failing(1))
    timer.add(Recorder(1, ran, clock))
    clock.advance(ms=1)
    assert timer.advance() == 2
    assert ran == [1]


def test_the_driver_is_woken_only_when_the_next_expiry_moves_nearer(clock: ManualClock) -> None:
    woken: list[float] = []
    timer = Timer(clock, wake=woken.append)
    for delay_ms in (500, 600, 510, 30, 31, 4):
        timer.add(Recorder(delay_ms, [], clock))
    assert woken == [400, 20, 4]


def test_the_queue_holds_buckets_not_tasks(clock: ManualClock) -> None:
    timer = Timer(clock)
    for number in range(5_000):
        timer.add(Recorder(1 + number % 8_000, [], clock))
    assert len(timer._wheel.queue) <= 60
    assert timer.pending == 5_000


def test_a_task_that_is_always_due_runs_once_in_each_advance(clock: ManualClock) -> None:
    timer = Timer(clock)
    ran: list[float] = []

    class Again(TimerTask):
        def run(self) -> None:
            ran.append(self.expiration_ms)
            timer.add(Again(-(1 << 31)))

    timer.add(Again(0))
    assert timer.advance() == 1
    assert timer.pending == 1
    assert timer.next_expiry_ms() == 0
    timer.add(Recorder(0, [], clock))
    assert timer.advance() == 2
    assert len(ran) == 2


def test_a_crowd_that_is_due_together_shares_turns_of_the_loop_in_order(clock: ManualClock) -> None:
    timer = Timer(clock)
    order: list[int] = []

    class Slow(TimerTask):
        def __init__(self, number: int) -> None:
            super().__init__(1)
            self.number = number

        def run(self) -> None:
            order.append(self.number)
            clock.advance(ms=TURN_MS_MAX / 2)

    crowd = [Slow(number) for number in range(10)]
    for task in crowd:
        timer.add(task)
    clock.advance(ms=1)
    assert timer.advance() == 3
    crowd[3].cancel()
    timer.add(Recorder(0, [], clock))
    assert timer.pending == 7
    while timer.pending:
        assert timer.next_expiry_ms() == clock.monotonic_ms()
        assert timer.advance() <= 4
    assert order == [0, 1, 2, 4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize("seed", range(20))
def test_random_adds_cancels_and_sleeps_agree_with_a_sorted_list(seed: int) -> None:
    chance = random.Random(seed)
    clock = ManualClock()
    clock.advance(ms=chance.uniform(0, 1_000_000))
    timer = Timer(clock)
    expected: dict[int, TimerTask] = {}
    ran: list[int] = []

    class Numbered(TimerTask):
        def __init__(self, delay_ms: float, number: int) -> None:
            super().__init__(delay_ms)
            self.number = number

        def run(self) -> None:
            assert self.expiration_ms <= clock.monotonic_ms()
            del expected[self.number]
            ran.append(self.number)

    for number in range(600):
        action = chance.random()
        if action < 0.6:
            task = Numbered(chance.choice([1, 20, 400, 8_000, 200_000]) * chance.random() * 1.5, number)
            expected[number] = task
            timer.add(task)
        elif action < 0.75 and expected:
            expected.pop(chance.choice(list(expected))).cancel()
        else:
            clock.advance(ms=chance.choice([0, 0.4, 1, 19, 20, 21, 399, 400, 5_000]) * chance.random() * 2)
            timer.advance()
            overdue = [t for t in expected.values() if t.expiration_ms <= int(clock.monotonic_ms())]
            assert overdue == []
        assert timer.pending == len(expected)
        next_ms = timer.next_expiry_ms()
        if expected:
            assert next_ms is not None
            earliest_ms = min(task.expiration_ms for task in expected.values())
            assert next_ms <= max(earliest_ms, clock.monotonic_ms())
        else:
            assert next_ms is None
    clock.advance(ms=400_000)
    timer.advance()
    assert expected == {}
