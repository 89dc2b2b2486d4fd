"""Kill matrix of the table sink's commits: drivers die by SIGKILL or come back, and each row is there once.

A process writes one batch and is killed at a point. The batch then runs again, as Spark runs it, and
another follows. Polars and DuckDB must read exactly the rows of the input, and no file may be left of an
attempt that did not win.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.contract.tables.writing import POINTS, Writer, opened, rows_of
from tests.support.broker import REPOSITORY
from tests.support.table_reading import Rows, data_paths, live_paths
from tests.support.waiting import eventually

from barnabas.pipelines.tables.commits import NotTheSameBatch, Replaced

Read = Callable[[], Rows]
FIRST, SECOND, THIRD = [*range(6)], [4, 5, 6, 7], [0, 7, 8]
DELETED = [1, 99]


class Process:
    """A driver of one batch that stops at a point."""

    def __init__(
        self,
        kind: str,
        lake: Path,
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
            "kind": kind, "path": str(lake), "directory": str(directory), "point": point, "dies": dies,
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


def expected(*, is_upsert: bool, row_bytes: int) -> Rows:
    """The input's rows: in upsert mode, the last of each id that was not deleted after it."""
    batches = [(0, FIRST, ()), (1, SECOND, DELETED), (2, THIRD, ())]
    found: dict[Any, dict[str, Any]] = {}
    for batch, ids, deleted in batches:
        for gone in deleted if is_upsert else ():
            found.pop(gone, None)
        for row in rows_of(ids, batch, row_bytes):
            found[row["id"] if is_upsert else (row["id"], batch)] = row
    return sorted(found.values(), key=lambda row: (row["id"], row["batch"]))


def finish(kind: str, lake: Path, read: Read, *, is_upsert: bool, row_bytes: int) -> None:
    """The successor runs the batch again and another, and the readers find the input."""
    successor = Writer(kind, lake)
    successor.take(1, rows_of(SECOND, 1, row_bytes), deleted=DELETED, is_upsert=is_upsert)
    successor.take(2, rows_of(THIRD, 2, row_bytes), is_upsert=is_upsert)
    assert read() == expected(is_upsert=is_upsert, row_bytes=row_bytes)


def begin(kind: str, lake: Path, *, is_upsert: bool, row_bytes: int) -> None:
    Writer(kind, lake).take(0, rows_of(FIRST, 0, row_bytes), is_upsert=is_upsert)


def check_no_leftovers(kind: str, lake: Path, kept: set[str]) -> None:
    """Every file is live, or was committed and is kept for readers of an older version."""
    assert data_paths(lake) - set(live_paths(kind, lake)) <= kept


CASES = [("append", point) for point in POINTS if point != "mid-rewrite"] + [
    ("upsert", point) for point in POINTS
]


