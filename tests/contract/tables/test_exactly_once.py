"""Kill matrix of the table sink's commits: drivers die by SIGKILL or come back, and each row is there once.

A process writes one batch and is killed at a point. The batch then runs again, as Spark runs it, and
another follows. Polars and DuckDB must read exactly the rows of the input, and no file may be left of an
attempt that did not win.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.contract.tables.drivers import (
    CASES,
    DELETED,
    FIRST,
    FULL,
    MODES,
    SECOND,
    THIRD,
    Given,
    Process,
    Read,
    begin,
    expected,
    finish,
    in_order,
    options_of,
    repeat,
)
from tests.contract.tables.writing import Writer, opened, rows_of
from tests.support.table_reading import Rows, data_paths, iceberg_table, live_paths

from barnabas.core.clock import SystemClock
from barnabas.pipelines.tables.commits import NotTheSameBatch, Replaced


def check_no_leftovers(kind: str, lake: Path, kept: set[str]) -> None:
    """Every file is live, or was committed and is kept for readers of an older version."""
    assert data_paths(lake) - set(live_paths(kind, lake)) <= kept


@pytest.mark.parametrize("row_bytes", [100, pytest.param(1_000_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("mode", "point"), CASES)
def test_a_driver_killed_anywhere_leaves_every_row_once(
    kind: str, lake: Path, rows: Read, tmp_path: Path, mode: str, point: str, row_bytes: int
) -> None:
    is_upsert = mode == "upsert"
    options, given = options_of(kind, lake), Given(is_upsert=is_upsert, row_bytes=row_bytes)
    begin(options, **given)
    committed = set(live_paths(kind, lake))
    Process(options, tmp_path / "killed", point, dies=True, **given).wait_killed()
    committed |= set(live_paths(kind, lake))
    repeat(options, **given)
    committed |= set(live_paths(kind, lake))
    finish(options, rows, **given)
    check_no_leftovers(kind, lake, committed)


@pytest.mark.parametrize("row_bytes", [0, pytest.param(1_000_000, marks=FULL)])
@pytest.mark.parametrize(("mode", "point"), CASES)
def test_a_driver_thought_dead_changes_nothing_when_it_goes_on(
    kind: str, lake: Path, rows: Read, tmp_path: Path, mode: str, point: str, row_bytes: int
) -> None:
    options, given = options_of(kind, lake), Given(is_upsert=mode == "upsert", row_bytes=row_bytes)
    begin(options, **given)
    zombie = Process(options, tmp_path / "zombie", point, dies=False, **given)
    try:
        zombie.wait_reached()
        finish(options, rows, **given)
        errors = zombie.release()
    finally:
        zombie.kill()
    if point == "mid-write":
        assert errors, "a driver that was replaced took itself for successful"
    elif point != "after-commit":
        assert "another driver has replaced it" in errors
    assert rows() == expected(**given)
    assert all(Path(each).exists() for each in live_paths(kind, lake))


@pytest.mark.kill_matrix
@pytest.mark.parametrize("row_bytes", [100, 1_000_000])
@pytest.mark.parametrize(("mode", "point"), CASES)
def test_other_writers_between_a_death_and_the_successor_cost_no_row(
    kind: str, lake: Path, rows: Read, tmp_path: Path, mode: str, point: str, row_bytes: int
) -> None:
    """One adds rows, also of a key of the batch, and deletes one: files that an upsert replaces change."""
    is_upsert = mode == "upsert"
    options, given = options_of(kind, lake), Given(is_upsert=is_upsert, row_bytes=row_bytes)
    begin(options, **given)
    Process(options, tmp_path / "killed", point, dies=True, **given).wait_killed()
    foreign = rows_of([4, 500], 7, row_bytes)
    foreign_append(kind, lake, foreign)
    foreign_delete(kind, lake, 2)
    repeat(options, **given)
    Writer(kind, lake).take(2, rows_of(THIRD, 2, row_bytes), is_upsert=is_upsert)
    is_replaced = is_upsert and point != "after-commit"
    kept = [row for row in foreign if not (is_replaced and row["id"] in SECOND)]
    assert rows() == in_order([*(row for row in expected(**given) if row["id"] != 2), *kept])


@MODES
def test_another_writer_that_rewrites_files_in_a_commit_costs_no_row(
    kind: str, lake: Path, rows: Read, is_upsert: bool
) -> None:
    """The row that it deletes shares a file with rows that the batch replaces."""
    given = Given(is_upsert=is_upsert, row_bytes=0)
    begin(options_of(kind, lake), **given)
    driver = Writer(kind, lake)
    done: list[bool] = []

    def at(point: str) -> None:
        if point == "in-commit" and not done:
            done.append(True)
            foreign_delete(kind, lake, 2)

    assert driver.take(1, rows_of(SECOND, 1), deleted=DELETED, is_upsert=is_upsert, at=at)
    Writer(kind, lake).take(2, rows_of(THIRD, 2), is_upsert=is_upsert)
    assert rows() == [row for row in expected(**given) if row["id"] != 2]
    assert all(Path(each).exists() for each in live_paths(kind, lake))


@MODES
def test_of_two_drivers_with_the_same_batch_one_commits_it(
    kind: str, lake: Path, rows: Read, is_upsert: bool
) -> None:
    """The second has looked at the mark before the first commits; its files are removed."""
    begin(options_of(kind, lake), is_upsert=is_upsert, row_bytes=0)
    elder, younger = Writer(kind, lake), Writer(kind, lake)

    def at(point: str) -> None:
        if point == "in-commit" and not done:
            done.append(younger.take(1, rows_of(SECOND, 1), deleted=DELETED, is_upsert=is_upsert))

    done: list[bool] = []
    assert not elder.take(1, rows_of(SECOND, 1), deleted=DELETED, is_upsert=is_upsert, at=at)
    assert done == [True]
    before = data_paths(lake)
    finish(options_of(kind, lake), rows, is_upsert=is_upsert, row_bytes=0)
    assert not {each for each in before if elder.name(1).run in each}


@MODES
def test_a_foreign_writer_between_look_and_commit_costs_no_row(
    kind: str, lake: Path, rows: Read, is_upsert: bool
) -> None:
    begin(options_of(kind, lake), is_upsert=is_upsert, row_bytes=0)
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
    assert rows() == in_order([*wanted, *kept])
    gone = data_paths(lake) - set(live_paths(kind, lake))
    assert not [each for each in gone if "-tkeep-" in each and driver.name(1).run in each and not is_upsert]


def foreign_append(kind: str, lake: Path, found: Rows) -> None:
    """Rows from a writer that shares no code with the sink."""
    import pyarrow as pa
    from tests.contract.tables.writing import COLUMNS

    rows = pa.Table.from_pylist(found, COLUMNS)
    if kind == "delta":
        from deltalake import write_deltalake

        write_deltalake(str(lake), rows, mode="append")
        return
    iceberg_table(lake).append(rows)


def foreign_delete(kind: str, lake: Path, number: int) -> None:
    """The files with the row are written again without it, by a writer that shares no code with the sink."""
    if kind == "delta":
        from deltalake import DeltaTable

        DeltaTable(str(lake)).delete(f"id = {number}")
        return
    iceberg_table(lake).delete(f"id == {number}")


def test_a_lost_answer_is_no_reason_to_write_or_remove_anything(
    kind: str, lake: Path, rows: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit arrives, and its answer does not."""
    begin(options_of(kind, lake), is_upsert=False, row_bytes=0)
    driver = Writer(kind, lake)
    commit = driver.table.commit

    def lost(change: Any) -> None:
        commit(change)
        raise OSError("connection reset")

    monkeypatch.setattr(driver.table, "commit", lost)
    assert driver.take(1, rows_of(SECOND, 1))
    finish(options_of(kind, lake), rows, is_upsert=False, row_bytes=0)


