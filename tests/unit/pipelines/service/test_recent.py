"""Rate and last errors of a pipeline."""

from __future__ import annotations

from barnabas.pipelines.service.recent import (
    ERROR_CHARACTERS_MAX,
    ERRORS_MAX,
    RATE_MS,
    REPORTS_MAX,
    PastErrors,
    Rate,
)


def test_the_rate_is_that_of_the_last_minute() -> None:
    rate = Rate()
    rate.add(0, 1_000_000)
    for second in range(60, 121):
        rate.add(second * 1_000, 50)
    assert rate.per_second(120_000, 0) == 50 * 61 / 60
    assert rate.per_second(120_000 + RATE_MS + 1, 0) == 0


def test_a_young_pipeline_is_measured_since_its_start() -> None:
    rate = Rate()
    rate.add(1_000, 500)  # before a restart
    rate.add(52_000, 100)
    assert rate.per_second(55_000, 50_000) == 20
    assert Rate().per_second(50_000, 50_000) == 0


def test_frequent_reports_shorten_the_time_that_is_measured() -> None:
    rate = Rate()
    for at in range(2 * REPORTS_MAX):
        rate.add(at * 10, 1)
    assert round(rate.per_second(2 * REPORTS_MAX * 10, 0)) == 100


def test_equal_errors_count_once_and_old_ones_go() -> None:
    errors = PastErrors()
    for at in range(3):
        errors.add(at, "no broker answers")
    (only,) = errors.newest()
    assert (only.times, only.first_ms, only.last_ms) == (3, 0, 2)
    for at in range(2 * ERRORS_MAX):
        errors.add(at, f"{at}" + "x" * 10_000)
    assert len(errors.newest()) == ERRORS_MAX
    assert errors.newest()[0].message.startswith("19x")
    assert len(errors.newest()[0].message) == ERROR_CHARACTERS_MAX
