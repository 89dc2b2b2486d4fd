"""Busy polling continues where requests follow each other, and never for long."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.support.manual_time import ManualClock

from barnabas.network.busy_poll import CLOSE_BY_MAX, CLOSE_BY_MIN, CLOSE_BY_MS, BusyPoll

PATIENCE_MS = 0.1
SHORTLY_MS = PATIENCE_MS / 2
TOO_LATE_MS = (PATIENCE_MS + CLOSE_BY_MS) / 2
"""Close enough to the previous turn, and too late for the poll."""
ENOUGH = CLOSE_BY_MIN + 1
"""The first turn follows none."""


class World:
    def __init__(self, patience_ms: float = PATIENCE_MS) -> None:
        self.clock = ManualClock()
        self.soon: list[Callable[[], None]] = []
        self.looks = 0
        self.busy_poll = BusyPoll(self.soon.append, self.clock, patience_ms)

    def serve(self, count: int, apart_ms: float = SHORTLY_MS) -> None:
        """That many requests, each so long after the answer to the one before; the loop looks meanwhile if
        it does, four times as fast as its patience ends."""
        for _ in range(count):
            due_ms = self.clock.monotonic_ms() + apart_ms
            while self.soon and self.clock.monotonic_ms() < due_ms:
                self.look(each_takes_ms=min(PATIENCE_MS / 4, due_ms - self.clock.monotonic_ms()))
            self.clock.advance(max(0.0, due_ms - self.clock.monotonic_ms()))
            self.busy_poll.served(self.clock.monotonic_ms())

    def look(self, each_takes_ms: float) -> None:
        self.looks += 1
        self.clock.advance(each_takes_ms)
        self.soon.pop(0)()

    def look_until_asleep(self, each_takes_ms: float = PATIENCE_MS / 4) -> int:
        before = self.looks
        while self.soon:
            self.look(each_takes_ms)
        return self.looks - before


@pytest.fixture
def world() -> World:
    return World()


def test_a_loop_looks_for_as_long_as_it_has_patience(world: World) -> None:
    world.serve(ENOUGH)
    assert world.look_until_asleep(PATIENCE_MS / 4.5) == 5


def test_a_request_meanwhile_begins_the_time_again(world: World) -> None:
    world.serve(ENOUGH)
    world.look(PATIENCE_MS * 0.9)
    world.busy_poll.served(world.clock.monotonic_ms())
    assert len(world.soon) == 1, "it looks already"
    assert world.look_until_asleep(PATIENCE_MS / 4.5) == 5


def test_it_looks_again_and_again(world: World) -> None:
    """And the number of looks is bounded for each turn, not for all of them."""
    world.serve(1_000)
    assert world.looks > 1_000
    assert world.soon


@pytest.mark.parametrize("apart_ms", [CLOSE_BY_MS + 0.01, 1.0, 15.0])
def test_requests_now_and_then_are_slept_for(world: World, apart_ms: float) -> None:
    world.serve(ENOUGH - 1)
    assert not world.soon, "too few of them"
    world.serve(100, apart_ms=apart_ms)
    assert world.looks == 0


def test_a_pause_ends_it(world: World) -> None:
    world.serve(ENOUGH)
    world.look_until_asleep()
    world.serve(1, apart_ms=2 * CLOSE_BY_MS)
    world.serve(CLOSE_BY_MIN)
    assert not world.soon


def test_a_loop_that_finds_nothing_polls_less_and_less(world: World) -> None:
    world.serve(10 * CLOSE_BY_MAX, apart_ms=TOO_LATE_MS)
    assert world.looks < 100
    in_vain = world.looks
    world.serve(CLOSE_BY_MAX + 1)
    world.serve(100)
    assert world.looks > in_vain + 100, "who comes in time is waited for again"


def test_a_clock_that_stands_still_does_not_keep_the_loop_awake(world: World) -> None:
    world.serve(ENOUGH)
    assert world.look_until_asleep(each_takes_ms=0.0) == 100


def test_without_patience_the_loop_does_not_poll() -> None:
    world = World(patience_ms=0.0)
    world.serve(10 * CLOSE_BY_MIN)
    assert world.looks == 0
