"""A directory that is not a broker's is refused before anything in it is touched."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.core.files import RealFiles
from barnabas.storage.directory.foreign_content import foreign_content


def made(directory: Path, *names: str) -> str | None:
    """The verdict on a directory with these files and (ending in a slash) directories."""
    for name in names:
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir() if name.endswith("/") else path.touch()
    return foreign_content(RealFiles(), str(directory))


@pytest.mark.parametrize(
    "names",
    [
        (),
        ("lost+found/", ".lock"),
        ("meta.properties", "coordination/", "orders-0/"),
        (
            "orders-0/00000000000000000000.log",
            "orders-0/partition.metadata",
            "recovery-point-offset-checkpoint",
        ),
        ("orders-0/00000000000000000000.log.deleted", "orders-0/notes.txt"),
        (
            "orders-0.0123-delete/x",
            "orders-1.0123-future/x",
            "orders-2.0123-stray/x",
            "__cluster_metadata-0/x",
        ),
        ("meta.properties", "notes.txt", "folder/"),
    ],
)
def test_a_log_directory_is_one(tmp_path: Path, names: tuple[str, ...]) -> None:
    assert made(tmp_path, *names) is None


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (("broker-1/meta.properties", "broker-1.properties"), "home of a cluster"),
        (("broker-1/meta.properties",), "log directory of another broker"),
        (("project-2/setup.py",), "holds setup.py and no log"),
        (("project-2/src/",), "holds src and no log"),
        (("pyproject.toml",), "pyproject.toml in it is not a broker's"),
        (("src/",), "src in it is not a broker's"),
    ],
)
def test_other_peoples_directories_are_refused(tmp_path: Path, names: tuple[str, ...], words: str) -> None:
    reason = made(tmp_path, *names)
    assert reason is not None
    assert words in reason
