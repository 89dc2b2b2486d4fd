"""The broker distinguishes a mount point without its disk from a new log directory."""

from __future__ import annotations

import pytest

from barnabas.storage.directory.known_directories import (
    KNOWN_DIRECTORIES,
    missing_directories,
    remember_directories,
)
from tests.support.power_cut_files import PowerCutFiles

BOTH = ("/a", "/b")


@pytest.fixture
def files() -> PowerCutFiles:
    files = PowerCutFiles()
    for path in BOTH:
        files.make_lasting_directory(path)
        files.replace(f"{path}/meta.properties", b"version=0\n")
    assert remember_directories(files, BOTH, BOTH) == {}
    return files


def test_a_directory_with_its_owner_is_there(files: PowerCutFiles) -> None:
    assert missing_directories(files, BOTH) == {}


def test_a_new_directory_is_not_missing(files: PowerCutFiles) -> None:
    assert missing_directories(files, [*BOTH, "/new"]) == {}


@pytest.mark.parametrize("is_there", [True, False])
def test_a_directory_that_another_one_lists_and_that_is_bare_is_missing(
    files: PowerCutFiles, is_there: bool
) -> None:
    files.remove_tree("/b")
    if is_there:
        files.make_lasting_directory("/b")
    found = missing_directories(files, BOTH)
    assert list(found) == ["/b"]
    assert "copy /a/meta.properties into it" in str(found["/b"])


def test_a_directory_that_has_logs_is_mounted(files: PowerCutFiles) -> None:
    files.unlink("/b/meta.properties")
    files.make_directory("/b/topic-0")
    assert missing_directories(files, BOTH) == {}


def test_a_directory_that_is_no_longer_given_is_forgotten(files: PowerCutFiles) -> None:
    files.remove_tree("/b")
    assert missing_directories(files, ["/a"]) == {}
    remember_directories(files, ["/a"], ["/a"])
    assert missing_directories(files, BOTH) == {}


def test_the_list_is_written_when_it_changes(files: PowerCutFiles) -> None:
    written: list[str] = []
    files.before = lambda operation, path: written.append(f"{operation} {path}")
    remember_directories(files, BOTH, BOTH)
    assert not [each for each in written if each.startswith("write")]


def test_a_directory_that_cannot_be_written_to_is_named(files: PowerCutFiles) -> None:
    error = OSError("read-only")

    def refuse(operation: str, path: str) -> None:
        if path.startswith(f"/b/{KNOWN_DIRECTORIES}") and operation != "read":
            raise error

    files.before = refuse
    assert remember_directories(files, BOTH, [*BOTH, "/c"]) == {"/b": error}
