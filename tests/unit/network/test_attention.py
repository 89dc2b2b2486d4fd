"""The loop looks a little longer where requests follow each other, and never for long."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from barnabas.core.clock import ManualClock
from barnabas.network.attention import CLOSE_BY_MIN, CLOSE_BY_MS, LOOKS_MAX, Attention

PATIENCE_MS = 0.1
SHORTLY_MS = CLOSE_BY_MS / 2


class World:
    def __init__(self, patience_ms: float = PATIENCE_MS) -> None:
        self.clock = ManualClock()
        self.soon: list[Callable[[], None]] = []
        self.attention = Attention(self.soon.append, self.clock, patience_ms)

    def turns(self, count: int, apart_ms: float = SHORTLY_MS) -> None:
        """That many requests, each so long after the answer to the one before."""
        for _ in range(count):
            self.clock.advance(apart_ms)
            self.attention.begin(self.clock.monotonic_ms())
            self.attention.end()

    def looks(self, each_takes_ms: float) -> int:
        """How often the loop looks until it goes to sleep."""
        looked = 0
        while self.soon:
            looked += 1
            self.clock.advance(each_takes_ms)
            self.soon.pop(0)()
        return looked


@pytest.fixture
def world() -> World:
    return World()


def test_a_loop_looks_for_as_long_as_it_has_patience(world: World) -> None:
    world.turns(CLOSE_BY_MIN + 1)
    assert world.looks(each_takes_ms=PATIENCE_MS / 4.5) == 5


def test_a_turn_meanwhile_begins_the_time_anew_and_looks_once(world: World) -> None:
    world.turns(CLOSE_BY_MIN + 1)
    world.turns(3)
    assert len(world.soon) == 1
    assert world.looks(each_takes_ms=PATIENCE_MS / 4.5) == 5


def test_requests_now_and_then_are_slept_for(world: World) -> None:
    world.turns(CLOSE_BY_MIN)
    assert not world.soon, "too few of them"
    world.turns(100, apart_ms=2 * CLOSE_BY_MS)
    assert not world.soon


def test_one_pause_ends_it(world: World) -> None:
    world.turns(CLOSE_BY_MIN + 1)
    world.looks(each_takes_ms=PATIENCE_MS)
    world.turns(1, apart_ms=2 * CLOSE_BY_MS)
    world.turns(CLOSE_BY_MIN - 1)
    assert not world.soon


def test_a_clock_that_stands_still_does_not_keep_the_loop_awake(world: World) -> None:
    world.turns(CLOSE_BY_MIN + 1)
    assert world.looks(each_takes_ms=0.0) == LOOKS_MAX


def test_without_patience_nobody_looks() -> None:
    world = World(patience_ms=0.0)
    world.turns(10 * CLOSE_BY_MIN)
    assert not world.soon
