"""Tables in an object store (a local S3 server): exactly once, also when the store's answers are lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.contract.tables.drivers import (
    CASES,
    DELETED,
    FULL,
    SECOND,
    THIRD,
    Given,
    Process,
    Read,
    begin,
    expected,
    finish,
    in_order,
    repeat,
    writer_of,
)
from tests.contract.tables.writing import COLUMNS, rows_of
from tests.support.object_store import BUCKET, ObjectStore, object_store
from tests.support.table_reading import Rows, iceberg_in_store, read_store

from barnabas.core.clock import SystemClock
from barnabas.pipelines.tables.storage import Storage, UnknownScheme
from barnabas.pipelines.tables.upkeep import maintain

URL = f"s3://{BUCKET}/shop/orders"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    with object_store(tmp_path / "store") as opened:
        yield opened


@pytest.fixture
def options(kind: str, store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Options of the sink. The secret is a reference."""
    monkeypatch.setenv("LAKE_SECRET", store.options["aws_secret_access_key"])
    storage = {**store.options, "aws_secret_access_key": "${env:LAKE_SECRET}"}
    if kind == "delta":
        return {"format": kind, "path": URL, "storage": storage}
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"s3://{BUCKET}/shop"}
    return {"format": kind, "catalog": catalog, "table": "shop.orders", "storage": storage}


@pytest.fixture
def there(options: dict[str, Any], store: ObjectStore, tmp_path: Path) -> Read:
    """Rows as other readers of the store find them."""
    return lambda: in_order(read_store(options, store, tmp_path / "fetched"))


@pytest.fixture
def plain_options(options: dict[str, Any], store: ObjectStore) -> dict[str, Any]:
    """Options for a process that has no environment to resolve a reference."""
    return {**options, "storage": store.options}


def data_files(options: dict[str, Any], store: ObjectStore) -> set[str]:
    root = URL if options["format"] == "delta" else f"s3://{BUCKET}/shop"
    return {each.path for each in Storage(root, store.options).list() if each.path.endswith(".parquet")}


def test_batches_and_upserts(options: dict[str, Any], there: Read) -> None:
    first = writer_of(options)
    assert first.take(0, rows_of([1, 2, 3], 0))
    assert first.take(1, rows_of([2], 1), deleted=[3], is_upsert=True)
    assert not writer_of(options).take(1, rows_of([2], 1), deleted=[3], is_upsert=True)
    assert there() == [*rows_of([1], 0), *rows_of([2], 1)]


@pytest.mark.parametrize("lost", [1, 2, 8])
@pytest.mark.parametrize("of", ["commit", "data"])
@pytest.mark.parametrize(
    ("mode", "row_bytes"),
    [
        ("append", 0),
        pytest.param("upsert", 100, marks=FULL),
        pytest.param("append", 1_000_000, marks=FULL),
        pytest.param("upsert", 1_000_000, marks=FULL),
    ],
)
def test_a_lost_answer_neither_doubles_nor_loses_a_batch(
    options: dict[str, Any], store: ObjectStore, there: Read, of: str, lost: int, mode: str, row_bytes: int
) -> None:
    """The store carries a request out, and its answer does not arrive: once, or at every attempt."""
    given = Given(is_upsert=mode == "upsert", row_bytes=row_bytes)
    begin(options, **given)
    store.lose({"commit": r"/shop/.*(json|avro)$", "data": r"/shop/.*parquet$"}[of], lost)
    try:
        repeat(options, **given)
    except Exception:
        store.lose("", 0)
    assert store.lost
    finish(options, there, **given)


