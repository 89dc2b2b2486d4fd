from enum import Enum

import pytest
from tests.support.manual_time import ManualClock, ManualScheduler

from barnabas.core.scheduler import InlineBackground
from barnabas.core.transitions import IllegalTransition, Transitions


class Light(Enum):
    RED = 0
    GREEN = 1


def test_a_transition_table_has_a_row_for_each_state() -> None:
    with pytest.raises(AssertionError):
        Transitions({Light.RED: frozenset({Light.GREEN})})


def test_an_illegal_transition_says_what_would_be_legal() -> None:
    table = Transitions({Light.RED: frozenset({Light.GREEN}), Light.GREEN: frozenset({Light.RED})})
    table.check(Light.RED, Light.GREEN)
    with pytest.raises(IllegalTransition, match="RED cannot follow RED; it follows: GREEN"):
        table.check(Light.RED, Light.RED)


def test_scheduled_tasks_run_when_due_and_in_order() -> None:
    clock = ManualClock()
    scheduler = ManualScheduler(clock)
    seen: list[str] = []
    scheduler.after(20, lambda: seen.append("once"))
    scheduler.every(10, lambda: seen.append("again"))
    scheduler.after(5, lambda: seen.append("never")).cancel()
    clock.advance(25)
    scheduler.run_due()
    assert seen == ["again", "once", "again"]


def test_background_work_reports_exactly_one_outcome() -> None:
    seen: list[object] = []
    background = InlineBackground()
    background.submit(lambda: 1, seen.append, seen.append)
    background.submit(lambda: 1 // 0, seen.append, lambda error: seen.append(type(error)))
    assert seen == [1, ZeroDivisionError]
