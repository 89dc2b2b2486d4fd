from __future__ import annotations

import sys
from pathlib import Path

import pytest

from barnabas.pipelines.spark.jvm import class_sharing
from barnabas.pipelines.spark.jvm.class_sharing import archive_path, is_whole, sharing_options

HEADER = (0xF00BABA8).to_bytes(4, sys.byteorder)


@pytest.fixture(autouse=True)
def _cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_the_first_driver_writes_the_archive_and_the_next_ones_use_it() -> None:
    archive = archive_path({}, "4.3.0")
    assert sharing_options({}, "4.3.0").startswith(f"-XX:ArchiveClassesAtExit={archive} ")
    archive.write_bytes(HEADER + b"classes")
    assert sharing_options({}, "4.3.0").startswith(f"-XX:SharedArchiveFile={archive} ")


def test_an_archive_that_was_cut_short_is_written_again() -> None:
    archive = archive_path({}, "4.3.0")
    archive.parent.mkdir(parents=True)
    for content in (b"", b"\0\0", bytes(4096)):
        archive.write_bytes(content)
        assert not is_whole(archive)
        assert "ArchiveClassesAtExit" in sharing_options({}, "4.3.0")


def test_another_java_spark_or_class_path_has_an_archive_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {
        archive_path({}, "4.3.0"),
        archive_path({}, "4.4.0"),
        archive_path({"spark.driver.extraClassPath": "/x.jar"}, "4.3.0"),
    }
    monkeypatch.setattr(class_sharing, "_java", lambda: "another")
    assert len(found | {archive_path({}, "4.3.0")}) == 4


def test_without_a_place_for_it_there_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert sharing_options({}, "4.3.0") == ""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a place"))
    assert sharing_options({}, "4.3.0") == "", "Spark would split the path"