@pytest.mark.kill_matrix
@pytest.mark.parametrize("row_bytes", [100, 1_000_000])
@pytest.mark.parametrize(("mode", "point"), CASES)
def test_a_driver_killed_anywhere_leaves_every_row_once(
    options: dict[str, Any], plain_options: dict[str, Any], store: ObjectStore, there: Read, tmp_path: Path,
    mode: str, point: str, row_bytes: int,
) -> None:  # fmt: skip
    given = Given(is_upsert=mode == "upsert", row_bytes=row_bytes)
    begin(options, **given)
    committed = live_files(options, store)
    Process(plain_options, tmp_path / "killed", point, dies=True, **given).wait_killed()
    committed |= live_files(options, store)
    repeat(options, **given)
    committed |= live_files(options, store)
    finish(options, there, **given)
    assert data_files(options, store) - live_files(options, store) <= committed


@pytest.mark.kill_matrix
@pytest.mark.parametrize(("mode", "point"), CASES)
def test_a_driver_thought_dead_changes_nothing_when_it_goes_on(
    options: dict[str, Any], plain_options: dict[str, Any], store: ObjectStore, there: Read, tmp_path: Path,
    mode: str, point: str,
) -> None:  # fmt: skip
    given = Given(is_upsert=mode == "upsert", row_bytes=100)
    begin(options, **given)
    zombie = Process(plain_options, tmp_path / "zombie", point, dies=False, **given)
    try:
        zombie.wait_reached()
        finish(options, there, **given)
        errors = zombie.release()
    finally:
        zombie.kill()
    if point != "after-commit":
        assert errors, "a driver that was replaced took itself for successful"
    assert there() == expected(**given)
    assert live_files(options, store) <= data_files(options, store)


@pytest.mark.parametrize("mode", ["append", pytest.param("upsert", marks=FULL)])
def test_a_foreign_writer_between_look_and_commit_costs_no_row(
    options: dict[str, Any], store: ObjectStore, there: Read, mode: str
) -> None:
    """It shares no code with the sink. The condition of its put, or the catalogue's, refuses ours."""
    given = Given(is_upsert=mode == "upsert", row_bytes=0)
    begin(options, **given)
    foreign = rows_of([4, 500], 7)
    added: list[bool] = []

    def at(point: str) -> None:
        if point == "in-commit" and not added:
            added.append(True)
            foreign_append(options, store, foreign)

    first = writer_of(options)
    assert first.take(1, rows_of(SECOND, 1), deleted=DELETED, is_upsert=given["is_upsert"], at=at)
    kept = [row for row in foreign if not (given["is_upsert"] and row["id"] in SECOND)]
    writer_of(options).take(2, rows_of(THIRD, 2), is_upsert=given["is_upsert"])
    assert there() == in_order([*expected(**given), *kept])


def foreign_append(options: dict[str, Any], store: ObjectStore, found: Rows) -> None:
    rows = pa.Table.from_pylist(found, COLUMNS)
    if options["format"] == "delta":
        from deltalake import write_deltalake

        write_deltalake(options["path"], rows, mode="append", storage_options=store.options)
        return
    iceberg_in_store(options, store).append(rows)


def live_files(options: dict[str, Any], store: ObjectStore) -> set[str]:
    root = URL if options["format"] == "delta" else f"s3://{BUCKET}/shop"
    if options["format"] == "delta":
        from deltalake import DeltaTable

        urls = DeltaTable(URL, storage_options=store.options).file_uris()
    else:
        tasks = iceberg_in_store(options, store).scan().plan_files()
        urls = [task.file.file_path for task in tasks]
    return {each.removeprefix(f"{root}/") for each in urls}


def test_a_foreign_commit_comes_first(options: dict[str, Any], there: Read) -> None:
    """The commit is refused by the store or the catalogue, and repeated after a look at the table."""
    ours, other = writer_of(options), writer_of(options, "another-query")
    ours.take(0, rows_of([1], 0))
    seen: list[bool] = []

    def at(point: str) -> None:
        if point == "after-write" and not seen:
            seen.append(other.take(0, rows_of([2], 0)))

    assert ours.take(1, rows_of([3], 1), at=at)
    assert [row["id"] for row in there()] == [1, 2, 3]


