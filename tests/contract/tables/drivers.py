"""Drivers that die or come back, and the input of three batches that readers must find afterwards."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypedDict

import pytest
from tests.contract.tables.writing import COLUMNS, POINTS, QUERY, Writer, rows_of
from tests.support.broker import REPOSITORY
from tests.support.table_reading import Rows
from tests.support.waiting import eventually

from barnabas.core.clock import SystemClock
from barnabas.pipelines.tables.open_table import open_table

Read = Callable[[], Rows]
FIRST, SECOND, THIRD = [*range(6)], [4, 5, 6, 7], [0, 7, 8]
DELETED = [1, 99]
FULL = pytest.mark.kill_matrix
"""Cases that only `make kill-matrix` runs, of tests that have others."""
CASES = [
    pytest.param(mode, point, marks=FULL if point == "mid-write" else ())
    for mode in ("append", "upsert")
    for point in POINTS
    if (mode, point) != ("append", "mid-rewrite")
]
MODES = pytest.mark.parametrize("is_upsert", [False, True], ids=["append", "upsert"])


class Given(TypedDict):
    """What the drivers of a test have in common."""

    is_upsert: bool
    row_bytes: int


class Process:
    """A driver of the second batch that stops at a point. `options` are those of a table sink."""

    def __init__(
        self,
        options: Mapping[str, Any],
        directory: Path,
        point: str,
        *,
        dies: bool,
        is_upsert: bool,
        row_bytes: int,
    ) -> None:
        directory.mkdir()
        self._directory = directory
        given = {
            "options": dict(options), "directory": str(directory), "point": point, "dies": dies,
            "batch": 1, "ids": SECOND, "deleted": DELETED, "is_upsert": is_upsert, "row_bytes": row_bytes,
        }  # fmt: skip
        environment = {"PYTHONPATH": f"{REPOSITORY / 'src'}:{REPOSITORY}", "PATH": "/usr/bin:/bin"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.contract.tables.writing", json.dumps(given)],
            env=environment,
            stderr=subprocess.PIPE,
        )

    def wait_killed(self) -> None:
        _, errors = self._process.communicate(timeout=240)
        assert self._process.returncode == -signal.SIGKILL, errors.decode()

    def wait_reached(self) -> None:
        def stands() -> bool:
            assert self._process.poll() is None, "the driver came to its end"
            return (self._directory / "reached").exists()

        eventually(stands, timeout_s=240)

    def release(self) -> str:
        (self._directory / "released").touch()
        _, errors = self._process.communicate(timeout=240)
        return errors.decode()

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()


def options_of(kind: str, lake: Path) -> dict[str, Any]:
    return {"format": kind, "path": str(lake)}


def writer_of(options: Mapping[str, Any], query: str = QUERY) -> Writer:
    """A driver in this process."""
    return Writer.of(open_table(options, COLUMNS, (), SystemClock(), create=True), query)


def begin(options: Mapping[str, Any], *, is_upsert: bool, row_bytes: int) -> None:
    writer_of(options).take(0, rows_of(FIRST, 0, row_bytes), is_upsert=is_upsert)


def repeat(options: Mapping[str, Any], *, is_upsert: bool, row_bytes: int) -> None:
    """A successor runs the second batch again."""
    rows = rows_of(SECOND, 1, row_bytes)
    writer_of(options).take(1, rows, deleted=DELETED, is_upsert=is_upsert)


def finish(options: Mapping[str, Any], read: Read, *, is_upsert: bool, row_bytes: int) -> None:
    """The successor runs the batch again and another, and the readers find the input."""
    repeat(options, is_upsert=is_upsert, row_bytes=row_bytes)
    writer_of(options).take(2, rows_of(THIRD, 2, row_bytes), is_upsert=is_upsert)
    assert read() == expected(is_upsert=is_upsert, row_bytes=row_bytes)


def expected(*, is_upsert: bool, row_bytes: int) -> Rows:
    """The input's rows: in upsert mode, the last of each id that was not deleted after it."""
    batches = [(0, FIRST, ()), (1, SECOND, DELETED), (2, THIRD, ())]
    found: dict[Any, dict[str, Any]] = {}
    for batch, ids, deleted in batches:
        for gone in deleted if is_upsert else ():
            found.pop(gone, None)
        for row in rows_of(ids, batch, row_bytes):
            found[row["id"] if is_upsert else (row["id"], batch)] = row
    return in_order([*found.values()])


def in_order(rows: Rows) -> Rows:
    return sorted(rows, key=lambda row: (row["id"], row["batch"]))
