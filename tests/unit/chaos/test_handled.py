"""The judge of `process` in the chaos run: every record is handled, in order, and may be handled twice."""

from __future__ import annotations

from tests.chaos.history import History, Value
from tests.chaos.library import handled_wrongly

RECORDS = [Value("writer", number) for number in range(3)]


def complaints(*handled: int) -> list[str]:
    history = History(final={("in", 0): list(enumerate(RECORDS)), ("other", 0): [(0, Value("x", 9))]})
    rows = [(offset, RECORDS[number]) for offset, number in enumerate(handled)]
    return [each.partition(":")[0] for each in handled_wrongly(history, "in", {0: rows})]


def test_records_that_are_handled_in_order_are_right() -> None:
    assert complaints(0, 1, 2) == []


def test_a_restart_may_repeat_records() -> None:
    assert complaints(0, 1, 0, 1, 2) == []


def test_a_record_that_is_missing_is_found() -> None:
    assert complaints(0, 2) == ["not handled"]


def test_a_record_that_comes_behind_a_later_one_is_found() -> None:
    assert complaints(0, 2, 1) == ["handled out of order"]
