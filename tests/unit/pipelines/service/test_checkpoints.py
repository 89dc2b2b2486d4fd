"""Files of a pipeline on disk, and files that are not its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.pipelines.service.checkpoints import last_generation, remove_generations


def test_generations_that_are_over_are_removed(tmp_path: Path) -> None:
    for number in (0, 1, 2):
        (tmp_path / "copy" / str(number)).mkdir(parents=True)
    assert last_generation(str(tmp_path), "copy") == 2
    remove_generations(str(tmp_path), "copy", 1)
    assert last_generation(str(tmp_path), "copy") == 2
    assert not (tmp_path / "copy" / "1").exists()
    remove_generations(str(tmp_path), "copy", 2)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["..", ".", "a/..", "../other", ""])
def test_nothing_outside_is_removed(tmp_path: Path, name: str) -> None:
    """For any stored name, only a directory right below the state location is deleted."""
    state = tmp_path / "state"
    for directory in (tmp_path / "0", state / "0", tmp_path / "other" / "0", state / "a"):
        directory.mkdir(parents=True)
    remove_generations(str(state), name, 5)
    assert all(each.is_dir() for each in (tmp_path / "0", state / "0", tmp_path / "other" / "0"))
