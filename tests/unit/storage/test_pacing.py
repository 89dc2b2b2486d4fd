from __future__ import annotations

from barnabas.storage.files.pacing import BURST_MS, REST_MS, SLICE_MS, Pace, Throttle
from tests.support.manual_time import ManualClock
from tests.support.settings import broker_config


def test_a_burst_is_followed_by_a_rest() -> None:
    clock = ManualClock()
    slept: list[float] = []
    pace = Pace(clock, slept.append)
    pace.begin_slice()
    pace.breathe()
    assert slept == []
    clock.advance(BURST_MS)
    pace.breathe()
    assert slept == [REST_MS]
    pace.breathe()
    assert slept == [REST_MS], "a new burst has begun"


def test_a_slice_ends() -> None:
    clock = ManualClock()
    pace = Pace(clock, lambda _: None)
    pace.begin_slice()
    clock.advance(SLICE_MS - 1)
    assert not pace.is_slice_over
    clock.advance(1)
    assert pace.is_slice_over
    pace.begin_slice()
    assert not pace.is_slice_over


def test_bytes_are_spread_over_time() -> None:
    clock = ManualClock()
    throttle = Throttle(clock, broker_config(log_cleaner_io_max_bytes_per_second=1_000))
    assert throttle.delay_ms_for(100) == 100
    assert throttle.delay_ms_for(100) == 200
    clock.advance(150)
    assert throttle.delay_ms_for(0) == 50
    clock.advance(10_000)
    assert throttle.delay_ms_for(100) == 100, "idle time is not saved up"
