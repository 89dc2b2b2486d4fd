"""Tiers of the suite: what `make test` collects, and the order in which workers take files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tiers import LONGEST, REST, SLICE, is_all_rest, mixed

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


@pytest.mark.parametrize("place", [*REST, *SLICE, *LONGEST])
def test_places_exist(place: str) -> None:
    assert (REPOSITORY / place.partition("::")[0]).exists()


def test_the_longest_files_begin_and_unit_tests_stand_evenly_among_the_others() -> None:
    units = [f"tests/unit/test_{number}.py" for number in range(4)]
    others = [f"tests/scenario/test_{number}.py" for number in range(2)]
    ordered = mixed([*others, *LONGEST, *units])
    assert ordered[: len(LONGEST)] == [*LONGEST]
    assert ordered[len(LONGEST) :] == [units[0], others[0], units[1], units[2], others[1], units[3]]
