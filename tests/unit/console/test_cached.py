"""Answers of a cluster that are kept for a while."""

from __future__ import annotations

import asyncio

from barnabas.console.view.client.cached import SLOWNESS, Cached
from tests.support.manual_time import ManualClock


class Question:
    """Takes some time, and counts how often it is asked."""

    def __init__(self, clock: ManualClock, takes_ms: int) -> None:
        self.asked = 0
        self._clock = clock
        self._takes_ms = takes_ms

    async def load(self) -> int:
        self.asked += 1
        self._clock.advance(self._takes_ms)
        return self.asked


async def test_an_answer_is_kept_while_it_is_fresh() -> None:
    clock = ManualClock()
    question = Question(clock, takes_ms=0)
    cached = Cached(question.load, clock, fresh_ms=2_000)
    assert await cached.get() == 1
    clock.advance(1_999)
    assert await cached.get() == 1
    clock.advance(1)
    assert await cached.get() == 2
    cached.forget()
    assert await cached.get() == 3


async def test_an_answer_that_took_long_is_kept_for_longer() -> None:
    """It would never be fresh: each page of a busy machine would ask for all groups again, and be slower."""
    clock = ManualClock()
    question = Question(clock, takes_ms=6_000)
    cached = Cached(question.load, clock, fresh_ms=2_000)
    assert await cached.get() == 1
    assert await cached.get() == 1
    clock.advance(round(SLOWNESS * 6_000) - 1)
    assert await cached.get() == 1
    clock.advance(1)
    assert await cached.get() == 2


async def test_viewers_at_the_same_time_share_a_question() -> None:
    clock = ManualClock()
    question = Question(clock, takes_ms=10)
    cached = Cached(question.load, clock, fresh_ms=2_000)
    assert list(await asyncio.gather(cached.get(), cached.get())) == [1, 1]
