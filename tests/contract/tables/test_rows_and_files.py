"""Columns, keys, partitions and maintenance of tables, as Polars and DuckDB see them."""

from __future__ import annotations

import datetime as dt
import decimal
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.contract.tables.test_exactly_once import foreign_append
from tests.contract.tables.writing import COLUMNS, Writer, opened, rows_of
from tests.support.table_reading import Rows, data_paths, live_paths, query

from barnabas.core.clock import SystemClock
from barnabas.pipelines.tables.data_files import partition_text, write_files
from barnabas.pipelines.tables.schemas import DoesNotFit, conform, difference
from barnabas.pipelines.tables.table import Change, Conflict, TableRefused
from barnabas.pipelines.tables.upkeep import maintain

Read = Callable[[], Rows]
MINUTE_MS = 60_000


def test_every_type_reads_back_as_it_was_written(kind: str, lake: Path, rows: Read) -> None:
    columns = pa.schema(
        [
            ("id", pa.int64()), ("batch", pa.int32()), ("yes", pa.bool_()), ("f", pa.float64()),
            ("n", pa.decimal128(20, 4)), ("day", pa.date32()), ("at", pa.timestamp("us", "UTC")),
            ("local", pa.timestamp("us")), ("raw", pa.binary()), ("tags", pa.list_(pa.string())),
            ("counts", pa.map_(pa.string(), pa.int64())),
            ("who", pa.struct([("name", pa.string()), ("marks", pa.list_(pa.int32()))])),
        ]
    )  # fmt: skip
    whole = {
        "id": -(2**63), "batch": 0, "yes": True, "f": float("inf"),
        "n": decimal.Decimal("-1234567890123456.7891"),
        "day": dt.date(1, 1, 1), "at": dt.datetime(2024, 2, 29, 23, 59, 59, 123456, dt.UTC),
        "local": dt.datetime(1969, 12, 31, 23, 59, 59, 999999),  # noqa: DTZ001 - a time without a zone
        "raw": b"\x00\xff", "tags": ["", "é", None],
        "counts": {"a": 1}, "who": {"name": "ada", "marks": [1, 2]},
    }  # fmt: skip
    nothing = {**dict.fromkeys(columns.names), "id": 1, "batch": 0}
    Writer(kind, lake, columns=columns).take(0, [whole, nothing])
    found, empty = rows()
    assert found == whole
    assert empty == nothing


@pytest.mark.parametrize("value", ["a/ b=c%", "", "é", None, "__x"])
def test_a_partition_value_reads_back_as_it_was_written(
    kind: str, lake: Path, rows: Read, value: str | None
) -> None:
    if value == "" and kind == "delta":
        pytest.skip("Delta's protocol has no empty partition value: it means null")
    writer = Writer(kind, lake, by=["text"])
    writer.take(0, [{"id": 1, "text": value, "batch": 0}, {"id": 2, "text": "other", "batch": 0}])
    assert [row["text"] for row in rows()] == [value, "other"]
    assert {file.partition["text"] for file in Writer(kind, lake).table.live_files()} == {value, "other"}


def test_columns_are_added_in_the_commit_and_ids_follow(kind: str, lake: Path, rows: Read) -> None:
    """Rows of an older writer, which lacks the column, go on being written beside the new ones."""
    elder = Writer(kind, lake)
    elder.take(0, rows_of([1], 0))
    wider = pa.schema([*COLUMNS, ("extra", pa.struct([("x", pa.int64())]))])
    younger = Writer(kind, lake, columns=wider, query="another")
    younger.take(0, [{**rows_of([2], 0)[0], "extra": {"x": 5}}])
    elder.take(1, rows_of([3], 1))
    assert [(row["id"], row["extra"]) for row in rows()] == [(1, None), (2, {"x": 5}), (3, None)]


