"""Rates are measured over Kafka's windows."""

from __future__ import annotations

import pytest

from barnabas.quota.sampled_rate import SampledRate
from barnabas.quota.token_bucket import TokenBucket

WINDOWS, WINDOW_MS = 11, 1_000


def rate() -> SampledRate:
    return SampledRate(WINDOWS, WINDOW_MS)


def test_what_was_never_recorded_has_no_rate() -> None:
    assert rate().value(5_000) == 0
    assert rate().throttle_ms(1, 5_000) == 0


def test_a_burst_counts_as_if_silence_had_gone_before_it() -> None:
    burst = rate()
    burst.record(10_000, 7_000)
    assert burst.value(7_000) == 1_000  # over the ten windows that are assumed


def test_a_steady_rate_is_measured_as_it_is() -> None:
    steady = rate()
    for now_ms in range(0, 60_000, 100):
        steady.record(50, now_ms)
    assert steady.value(60_000) == pytest.approx(500, rel=0.05)


def test_what_is_older_than_the_windows_is_forgotten() -> None:
    old = rate()
    old.record(10_000, 0)
    assert old.value(10_999) > 0
    assert old.value(11_000) == 0
    assert old.total == 0


def test_a_sample_that_reaches_into_the_windows_is_kept_whole() -> None:
    """With the time since it began: neither its amount nor its time may be forgotten alone."""
    long = rate()
    long.record(6_000, 0)
    long.record(6_000, 900)
    assert long.value(11_000) == pytest.approx(12_000 / 11)
    assert long.value(11_899) == pytest.approx(12_000 / 11.899)
    assert long.value(11_900) == 0


def test_after_the_throttle_time_the_rate_is_the_limit() -> None:
    fast = rate()
    for now_ms in range(0, 20_000, 100):
        fast.record(200, now_ms)
    wait_ms = fast.throttle_ms(1_000, 20_000)
    assert wait_ms == pytest.approx(10_000, rel=0.1)
    assert rate().throttle_ms(1_000, 0) == 0


@pytest.mark.parametrize("limit", [100, 1_000, 12_345])
def test_who_keeps_the_throttle_times_keeps_the_limit(limit: int) -> None:
    metered = rate()
    now_ms = sent = 0.0
    while now_ms < 120_000:
        metered.record(500, now_ms)
        sent += 500
        now_ms += 1 + metered.throttle_ms(limit, now_ms)
    assert sent / now_ms * 1_000 == pytest.approx(limit, rel=0.1)


@pytest.mark.parametrize("amount", [10, 50, 100])
@pytest.mark.parametrize("round_trip_ms", [1, 5])
def test_who_comes_again_when_told_gets_the_limit(amount: int, round_trip_ms: int) -> None:
    """As a consumer does: what is above the limit is not sent, and does not count."""
    limit, warm_ms, end_ms = 1_000, 12_000, 312_000
    metered = rate()
    now_ms = sent = 0.0
    while now_ms < end_ms:
        metered.record(amount, now_ms)
        throttle_ms = round(metered.throttle_ms(limit, now_ms))
        if throttle_ms:
            metered.record(-amount, now_ms)
        elif now_ms >= warm_ms:  # the burst at first is over
            sent += amount
        now_ms += round_trip_ms + throttle_ms
    assert sent / (now_ms - warm_ms) * 1_000 == pytest.approx(limit, rel=0.05)


def test_a_bucket_is_full_at_first_and_may_be_overdrawn_once() -> None:
    bucket = TokenBucket(10, 11, now_ms=0)
    assert bucket.wait_ms(0) == 0
    bucket.take(110, 0)
    assert bucket.wait_ms(0) == 0
    bucket.take(50, 0)
    assert bucket.wait_ms(0) == 5_000
    assert bucket.wait_ms(4_000) == 1_000
    assert bucket.wait_ms(5_000) == 0


def test_a_bucket_holds_no_more_than_its_burst() -> None:
    bucket = TokenBucket(10, 11, now_ms=0)
    bucket.take(111, 1_000_000)
    assert bucket.wait_ms(1_000_000) == pytest.approx(100)
