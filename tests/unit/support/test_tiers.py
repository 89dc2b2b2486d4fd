"""Tiers of the suite: what `make test` collects, and the order in which workers take files."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from tests.tiers import LATE, LONGEST, REST, SLICE, is_all_rest, mixed

REPOSITORY = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    ("place", "is_left_out"),
    [
        ("tests/differential/", True),
        ("tests/differential/cases/produce.py", True),
        ("tests/spark/", False),  # a file of it has a test for `make test`
        ("tests/spark/pipelines/test_updates.py", False),
        ("tests/spark/pipelines/test_topics.py", True),
        ("tests/scenario/pipelines/test_databases.py", False),
        ("tests/scenario/cluster/test_operating.py", False),
        ("tests/simulation/test_simulation.py", False),
        ("tests/unit/", False),
    ],
)
def test_places_without_a_test_for_make_test_are_not_collected(place: str, is_left_out: bool) -> None:
    assert is_all_rest(place) == is_left_out


@pytest.mark.parametrize("place", [*REST, *SLICE, *LONGEST, *LATE])
def test_places_exist(place: str) -> None:
    assert (REPOSITORY / place.partition("::")[0]).exists()


def test_the_longest_files_begin_and_unit_tests_stand_evenly_among_the_others() -> None:
    units = [f"tests/unit/test_{number}.py" for number in range(4)]
    others = [f"tests/scenario/test_{number}.py" for number in range(2)]
    assert mixed([*others, *LONGEST, *units]) == [
        *LONGEST, units[0], others[0], units[1], units[2], others[1], units[3],
    ]  # fmt: skip


def test_a_file_that_leaves_a_jvm_begins_after_two_thirds() -> None:
    units = [f"tests/unit/test_{number}.py" for number in range(9)]
    assert mixed([*LATE, *units]) == [*units[:5], *LATE, *units[5:]]


def test_a_module_imported_by_name_is_the_one_that_is_collected() -> None:
    """Otherwise the share that each worker imports before the collection would be imported twice."""
    assert importlib.import_module("tests.unit.support.test_tiers").__dict__ is globals()
