"""Faults of a test's disk: each has its paths."""

from __future__ import annotations

import errno
import threading
from pathlib import Path

import pytest

from barnabas.testing.faults.disk import Disk


def failure_of(disk: Disk, path: Path) -> int:
    try:
        disk.write(str(path), b"x")
    except OSError as error:
        return error.errno or -1
    return 0


def test_faults_have_paths_of_their_own(tmp_path: Path) -> None:
    disk = Disk()
    disk.fail("ENOSPC", under="orders")
    disk.fail("EIO", under="payments")
    assert failure_of(disk, tmp_path / "orders-0") == errno.ENOSPC
    assert failure_of(disk, tmp_path / "payments-0") == errno.EIO
    assert failure_of(disk, tmp_path / "others-0") == 0
    assert disk.refused == 2
    disk.heal()
    assert failure_of(disk, tmp_path / "orders-0") == 0


def test_a_disk_is_stalled_in_one_path_and_full_in_another(tmp_path: Path) -> None:
    disk, written = Disk(), threading.Event()
    disk.stall(under="orders")
    disk.fail("ENOSPC", under="payments")

    def write() -> None:
        assert failure_of(disk, tmp_path / "orders-0") == 0
        written.set()

    thread = threading.Thread(target=write)
    thread.start()
    assert failure_of(disk, tmp_path / "payments-0") == errno.ENOSPC
    assert not written.wait(0.05)
    disk.heal()
    thread.join(30)
    assert written.is_set()


def test_an_unknown_error_is_refused() -> None:
    with pytest.raises(ValueError, match="write it like ENOSPC or EIO"):
        Disk().fail("ENOSPACE")