def test_two_writers_that_add_columns_at_once_lose_neither(kind: str, lake: Path, rows: Read) -> None:
    Writer(kind, lake).take(0, rows_of([1], 0))
    one = Writer(kind, lake, columns=pa.schema([*COLUMNS, ("a", pa.int64())]), query="one")
    two = Writer(kind, lake, columns=pa.schema([*COLUMNS, ("b", pa.string())]), query="two")
    done: list[bool] = []

    def at(point: str) -> None:
        if point == "after-write" and not done:
            done.append(two.take(0, [{**rows_of([2], 0)[0], "b": "x"}]))

    row = {**rows_of([3], 0)[0], "a": 7}
    if kind == "delta":
        one.take(0, [row], at=at)
    else:
        # The ids that its files carry belong to the other's column now: the batch runs again.
        from barnabas.pipelines.tables.commits import TooManyConflicts

        with pytest.raises(TooManyConflicts):
            one.take(0, [row], at=at)
        one.take(0, [row])
    assert [(row["id"], row["a"], row["b"]) for row in rows()] == [
        (1, None, None),
        (2, None, "x"),
        (3, 7, None),
    ]


@pytest.mark.parametrize(
    ("value", "given", "there"),
    [
        (2**31, pa.int64(), pa.int32()),
        (0.5, pa.float64(), pa.float32()),
        ("7", pa.string(), pa.int32()),
        (7, pa.int32(), pa.string()),
        (2**53 + 1, pa.int64(), pa.float64()),
        (decimal.Decimal("1.25"), pa.decimal128(5, 2), pa.decimal128(5, 1)),
    ],
)
def test_a_value_is_never_changed_silently(value: Any, given: pa.DataType, there: pa.DataType) -> None:
    batch = pa.RecordBatch.from_pylist([{"x": value}], pa.schema([("x", given)]))
    with pytest.raises(DoesNotFit, match="column x"):
        conform(batch, pa.schema([("x", there)]))


def test_a_name_in_another_case_is_no_new_column() -> None:
    with pytest.raises(DoesNotFit, match="column ID is id in the table"):
        difference(pa.schema([("ID", pa.int64())]), COLUMNS, can_widen=True)


def test_keys_of_several_columns_replace_their_rows_alone(kind: str, lake: Path, rows: Read) -> None:
    writer = Writer(kind, lake)
    writer.take(0, [*rows_of([1, 2, 3], 0), *rows_of([1, 2, 3], 5)])
    keys = pa.table({"id": pa.array([2, 3, 9], pa.int64()), "batch": pa.array([5, 0, 0], pa.int32())})
    from barnabas.pipelines.tables.copy_on_write import without_keys

    layout = writer.layout()
    done = without_keys(writer.table, keys, layout, writer.name(1))
    writer.table.commit(Change(writer.mark(1), done.added, done.removed))
    assert [(row["id"], row["batch"]) for row in rows()] == [(1, 0), (1, 5), (2, 0), (3, 5)]


def test_files_without_a_key_of_the_batch_are_left_alone(kind: str, lake: Path) -> None:
    writer = Writer(kind, lake)
    writer.take(0, rows_of(range(100), 0))
    first = set(live_paths(kind, lake))
    writer.take(1, rows_of(range(100, 200), 1))
    writer.take(2, rows_of([150], 2), is_upsert=True)
    assert first <= set(live_paths(kind, lake))


def test_maintenance_makes_few_files_and_keeps_every_row(kind: str, lake: Path, rows: Read) -> None:
    writer = Writer(kind, lake, by=["batch"])
    for batch in range(8):
        writer.take(batch, [{**row, "batch": batch % 2} for row in rows_of([batch], batch)])
    foreign_append(kind, lake, rows_of([77], 1))
    before = rows()
    layout, clock = writer.layout(), SystemClock()
    orphan = Path(next(iter(data_paths(lake)))).with_name("part-of-a-dead-attempt.zstd.parquet")
    young = orphan.with_name("part-of-a-running-attempt.zstd.parquet")
    for each in (orphan, young):
        each.write_bytes(b"PAR1")
    os.utime(orphan, (0, 0))
    done = maintain(writer.table, layout, writer.name(7), 60 * MINUTE_MS, clock)
    assert done.compacted == 9
    assert len(live_paths(kind, lake)) == 2
    assert rows() == before
    assert not orphan.exists()
    assert young.exists()
    assert len(data_paths(lake)) > 2, "versions of the last hour are kept with their files"
    figures = writer.table.figures()
    assert (figures.rows, figures.files) == (9, 2)
    assert maintain(writer.table, layout, writer.name(7), 60 * MINUTE_MS, clock).compacted == 0
    assert writer.table.mark(writer.name(0).query) is not None
    assert not Writer(kind, lake).take(7, rows_of([7], 7))


