"""Atomic replacement of a file: new content, sync, rename, sync of the directory."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest
from tests.support.power_cut_files import PowerCutFiles

from barnabas.core.errors import KafkaStorageError
from barnabas.core.files import Entry, RealFiles
from barnabas.storage.files.checkpoints import render_offsets


def test_a_file_is_replaced_in_an_order_that_survives_any_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "recovery-point-offset-checkpoint"
    target.write_bytes(b"old")
    steps: list[str] = []
    fsync, replace = os.fsync, os.replace

    def noted_fsync(descriptor: int) -> None:
        kind = "directory" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file"
        steps.append(f"sync the {kind}, the content is {target.read_bytes().decode()}")
        fsync(descriptor)

    def noted_replace(source: Any, destination: Any) -> None:
        steps.append("rename")
        assert Path(source).read_bytes() == b"new", "complete before it gets the name"
        replace(source, destination)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "replace", noted_replace)
    RealFiles().replace(str(target), b"new")
    assert steps == [
        "sync the file, the content is old",
        "rename",
        "sync the directory, the content is new",
    ]


def test_a_replacement_that_fails_leaves_the_old_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "replication-offset-checkpoint"
    target.write_bytes(render_offsets({}))

    def no_space(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(OSError, match="No space"):
        RealFiles().replace(str(target), b"new")
    assert target.read_bytes() == render_offsets({})


@pytest.mark.parametrize("is_relative", [False, True])
def test_a_directory_that_is_to_last_is_named_in_synced_directories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_relative: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    synced: list[Path] = []
    fsync = os.fsync

    def noted_fsync(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink())
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    wanted = Path("disk/kafka/logs") if is_relative else tmp_path / "disk/kafka/logs"
    RealFiles().make_lasting_directory(str(wanted))
    assert wanted.is_dir()
    assert synced == [tmp_path, tmp_path / "disk", tmp_path / "disk/kafka"]
    RealFiles().make_lasting_directory(str(wanted))
    assert len(synced) == 3, "it was there"


def test_a_file_in_the_way_of_a_lasting_directory_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "logs").write_bytes(b"")
    with pytest.raises(FileExistsError):
        RealFiles().make_lasting_directory(str(tmp_path / "logs"))
    with pytest.raises(OSError, match="logs"):
        RealFiles().make_lasting_directory(str(tmp_path / "logs" / "data"))


def test_a_power_cut_takes_what_is_below_a_directory_without_a_lasting_name() -> None:
    for seed in range(20):
        files = PowerCutFiles(seed)
        files.make_directory("disk/log")
        files.sync_directory("disk")
        files.replace("disk/log/file", b"synced")
        files.cut_power()
        assert files.exists("disk/log/file") == files.exists("disk")
        files.make_lasting_directory("lasting/log")
        files.replace("lasting/log/file", b"synced")
        files.cut_power()
        assert files.read("lasting/log/file") == b"synced"


def test_a_file_that_goes_away_while_its_directory_is_listed_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "kept").write_bytes(b"four")
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    assert RealFiles().list(str(tmp_path)) == [Entry("kept", 4, False)]


def test_a_directory_is_locked_once_even_within_one_process(tmp_path: Path) -> None:
    path = str(tmp_path / ".lock")
    held = RealFiles().lock(path)
    with pytest.raises(KafkaStorageError, match="another broker"):
        RealFiles().lock(str(tmp_path / ".." / tmp_path.name / ".lock"))
    held.release()
    RealFiles().lock(path).release()


def test_what_is_in_memory_is_read_without_waiting(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"0123456789")
    file = RealFiles().open(str(tmp_path / "file"))
    assert file.read_now(2, 3) == b"234"
    assert file.read_now(8, 5) == b"89", "the end of the file is no reason to wait"
    assert file.read_now(99, 1) == b""
    os.fsync(file.fileno())
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    assert file.read_now(2, 3) in (None, b"234"), "what the system has kept is its own business"
    assert file.read_at(2, 3) == b"234"
    assert file.read_now(2, 3) == b"234"