@pytest.mark.parametrize("row_bytes", [100, pytest.param(1_000_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("mode", "point"), CASES)
def test_a_driver_killed_anywhere_leaves_every_row_once(
    kind: str, lake: Path, rows: Read, tmp_path: Path, mode: str, point: str, row_bytes: int
) -> None:
    is_upsert = mode == "upsert"
    begin(kind, lake, is_upsert=is_upsert, row_bytes=row_bytes)
    committed = set(live_paths(kind, lake))
    Process(
        kind, lake, tmp_path / "killed", point, dies=True, is_upsert=is_upsert, row_bytes=row_bytes
    ).wait_killed()
    committed |= set(live_paths(kind, lake))
    successor = Writer(kind, lake)
    successor.take(1, rows_of(SECOND, 1, row_bytes), deleted=DELETED, is_upsert=is_upsert)
    committed |= set(live_paths(kind, lake))
    finish(kind, lake, rows, is_upsert=is_upsert, row_bytes=row_bytes)
    check_no_leftovers(kind, lake, committed)


@pytest.mark.parametrize(("mode", "point"), CASES)
def test_a_driver_thought_dead_changes_nothing_when_it_goes_on(
    kind: str, lake: Path, rows: Read, tmp_path: Path, mode: str, point: str
) -> None:
    is_upsert = mode == "upsert"
    begin(kind, lake, is_upsert=is_upsert, row_bytes=0)
    zombie = Process(kind, lake, tmp_path / "zombie", point, dies=False, is_upsert=is_upsert, row_bytes=0)
    try:
        zombie.wait_reached()
        finish(kind, lake, rows, is_upsert=is_upsert, row_bytes=0)
        errors = zombie.release()
    finally:
        zombie.kill()
    if point != "after-commit":
        assert "another driver has replaced it" in errors
    assert rows() == expected(is_upsert=is_upsert, row_bytes=0)
    assert all(Path(each).exists() for each in live_paths(kind, lake))


@pytest.mark.parametrize("is_upsert", [False, True], ids=["append", "upsert"])
def test_of_two_drivers_with_the_same_batch_one_commits_it(
    kind: str, lake: Path, rows: Read, is_upsert: bool
) -> None:
    """The second has looked at the mark before the first commits; its files are removed."""
    begin(kind, lake, is_upsert=is_upsert, row_bytes=0)
    elder, younger = Writer(kind, lake), Writer(kind, lake)

    def at(point: str) -> None:
        if point == "in-commit" and not done:
            done.append(younger.take(1, rows_of(SECOND, 1), deleted=DELETED, is_upsert=is_upsert))

    done: list[bool] = []
    assert not elder.take(1, rows_of(SECOND, 1), deleted=DELETED, is_upsert=is_upsert, at=at)
    assert done == [True]
    before = data_paths(lake)
    finish(kind, lake, rows, is_upsert=is_upsert, row_bytes=0)
    assert not {each for each in before if elder.name(1).run in each}


@pytest.mark.parametrize("is_upsert", [False, True], ids=["append", "upsert"])
def test_a_foreign_writer_between_look_and_commit_costs_no_row(
    kind: str, lake: Path, rows: Read, is_upsert: bool
) -> None:
    begin(kind, lake, is_upsert=is_upsert, row_bytes=0)
    driver = Writer(kind, lake)
    foreign = rows_of([4, 500], 7)
    added: list[bool] = []

    def at(point: str) -> None:
        if point == "in-commit" and not added:
            added.append(True)
            foreign_append(kind, lake, foreign)

    assert driver.take(1, rows_of(SECOND, 1), deleted=DELETED, is_upsert=is_upsert, at=at)
    Writer(kind, lake).take(2, rows_of(THIRD, 2), is_upsert=is_upsert)
    wanted = expected(is_upsert=is_upsert, row_bytes=0)
    kept = [row for row in foreign if not (is_upsert and row["id"] in SECOND)]
    assert rows() == sorted([*wanted, *kept], key=lambda row: (row["id"], row["batch"]))
    gone = data_paths(lake) - set(live_paths(kind, lake))
    assert not [each for each in gone if "-tkeep-" in each and driver.name(1).run in each and not is_upsert]


def foreign_append(kind: str, lake: Path, found: Rows) -> None:
    """Rows from a writer that shares no code with the sink."""
    import pyarrow as pa
    from tests.contract.tables.writing import COLUMNS

    table: Any = opened(kind, lake)
    rows = pa.Table.from_pylist(found, COLUMNS)
    if kind == "delta":
        from deltalake import write_deltalake

        write_deltalake(str(lake), rows, mode="append")
        return
    table._table.append(rows)


def test_a_lost_answer_is_no_reason_to_write_or_remove_anything(
    kind: str, lake: Path, rows: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit arrives, and its answer does not."""
    begin(kind, lake, is_upsert=False, row_bytes=0)
    driver = Writer(kind, lake)
    commit = driver.table.commit

    def lost(change: Any) -> None:
        commit(change)
        raise OSError("connection reset")

    monkeypatch.setattr(driver.table, "commit", lost)
    assert driver.take(1, rows_of(SECOND, 1))
    finish(kind, lake, rows, is_upsert=False, row_bytes=0)


def test_a_commit_with_an_unknown_outcome_leaves_its_files_for_the_next_attempt(
    kind: str, lake: Path, rows: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(kind, lake, is_upsert=False, row_bytes=0)
    driver = Writer(kind, lake)

    def away(_: Any) -> None:
        raise OSError("connection reset")

    monkeypatch.setattr(driver.table, "commit", away)
    with pytest.raises(OSError, match="connection reset"):
        driver.take(1, rows_of(SECOND, 1))
    assert [each for each in data_paths(lake) if driver.name(1).run in each]
    finish(kind, lake, rows, is_upsert=False, row_bytes=0)
    check_no_leftovers(kind, lake, set())


def test_a_batch_is_recognised_after_its_snapshot_has_expired(kind: str, lake: Path, rows: Read) -> None:
    """By foreign commits, a checkpoint and the removal of every old version."""
    writer = Writer(kind, lake)
    writer.take(0, rows_of(FIRST, 0))
    writer.take(1, rows_of(SECOND, 1))
    foreign_append(kind, lake, rows_of([500], 7))
    writer.table.refresh()
    import time

    writer.table.expire(0, int(time.time() * 1_000) + 60_000)
    if kind == "delta":
        for each in sorted((lake / "_delta_log").glob("*.json"))[:-1]:
            each.unlink()  # as the clean-up of the log does after 30 days
    again = Writer(kind, lake)
    assert not again.take(1, rows_of(SECOND, 1))
    again.take(2, rows_of(THIRD, 2))
    wanted = [*expected(is_upsert=False, row_bytes=0), *rows_of([500], 7)]
    assert rows() == sorted(wanted, key=lambda row: (row["id"], row["batch"]))


def test_a_batch_with_another_end_is_not_taken_for_done(kind: str, lake: Path, rows: Read) -> None:
    writer = Writer(kind, lake)
    writer.take(0, rows_of(FIRST, 0))
    for mark in (writer.mark(0, end=99), writer.mark(0, topic_id="created again")):
        with pytest.raises(NotTheSameBatch, match="older copy, or a topic was created again"):
            Writer(kind, lake).take(0, rows_of(SECOND, 0), mark=mark)
    assert rows() == rows_of(FIRST, 0)


def test_a_driver_behind_the_table_stops(kind: str, lake: Path) -> None:
    writer = Writer(kind, lake)
    writer.take(0, rows_of(FIRST, 0))
    writer.take(1, rows_of(SECOND, 1))
    with pytest.raises(Replaced):
        Writer(kind, lake).take(0, rows_of(FIRST, 0))


def test_the_end_of_a_batch_restores_a_lost_plan(kind: str, lake: Path) -> None:
    writer = Writer(kind, lake)
    writer.take(0, rows_of(FIRST, 0))
    writer.take(1, rows_of(SECOND, 1))
    held = opened(kind, lake).mark(writer.name(0).query)
    assert held is not None
    before = 'v1\n{"batchWatermarkMs":0}\n{"orders":{"0":0}}'
    restored = held.plan_text(before)
    assert restored is not None
    assert restored.splitlines()[:2] == before.splitlines()[:2]
    assert json.loads(restored.splitlines()[2]) == held.sources[0]


def test_a_driver_that_adds_columns_sees_the_batch_that_another_commits_meanwhile(
    kind: str, lake: Path, rows: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second driver commits between the two steps in which the first changes a Delta table."""
    import pyarrow as pa
    from tests.contract.tables.writing import COLUMNS

    if kind == "iceberg":
        pytest.skip("Iceberg adds columns and files in one commit")
    begin(kind, lake, is_upsert=False, row_bytes=0)
    wider = pa.schema([*COLUMNS, ("extra", pa.int64())])
    elder, younger = Writer(kind, lake, columns=wider), Writer(kind, lake, columns=wider)
    table: Any = elder.table
    refresh = table.refresh

    def late() -> None:
        if "extra" in opened(kind, lake).columns().names and not done:
            done.append(True)
            assert younger.take(1, rows_of(SECOND, 1))
        refresh()

    done: list[bool] = []
    monkeypatch.setattr(table, "refresh", late)
    assert not elder.take(1, rows_of(SECOND, 1))
    assert done == [True]
    assert [(row["id"], row["batch"]) for row in rows()] == sorted(
        [*((each, 0) for each in FIRST), *((each, 1) for each in SECOND)]
    )


def test_a_column_that_another_writer_adds_with_another_type_takes_no_file_of_this_one(
    kind: str, lake: Path, rows: Read
) -> None:
    import pyarrow as pa
    from tests.contract.tables.writing import COLUMNS

    from barnabas.pipelines.tables.commits import TooManyConflicts

    begin(kind, lake, is_upsert=False, row_bytes=0)
    one = Writer(kind, lake, columns=pa.schema([*COLUMNS, ("a", pa.int64())]), query="one")
    two = Writer(kind, lake, columns=pa.schema([*COLUMNS, ("a", pa.string())]), query="two")
    done: list[bool] = []

    def at(point: str) -> None:
        if point == "after-write" and not done:
            done.append(two.take(0, [{**rows_of([90], 0)[0], "a": "x"}]))

    with pytest.raises(TooManyConflicts):
        one.take(0, [{**rows_of([91], 0)[0], "a": 7}], at=at)
    assert [row["id"] for row in rows()] == [*FIRST, 90]
    assert not [each for each in data_paths(lake) if one.name(0).run in each]


def test_the_mark_of_the_last_commit_is_found_in_that_commit(
    lake: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "iceberg":
        pytest.skip("Iceberg's marks are properties of the table")
    from deltalake import DeltaTable

    writer = Writer(kind, lake)
    for batch in range(3):
        writer.take(batch, rows_of([batch], batch))
    read: list[int] = []
    history = DeltaTable.history

    def counted(self: Any, limit: int | None = None) -> Any:
        found = history(self, limit)
        read.append(len(found))
        return found

    monkeypatch.setattr(DeltaTable, "history", counted)
    query = writer.name(0).query
    assert writer.table.mark(query) == writer.mark(2)
    assert read == [1]
    foreign_append(kind, lake, rows_of([77], 0))
    writer.table.refresh()
    assert writer.table.mark(query) == writer.mark(2)
    assert max(read) <= 5