def test_an_upsert_whose_answer_is_lost_counts_once(
    kind: str, lake: Path, rows: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files that it has replaced are gone, so a second look would find other ones to replace."""
    given = Given(is_upsert=True, row_bytes=0)
    begin(options_of(kind, lake), **given)
    driver = Writer(kind, lake)
    commit = driver.table.commit

    def lost(change: Any) -> None:
        commit(change)
        raise OSError("connection reset")

    monkeypatch.setattr(driver.table, "commit", lost)
    assert driver.take(1, rows_of(SECOND, 1), deleted=DELETED, is_upsert=True)
    assert all(Path(each).exists() for each in live_paths(kind, lake))
    finish(options_of(kind, lake), rows, **given)


@MODES
def test_a_commit_with_an_unknown_outcome_leaves_its_files_for_the_next_attempt(
    kind: str, lake: Path, rows: Read, monkeypatch: pytest.MonkeyPatch, is_upsert: bool
) -> None:
    given = Given(is_upsert=is_upsert, row_bytes=0)
    begin(options_of(kind, lake), **given)
    committed = set(live_paths(kind, lake))
    driver = Writer(kind, lake)

    def away(_: Any) -> None:
        raise OSError("connection reset")

    monkeypatch.setattr(driver.table, "commit", away)
    with pytest.raises(OSError, match="connection reset"):
        driver.take(1, rows_of(SECOND, 1), deleted=DELETED, is_upsert=is_upsert)
    assert [each for each in data_paths(lake) if driver.name(1).run in each]
    repeat(options_of(kind, lake), **given)
    committed |= set(live_paths(kind, lake))
    finish(options_of(kind, lake), rows, **given)
    check_no_leftovers(kind, lake, committed)


@MODES
def test_a_batch_is_recognised_after_its_snapshot_has_expired(
    kind: str, lake: Path, rows: Read, tmp_path: Path, is_upsert: bool
) -> None:
    """Its driver died after the commit. Foreign commits, a checkpoint and the removal of every old version
    came before the successor."""
    options, given = options_of(kind, lake), Given(is_upsert=is_upsert, row_bytes=0)
    begin(options, **given)
    Process(options, tmp_path / "killed", "after-commit", dies=True, **given).wait_killed()
    foreign_append(kind, lake, rows_of([500], 7))
    keeper = Writer(kind, lake)
    keeper.table.expire(0, SystemClock().now_ms() + 60_000)
    if kind == "delta":
        for each in sorted((lake / "_delta_log").glob("*.json"))[:-1]:
            each.unlink()  # as the clean-up of the log does after 30 days
    again = Writer(kind, lake)
    assert not again.take(1, rows_of(SECOND, 1), deleted=DELETED, is_upsert=is_upsert)
    again.take(2, rows_of(THIRD, 2), is_upsert=is_upsert)
    assert rows() == in_order([*expected(**given), *rows_of([500], 7)])


@MODES
def test_a_batch_with_another_end_is_not_taken_for_done(
    kind: str, lake: Path, rows: Read, is_upsert: bool
) -> None:
    writer = Writer(kind, lake)
    writer.take(0, rows_of(FIRST, 0))
    for mark in (writer.mark(0, end=99), writer.mark(0, topic_id="created again")):
        with pytest.raises(NotTheSameBatch, match="older copy, or a topic was created again"):
            Writer(kind, lake).take(0, rows_of(SECOND, 0), is_upsert=is_upsert, mark=mark)
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
    begin(options_of(kind, lake), is_upsert=False, row_bytes=0)
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

    begin(options_of(kind, lake), is_upsert=False, row_bytes=0)
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
