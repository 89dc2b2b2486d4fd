"""Values of the loop's lag and busy share."""

from __future__ import annotations

import pytest
from tests.support.manual_time import ManualClock, ManualScheduler

from barnabas.network.busy_poll import BusyPoll
from barnabas.node import process_metrics
from barnabas.node.process_metrics import PERIOD_MS, TICK_MS, LoopHealth


@pytest.fixture
def cpu_ms(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    spent = [0.0]
    monkeypatch.setattr(process_metrics, "thread_cpu_ms", lambda: spent[0])
    return spent


def health_of(clock: ManualClock) -> tuple[LoopHealth, BusyPoll]:
    busy_poll = BusyPoll(lambda _: None, clock, 0.0)
    health = LoopHealth(clock, busy_poll)
    health.start(ManualScheduler(clock))
    return health, busy_poll


def test_the_lag_is_how_late_a_tick_is_and_stays_for_a_period(cpu_ms: list[float]) -> None:
    clock = ManualClock()
    health, _ = health_of(clock)
    clock.advance(ms=TICK_MS + 40)
    health.tick()
    assert health.lag_ms == 40
    for _ in range(int(PERIOD_MS / TICK_MS)):
        clock.advance(ms=TICK_MS)
        health.tick()
    assert health.lag_ms == 40, "a scrape still sees it"
    for _ in range(int(PERIOD_MS / TICK_MS) + 1):
        clock.advance(ms=TICK_MS)
        health.tick()
    assert health.lag_ms == 0


def test_a_loop_that_stands_still_lags_already(cpu_ms: list[float]) -> None:
    clock = ManualClock()
    health, _ = health_of(clock)
    clock.advance(ms=TICK_MS + 7_000)
    assert health.lag_ms == 7_000


def test_the_busy_share_is_cpu_time_without_busy_polling(cpu_ms: list[float]) -> None:
    clock = ManualClock()
    health, busy_poll = health_of(clock)
    clock.advance(ms=4_000)
    cpu_ms[0] += 3_000
    busy_poll.looked_ms += 1_000
    assert health.busy_share == 0.5