def test_maintenance_compacts_and_removes(options: dict[str, Any], store: ObjectStore, there: Read) -> None:
    writer = writer_of(options)
    for batch in range(4):
        writer.take(batch, rows_of([batch], batch))
    layout, before = writer.layout(), data_files(options, store)
    assert len(before) == 4
    orphan = writer.name(9).file(0, 0, 0, "zstd")
    with layout.storage.open_output(f"{layout.directory}{orphan}") as stream:
        stream.write(b"of an attempt that died")
    assert maintain(writer.table, layout, writer.name(3), 3_600_000, SystemClock()).compacted == 4
    assert [row["id"] for row in there()] == [0, 1, 2, 3]


def test_an_abandoned_file_is_removed(store: ObjectStore) -> None:
    from barnabas.pipelines.tables.data_files import Layout, write_files
    from barnabas.pipelines.tables.file_names import BatchName

    storage = Storage(URL, store.options)

    def failing() -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pylist(rows_of([1], 0), COLUMNS)
        raise RuntimeError("the task fails")

    with pytest.raises(RuntimeError, match="the task fails"):
        write_files(failing(), Layout(storage, COLUMNS), BatchName("q", 0, 0, "r"), 0)
    assert list(storage.list()) == []


def test_a_large_file_is_uploaded_in_parts_and_read_again(store: ObjectStore) -> None:
    storage = Storage(URL, store.options)
    content = bytes(range(256)) * (80 << 10)  # 20 MB
    with storage.open_output("large file/a=ä%20b.bin") as stream:
        for at in range(0, len(content), 3 << 20):
            stream.write(content[at : at + (3 << 20)])
        assert stream.tell() == len(content)
    with storage.open_input("large file/a=ä%20b.bin") as stream:
        stream.seek(-5, 2)
        assert stream.read() == content[-5:]
        stream.seek(0)
        assert stream.read() == content
    assert [(each.path, each.size) for each in storage.list()] == [("large file/a=ä%20b.bin", len(content))]
    storage.remove(["large file/a=ä%20b.bin", "missing"])
    assert list(storage.list()) == []


@pytest.mark.parametrize("lost", [1, 8])
def test_a_large_file_is_whole_or_its_upload_fails(store: ObjectStore, lost: int) -> None:
    """Answers to its parts are lost, or the one to the request that makes them an object."""
    storage = Storage(URL, store.options)
    content = bytes(range(256)) * (80 << 10)

    def upload() -> None:
        with storage.open_output("large.parquet") as stream:
            stream.write(content)

    store.lose(r"large\.parquet$", lost)
    try:
        upload()
    except OSError:
        store.lose("", 0)
        upload()
    assert store.lost
    with storage.open_input("large.parquet") as stream:
        assert stream.read() == content


@pytest.mark.parametrize(
    ("url", "options", "reason"),
    [
        ("s3://lake/a", {"aws_bogus": "1"}, "aws_bogus"),
        ("s3://lake/a", {"azure_storage_account_key": "x"}, "expected aws_"),
        ("gs://lake/a", {"aws_region": "x"}, "expected google_"),
        ("ftp://lake/a", {}, "there is no file system for ftp://"),
    ],
)
def test_what_no_store_knows_is_refused(url: str, options: dict[str, str], reason: str) -> None:
    pytest.importorskip("obstore")
    with pytest.raises(UnknownScheme, match=reason):
        Storage(url, options).check()


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("gs://lake/a", {"google_service_account_key": '{"private_key": "a", "private_key_id": "b",'
                         ' "client_email": "c", "disable_oauth": true}'}),
        ("az://lake/a", {"azure_storage_account_name": "shop", "azure_storage_account_key": "c2VjcmV0"}),
    ],
)  # fmt: skip
def test_other_clouds_are_opened_by_their_options(url: str, options: dict[str, str]) -> None:
    pytest.importorskip("obstore")
    Storage(url, options).check()
