"""Pauses that double up to a maximum."""

from __future__ import annotations

from itertools import accumulate, repeat

from barnabas.core.backoff import Backoff

BACKOFF = Backoff(first_ms=500.0, max_ms=3_000.0)
PAUSES_MS = [500.0, 1_000.0, 2_000.0, 3_000.0, 3_000.0]


def test_each_pause_is_twice_the_one_before_up_to_the_maximum() -> None:
    pauses = accumulate(repeat(None, 4), lambda pause, _: BACKOFF.following_ms(pause), initial=500.0)
    assert list(pauses) == PAUSES_MS


def test_the_pause_follows_from_the_number_of_failures() -> None:
    assert [BACKOFF.after_ms(failures) for failures in range(5)] == PAUSES_MS


def test_a_first_pause_above_the_maximum_is_cut() -> None:
    assert Backoff(20.0, 5.0).after_ms(0) == 5.0


def test_very_many_failures_do_not_overflow() -> None:
    assert Backoff(1.0, 60_000.0).after_ms(10**9) == 60_000.0
