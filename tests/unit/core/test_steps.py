"""Generators in slices and in steps: what each driver gives back to them, and where they end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

import pytest
from tests.support.manual_time import ManualClock, ManualScheduler

from barnabas.core.scheduler import NotBegun
from barnabas.core.steps import (
    Course,
    CourseSteps,
    Ended,
    Pause,
    Sliced,
    Steps,
    advance,
    advance_until,
    drive,
    drive_async,
    run_to_end,
)

T = TypeVar("T")


def three_slices() -> Sliced[str]:
    for _ in range(3):
        yield
    return "done"


def test_slices_run_to_their_end_at_once() -> None:
    assert run_to_end(three_slices()) == "done"


def test_a_turn_runs_one_slice_at_least() -> None:
    clock = ManualClock()
    work = three_slices()
    assert [advance_until(work, clock.monotonic_ms, 0.0) for _ in range(3)] == [None] * 3
    ended = advance_until(work, clock.monotonic_ms, 0.0)
    assert ended is not None
    assert ended.result == "done"


def test_a_turn_ends_with_its_time() -> None:
    clock, work = ManualClock(), three_slices()
    end_ms = clock.monotonic_ms() + 2

    def slowly() -> float:
        clock.advance(ms=1)
        return clock.monotonic_ms()

    assert advance_until(work, slowly, end_ms) is None
    assert advance(work) is None, "the turn of two milliseconds took two slices, not three"
    assert isinstance(advance(work), Ended)


def conversation(seen: list[object]) -> Steps[str, str]:
    seen.append((yield "first"))
    try:
        yield "fails"
    except ValueError as error:
        seen.append(str(error))
    return "over"


def answer(step: str) -> str:
    if step == "fails":
        raise ValueError("refused")
    return step.upper()


def test_a_driver_gives_answers_and_errors_back_to_the_steps() -> None:
    seen: list[object] = []
    assert drive(conversation(seen), answer) == "over"
    assert seen == ["FIRST", "refused"]


def test_a_coroutine_drives_the_same_steps() -> None:
    async def answered(step: str) -> str:
        await asyncio.sleep(0)
        return answer(step)

    seen: list[object] = []
    assert asyncio.run(drive_async(conversation(seen), answered)) == "over"
    assert seen == ["FIRST", "refused"]


def test_an_error_that_the_steps_do_not_handle_ends_the_drive() -> None:
    def steps() -> Steps[str, None]:
        yield "fails"

    with pytest.raises(ValueError, match="refused"):
        drive(steps(), answer)


class Thread:
    """Runs work when `run` is called, or refuses it."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []
        self.is_closed = False

    def submit(
        self, work: Callable[[], T], done: Callable[[T], None], failed: Callable[[BaseException], None]
    ) -> None:
        if self.is_closed:
            raise RuntimeError("closed")

        def both() -> None:
            try:
                result = work()
            except BaseException as error:
                failed(error)
            else:
                done(result)

        self.waiting.append(both)

    def run(self) -> None:
        self.waiting.pop(0)()


class CourseBench:
    def __init__(self, steps: CourseSteps[None]) -> None:
        self.clock = ManualClock()
        self.scheduler = ManualScheduler(self.clock)
        self.thread = Thread()
        self.ends: list[Exception | None] = []
        self.course = Course(steps, self.thread, self.scheduler, self.ends.append)

    def pass_ms(self, ms: float) -> None:
        self.clock.advance(ms)
        self.scheduler.run_due()


def test_a_course_continues_with_the_result_of_a_thread_and_after_a_pause() -> None:
    seen: list[object] = []

    def steps() -> CourseSteps[None]:
        seen.append((yield lambda: 7))
        yield Pause(50)
        seen.append("paused")

    bench = CourseBench(steps())
    bench.course.start()
    assert not seen
    bench.thread.run()
    assert seen == [7]
    bench.pass_ms(49)
    assert seen == [7]
    bench.pass_ms(1)
    assert seen == [7, "paused"]
    assert bench.ends == [None]


def test_a_course_raises_the_error_of_a_thread_at_its_yield_and_reports_the_last() -> None:
    def fail() -> None:
        raise OSError("disk")

    def steps() -> CourseSteps[None]:
        with pytest.raises(OSError, match="disk"):
            yield fail
        yield fail

    bench = CourseBench(steps())
    bench.course.start()
    bench.thread.run()
    assert not bench.ends
    bench.thread.run()
    assert [str(end) for end in bench.ends] == ["disk"]


def test_a_course_without_a_thread_has_not_begun() -> None:
    def steps() -> CourseSteps[None]:
        yield lambda: None

    bench = CourseBench(steps())
    bench.thread.is_closed = True
    bench.course.start()
    assert [type(end) for end in bench.ends] == [NotBegun]
