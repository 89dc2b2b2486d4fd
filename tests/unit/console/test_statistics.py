"""Figures of many records."""

from __future__ import annotations

from barnabas.console.records.expression import Candidate
from barnabas.console.records.statistics import PERIODS, Statistics


def record(
    offset: int, key: bytes | None, value: bytes | None, at_ms: int = 0, partition: int = 0
) -> Candidate:
    return Candidate(partition, offset, at_ms, key, value, ())


def test_sizes_keys_and_times() -> None:
    statistics = Statistics(1_000)
    for number in range(100):
        key = None if number == 7 else b"ab"[number % 2 :][:1]
        statistics(record(number, key, None if number == 8 else b"x" * number, 1_000 * number, number % 3))
    found = statistics.figures()
    assert (found.records, found.null_keys, found.null_values, found.distinct_keys) == (100, 1, 1, 2)
    assert found.values is not None
    assert (found.values.least, found.values.most, found.values.count) == (0, 99, 99)
    assert found.values.median == 50
    assert found.largest == (0, 99)
    assert [(each.key, each.records) for each in found.top_keys] == [(b"a", 50), (b"b", 49)]
    assert found.by_partition == ((0, 34), (1, 33), (2, 33))
    assert (found.first_ms, found.last_ms) == (0, 99_000)
    assert sum(records for _, records in found.by_time) == 100
    assert len(found.by_time) <= PERIODS


def test_it_is_satisfied_beyond_its_number() -> None:
    statistics = Statistics(3)
    assert [statistics(record(number, b"k", b"v")) for number in range(5)] == [False] * 3 + [True] * 2


def test_nothing_and_times_that_no_calendar_has() -> None:
    assert Statistics(10).figures().by_time == ()
    statistics = Statistics(10)
    statistics(record(0, None, None, -1))
    statistics(record(1, None, None, 2**62))
    statistics(record(2, None, None, 0))
    found = statistics.figures()
    assert (found.keys, found.values, found.largest) == (None, None, None)
    assert len(found.by_time) <= PERIODS
