"""Copies of data directories delete nothing but older data."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.testing.snapshots import copy_data


@pytest.fixture
def data(tmp_path: Path) -> Path:
    found = tmp_path / "data"
    (found / "orders-0").mkdir(parents=True)
    (found / "meta.properties").write_text("1")
    return found


def contents(directory: Path) -> set[str]:
    return {str(each.relative_to(directory)) for each in directory.rglob("*")}


def test_a_copy_replaces_older_data(tmp_path: Path, data: Path) -> None:
    target = tmp_path / "copy"
    copy_data(data, target)
    (target / "payments-0").mkdir()
    copy_data(data, target)
    assert contents(target) == {"orders-0", "meta.properties"}


def test_files_of_others_are_left_alone(tmp_path: Path, data: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "notes.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="would be deleted"):
        copy_data(data, home)
    assert contents(home) == {"notes.txt"}


@pytest.mark.parametrize("place", [".", "..", "orders-0"])
def test_data_is_not_copied_over_itself(data: Path, place: str) -> None:
    with pytest.raises(ValueError, match="overlap"):
        copy_data(data, data / place)
    assert contents(data) == {"orders-0", "meta.properties"}