def test_maintenance_yields_to_another_writer(
    kind: str, lake: Path, rows: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = Writer(kind, lake)
    for batch in range(3):
        writer.take(batch, rows_of([batch], batch))
    commit = writer.table.commit

    def late(change: Change) -> None:
        foreign_append(kind, lake, rows_of([77], 0))
        commit(change)

    monkeypatch.setattr(writer.table, "commit", late)
    assert (
        maintain(writer.table, writer.layout(), writer.name(2), 60 * MINUTE_MS, SystemClock()).compacted == 0
    )
    assert [row["id"] for row in rows()] == [0, 1, 2, 77]
    assert not [each for each in data_paths(lake) if "-tcompact-" in each]


def test_old_versions_go_with_their_files(kind: str, lake: Path, rows: Read) -> None:
    writer = Writer(kind, lake)
    for batch in range(4):
        writer.take(batch, rows_of([1, batch + 10], batch), is_upsert=True)
    for each in data_paths(lake):
        os.utime(each, (0, 0))
    before = rows()
    writer.table.expire(0, SystemClock().now_ms() + MINUTE_MS)
    assert data_paths(lake) == set(live_paths(kind, lake))
    assert rows() == before


def test_an_attempt_that_fails_leaves_no_file(kind: str, lake: Path) -> None:
    writer = Writer(kind, lake, by=["text"])
    layout = writer.layout()

    def failing() -> Any:
        yield pa.RecordBatch.from_pylist(rows_of([1, 2], 0), COLUMNS)
        raise RuntimeError("the task fails")

    with pytest.raises(RuntimeError, match="the task fails"):
        write_files(failing(), layout, writer.name(0), 0)
    assert data_paths(lake) == set()


def test_a_file_is_closed_at_its_target_size(
    kind: str, lake: Path, rows: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    from barnabas.pipelines.tables import data_files

    monkeypatch.setattr(data_files, "ROW_GROUP_BYTES_MAX", 10_000)
    writer = Writer(kind, lake)
    table = writer.table
    layout = table.layout(table.columns(), 4_000, "none")
    batches = [pa.RecordBatch.from_pylist(rows_of([at], 0, 11_000), COLUMNS) for at in range(3)]
    files = write_files(batches, layout, writer.name(0), 0)
    table.commit(Change(writer.mark(0), files))
    assert [each.rows for each in files] == [1, 1, 1]
    assert [row["id"] for row in rows()] == [0, 1, 2]


def test_bounds_hide_no_row_from_readers(kind: str, lake: Path) -> None:
    """Not a number, long texts and microseconds: what a reader skips by must not be too narrow."""
    columns = pa.schema(
        [("id", pa.int64()), ("f", pa.float64()), ("text", pa.string()), ("at", pa.timestamp("us", "UTC"))]
    )
    moment = dt.datetime(2024, 1, 1, 0, 0, 0, 999_999, dt.UTC)
    Writer(kind, lake, columns=columns).take(
        0,
        [
            {"id": 1, "f": float("nan"), "text": "z" * 100, "at": moment},
            {"id": 2, "f": 1.0, "text": "a", "at": moment},
        ],
    )
    assert query(kind, lake, "SELECT count(*) FROM rows WHERE f > 5") == [(1,)]
    polars = pytest.importorskip("polars")
    from tests.support.table_reading import scan

    frame = scan(kind, lake)
    assert frame.filter(polars.col("text") > "z" * 90).collect().height == 1
    assert frame.filter(polars.col("at") >= moment).collect().height == 2


def test_a_table_that_cannot_be_written_is_refused(kind: str, lake: Path) -> None:
    Writer(kind, lake).take(0, rows_of([1], 0))
    if kind == "delta":
        import deltalake

        table = deltalake.DeltaTable(str(lake))
        table.alter.set_table_properties({"delta.appendOnly": "true"})
        with pytest.raises(TableRefused, match="append-only"):
            opened(kind, lake).refuse_rewrites()
        table.alter.add_feature(
            deltalake.TableFeatures.DeletionVectors, allow_protocol_versions_increase=True
        )
        with pytest.raises(TableRefused, match="deletionVectors"):
            opened(kind, lake)
        return
    table_of: Any = opened(kind, lake)
    with table_of._table.update_spec() as spec:
        spec.add_field("text", "truncate[2]", "text_2")
    with pytest.raises(TableRefused, match="partitioned by truncate"):
        opened(kind, lake)


def test_a_missing_table_is_created_only_if_asked(kind: str, lake: Path) -> None:
    from barnabas.pipelines.tables.open_table import open_table

    with pytest.raises(TableRefused, match="create is false"):
        open_table({"format": kind, "path": str(lake)}, COLUMNS, (), SystemClock(), create=False)
    assert not lake.exists()


@pytest.mark.parametrize("scheme", ["file:", "file://"])
def test_maintenance_removes_no_file_that_another_writer_names_in_another_form(
    lake: Path, rows: Read, kind: str, scheme: str
) -> None:
    """Java's writers begin the path of a local file with `file:/`, Python's with `file:///`."""
    if kind == "delta":
        pytest.skip("Delta's paths are relative")
    from pyiceberg.io.pyarrow import parquet_file_to_data_file

    Writer(kind, lake).take(0, rows_of([1], 0))
    table: Any = opened(kind, lake)
    layout = table.layout(table.columns(), 1 << 20, "zstd")
    writer = Writer(kind, lake)
    batch = conform(pa.RecordBatch.from_pylist(rows_of([2], 1), COLUMNS), layout.schema)
    (file,) = write_files([batch], layout, writer.name(1), 0)
    work = table._table.transaction()
    with work.update_snapshot().fast_append() as files:
        path = f"{scheme}{lake / file.path}"
        files.append_data_file(parquet_file_to_data_file(table._table.io, work.table_metadata, path))
    work.commit_transaction()
    for each in data_paths(lake):
        os.utime(each, (0, 0))
    writer.table.expire(60 * MINUTE_MS, SystemClock().now_ms())
    assert (lake / file.path).exists()
    assert [row["id"] for row in rows()] == [1, 2]


def test_the_search_for_unneeded_files_reads_each_manifest_once(
    kind: str, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "delta":
        pytest.skip("deltalake searches by itself")
    from pyiceberg.manifest import ManifestFile

    writer = Writer(kind, lake)
    for batch in range(6):
        writer.take(batch, rows_of([batch], batch))
    fetched: list[str] = []
    fetch = ManifestFile.fetch_manifest_entry

    def counted(self: Any, *given: Any, **named: Any) -> Any:
        fetched.append(self.manifest_path)
        return fetch(self, *given, **named)

    monkeypatch.setattr(ManifestFile, "fetch_manifest_entry", counted)
    writer.table.expire(60 * MINUTE_MS, SystemClock().now_ms())
    assert len(fetched) == len(set(fetched)) == 6


@pytest.mark.parametrize("name", ["my table", "é", "orders.v1"])
def test_a_table_has_any_name_that_a_directory_has(kind: str, tmp_path: Path, name: str) -> None:
    lake = tmp_path / name
    Writer(kind, lake).take(0, rows_of([1, 2], 0))
    Writer(kind, lake).take(1, rows_of([2], 1), is_upsert=True)
    assert [each.name for each in tmp_path.iterdir()] == [name]
    assert sum(each.rows for each in Writer(kind, lake).table.live_files()) == 2
    writer = Writer(kind, lake)
    for each in data_paths(lake):
        os.utime(each, (0, 0))
    live = set(live_paths(kind, lake)) if kind == "iceberg" else data_paths(lake)
    writer.table.expire(60 * MINUTE_MS, SystemClock().now_ms())
    assert live <= data_paths(lake)


def test_old_versions_stay_for_the_whole_time_that_the_spec_says(kind: str, lake: Path) -> None:
    writer = Writer(kind, lake)
    writer.take(0, rows_of([1], 0))
    clock = SystemClock()
    orphan = Path(next(iter(data_paths(lake)))).with_name("part-of-a-running-attempt.zstd.parquet")
    orphan.write_bytes(b"PAR1")
    changed_s = clock.now_ms() / 1_000 - 90 * 60
    os.utime(orphan, (changed_s, changed_s))
    writer.table.expire(119 * MINUTE_MS, clock.now_ms())
    assert orphan.exists()


def test_compaction_whose_answer_is_lost_removes_nothing(
    kind: str, lake: Path, rows: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A storage client repeats a write that arrived, finds the version taken, and reports a conflict."""
    writer = Writer(kind, lake)
    for batch in range(3):
        writer.take(batch, rows_of([batch], batch))
    commit = writer.table.commit

    def lost(change: Change) -> None:
        commit(change)
        raise Conflict("the version exists")

    monkeypatch.setattr(writer.table, "commit", lost)
    maintain(writer.table, writer.layout(), writer.name(2), 60 * MINUTE_MS, SystemClock())
    assert all(Path(each).exists() for each in live_paths(kind, lake))
    assert [row["id"] for row in rows()] == [0, 1, 2]


def test_partitions_with_one_file_do_not_keep_others_from_compaction() -> None:
    from barnabas.pipelines.tables.copy_on_write import FILES_PER_ROUND_MAX, small_groups
    from barnabas.pipelines.tables.table import LiveFile

    def file(day: str, number: int) -> LiveFile:
        return LiveFile(f"day={day}/{number}.parquet", 10, 1, {"day": day}, {}, None)

    single = [file(f"{at:05}", 0) for at in range(FILES_PER_ROUND_MAX)]
    many = [file("99999", at) for at in range(FILES_PER_ROUND_MAX + 5)]
    groups = small_groups([*single, *many], 1 << 20)
    assert sum(map(len, groups)) == FILES_PER_ROUND_MAX


@pytest.mark.parametrize(
    ("value", "column", "text"),
    [
        (dt.datetime(999, 1, 1, 5), pa.timestamp("us"), "0999-01-01 05:00:00.000000"),  # noqa: DTZ001 - a time without a zone
        (dt.datetime(2024, 1, 1, 5, tzinfo=dt.UTC), pa.timestamp("us", "UTC"), "2024-01-01 05:00:00.000000"),
        (float("-inf"), pa.float64(), "-Infinity"),
        (decimal.Decimal("0E-8"), pa.decimal128(20, 8), "0.00000000"),
    ],
)
def test_a_partition_has_the_form_that_deltas_protocol_gives(
    kind: str, lake: Path, rows: Read, value: Any, column: pa.DataType, text: str
) -> None:
    assert partition_text(value) == text
    columns = pa.schema([*COLUMNS, ("at", column)])
    Writer(kind, lake, columns=columns, by=["at"]).take(0, [{**rows_of([1], 0)[0], "at": value}])
    assert [row["at"] for row in rows()] == [value]


@pytest.mark.parametrize("column", [pa.binary(), pa.list_(pa.int32()), pa.struct([("x", pa.int32())])])
def test_a_column_that_no_directory_can_name_is_no_partition(
    kind: str, lake: Path, column: pa.DataType
) -> None:
    with pytest.raises(TableRefused, match="cannot be partitioned by at"):
        opened(kind, lake, pa.schema([*COLUMNS, ("at", column)]), ["at"])
    assert not lake.exists()


def test_the_longest_time_to_keep_is_one_that_maintenance_can_reckon_with(kind: str, lake: Path) -> None:
    from barnabas.pipelines.spec.options.option import duration_ms
    from barnabas.pipelines.spec.options.sinks import KEEP_MS_MAX, TABLE

    option = TABLE.option("keep")
    assert option is not None
    assert option.check is not None
    assert option.check("1000000 days") is not None
    assert option.check("36500 days") is None
    assert duration_ms("36500 days") == KEEP_MS_MAX
    writer = Writer(kind, lake)
    writer.take(0, rows_of([1], 0))
    assert writer.table.expire(KEEP_MS_MAX, SystemClock().now_ms()) == 0
