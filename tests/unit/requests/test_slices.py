"""Long work shares the loop: a little of one piece in each turn."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import pytest

from barnabas.core.limits import TURN_MS_MAX
from barnabas.requests.time_slicing import Slices
from tests.support.manual_time import ManualClock


class Loop:
    """Turns that are taken by hand."""

    def __init__(self) -> None:
        self.soon: list[Callable[[], None]] = []

    def turn(self) -> None:
        due, self.soon = self.soon, []
        for task in due:
            task()


class Bench:
    """Work whose steps take a millisecond each, and what came of it."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.loop = Loop()
        self.slices = Slices(self.clock, self._call_soon)
        self.steps: list[str] = []
        self.ends: list[Any] = []
        self.waits: list[str] = []

    def _call_soon(self, task: Callable[[], None]) -> None:
        self.loop.soon.append(task)

    def begin(self, name: str, steps: int, error: Exception | None = None) -> None:
        def work() -> Generator[None, None, str]:
            for _ in range(steps):
                self.clock.advance(ms=1)
                self.steps.append(name)
                yield
            if error is not None:
                raise error
            return name

        self.slices.run(work(), self.ends.append, self.ends.append, lambda: self.waits.append(name))


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_short_work_is_done_at_once(bench: Bench) -> None:
    bench.begin("short", 2)
    assert bench.ends == ["short"]
    assert not bench.waits
    assert not bench.loop.soon


def test_long_work_goes_on_in_later_turns(bench: Bench) -> None:
    bench.begin("long", 12)
    assert len(bench.steps) == TURN_MS_MAX
    assert bench.waits == ["long"]
    bench.loop.turn()
    assert len(bench.steps) == 2 * TURN_MS_MAX
    assert not bench.ends
    bench.loop.turn()
    assert bench.ends == ["long"]
    assert not bench.loop.soon


def test_of_many_pieces_one_goes_on_in_each_turn(bench: Bench) -> None:
    for name in "abc":
        bench.begin(name, 15)
    bench.steps.clear()
    for turn in range(6):
        assert len(bench.steps) == turn * TURN_MS_MAX
        assert len(bench.loop.soon) == 1
        bench.loop.turn()
    assert "".join(bench.steps) == "aaaaabbbbbcccccaaaaabbbbbccccc"
    for _ in range(3):
        bench.loop.turn()
    assert bench.ends == ["a", "b", "c"]
    assert not bench.slices.waiting


def test_work_that_fails_is_reported_and_the_rest_goes_on(bench: Bench) -> None:
    fault = ValueError("no")
    bench.begin("bad", 6, fault)
    bench.begin("good", 6)
    for _ in range(4):
        bench.loop.turn()
    assert bench.ends == [fault, "good"]


def test_an_answer_that_fails_is_reported_and_the_rest_goes_on(bench: Bench) -> None:
    fault = ValueError("cannot be answered")

    def work() -> Generator[None, None, None]:
        for _ in range(6):
            bench.clock.advance(ms=1)
            yield

    def done(_: object) -> None:
        raise fault

    bench.slices.run(work(), done, bench.ends.append, lambda: None)
    bench.begin("good", 6)
    for _ in range(3):
        bench.loop.turn()
    assert bench.ends == [fault, "good"]


def test_closing_gives_up_what_is_not_done(bench: Bench) -> None:
    bench.begin("long", 50)
    bench.slices.close()
    bench.loop.turn()
    assert len(bench.steps) == TURN_MS_MAX
    assert not bench.ends
