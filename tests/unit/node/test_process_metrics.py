"""Values of the loop's lag and busy share, and of garbage collections."""

from __future__ import annotations

import gc

import pytest
from tests.support.manual_time import ManualClock, ManualScheduler

from barnabas.core.reporting.metrics import Metrics, render_prometheus
from barnabas.network.busy_poll import BusyPoll
from barnabas.node import process_metrics
from barnabas.node.process_metrics import (
    PERIOD_MS,
    TICK_MS,
    LoopHealth,
    register_loop_metrics,
    register_process_metrics,
)


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


def test_the_page_has_the_lag_and_the_busy_share(cpu_ms: list[float]) -> None:
    clock, metrics = ManualClock(), Metrics()
    health, _ = health_of(clock)
    register_loop_metrics(metrics, health)
    clock.advance(ms=TICK_MS + 7_000)
    cpu_ms[0] += (TICK_MS + 7_000) / 4
    text = render_prometheus(metrics)
    assert "barnabas_loop_lag_ms 7000\n" in text
    assert "barnabas_loop_busy_share 0.25\n" in text


def test_the_page_counts_garbage_collections() -> None:
    metrics = Metrics()
    register_process_metrics(metrics)
    gc.disable()
    try:
        gc.collect()
        shown = f'python_gc_collections_total{{generation="2"}} {gc.get_stats()[2]["collections"]}\n'
        assert shown in render_prometheus(metrics)
    finally:
        gc.enable()
