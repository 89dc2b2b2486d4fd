from __future__ import annotations

from barnabas.pipelines.service.declarative.pace import LOOKS, Pace

MIN, MAX = 10_000, 60_000


def test_the_first_update_starts_at_once() -> None:
    assert Pace(MIN, MAX).is_due(0, None)


def test_new_records_start_an_update_and_not_before_the_shortest_interval() -> None:
    pace = Pace(MIN, MAX)
    pace.start(0)
    pace.end(is_stuck=False)
    assert not pace.is_due(MIN - 1, 5)
    assert pace.next_look_ms(MIN - 1, 5) == 1
    assert pace.is_due(MIN, 5)
    assert not pace.is_due(MIN, 0)


def test_without_new_records_an_update_starts_after_the_longest_interval() -> None:
    for unread in (0, None):
        pace = Pace(MIN, MAX)
        pace.start(0)
        pace.end(is_stuck=False)
        assert not pace.is_due(MAX - 1, unread)
        assert pace.is_due(MAX, unread)


def test_looks_at_the_log_ends_become_rarer_until_there_is_an_update() -> None:
    pace = Pace(MIN, MAX)
    pace.start(0)
    pace.end(is_stuck=False)
    pauses = [pace.next_look_ms(1_000, 0) for _ in range(6)]
    assert pauses == [1_000, 2_000, 4_000, 8_000, LOOKS.max_ms, LOOKS.max_ms]
    assert pace.next_look_ms(MAX - 100, 0) == 100
    pace.start(MAX)
    pace.end(is_stuck=False)
    assert pace.next_look_ms(MAX, None) == LOOKS.first_ms


def test_an_update_that_read_nothing_is_repeated_ever_later() -> None:
    pace = Pace(MIN, MAX)
    now_ms, gaps = 0, []
    for _ in range(5):
        pace.start(now_ms)
        pace.end(is_stuck=True)
        gap_ms = int(pace.next_look_ms(now_ms, 5))
        assert pace.is_due(now_ms + gap_ms, 5)
        gaps.append(gap_ms)
        now_ms += gap_ms
    assert gaps == [20_000, 40_000, MAX, MAX, MAX]
    pace.start(now_ms)
    pace.end(is_stuck=False)
    assert pace.next_look_ms(now_ms, 5) == MIN
