"""Tables in an object store (a local S3 server): exactly once, also when the store's answers are lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.contract.tables.writing import COLUMNS, QUERY, Writer, rows_of
from tests.support.object_store import BUCKET, ObjectStore, object_store

from barnabas.core.clock import SystemClock
from barnabas.pipelines.tables.open_table import open_table
from barnabas.pipelines.tables.storage import Storage, UnknownScheme
from barnabas.pipelines.tables.upkeep import maintain

URL = f"s3://{BUCKET}/shop/orders"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
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


def driver(options: dict[str, Any], query: str = QUERY) -> Writer:
    return Writer.of(open_table(options, COLUMNS, (), SystemClock(), create=True), query)


def rows_there(options: dict[str, Any], store: ObjectStore) -> list[dict[str, Any]]:
    """Rows as other readers of the store find them."""
    polars = pytest.importorskip("polars")
    if options["format"] == "delta":
        frame = polars.scan_delta(options["path"], storage_options=store.options).collect()
        return sorted(frame.to_dicts(), key=lambda row: (row["id"], row["batch"]))
    from pyiceberg.catalog import load_catalog

    from barnabas.pipelines.tables.object_files import for_iceberg

    catalog = load_catalog("barnabas", **options["catalog"], **for_iceberg(store.options))
    table = catalog.load_table(options["table"]).scan().to_arrow()
    return sorted(table.to_pylist(), key=lambda row: (row["id"], row["batch"]))


def data_files(options: dict[str, Any], store: ObjectStore) -> set[str]:
    root = URL if options["format"] == "delta" else f"s3://{BUCKET}/shop"
    return {each.path for each in Storage(root, store.options).list() if each.path.endswith(".parquet")}


def test_batches_and_upserts(options: dict[str, Any], store: ObjectStore) -> None:
    first = driver(options)
    assert first.take(0, rows_of([1, 2, 3], 0))
    assert first.take(1, rows_of([2], 1), deleted=[3], is_upsert=True)
    assert not driver(options).take(1, rows_of([2], 1), deleted=[3], is_upsert=True)
    assert rows_there(options, store) == [*rows_of([1], 0), *rows_of([2], 1)]


@pytest.mark.parametrize("lost", [1, 2, 8])
@pytest.mark.parametrize("of", ["commit", "data"])
def test_a_lost_answer_neither_doubles_nor_loses_a_batch(
    options: dict[str, Any], store: ObjectStore, of: str, lost: int
) -> None:
    """The store carries a request out, and its answer does not arrive: once, or at every attempt."""
    first = driver(options)
    first.take(0, rows_of([1], 0))
    store.lose({"commit": r"/shop/.*(json|avro)$", "data": r"/shop/.*parquet$"}[of], lost)
    try:
        first.take(1, rows_of([2], 1))
    except Exception:
        store.lose("", 0)
    assert store.lost
    successor = driver(options)
    successor.take(1, rows_of([2], 1))
    successor.take(2, rows_of([3], 2))
    assert rows_there(options, store) == [*rows_of([1], 0), *rows_of([2], 1), *rows_of([3], 2)]


def test_a_foreign_commit_comes_first(options: dict[str, Any], store: ObjectStore) -> None:
    """The commit is refused by the store or the catalogue, and repeated after a look at the table."""
    ours, other = driver(options), driver(options, "another-query")
    ours.take(0, rows_of([1], 0))
    seen: list[bool] = []

    def at(point: str) -> None:
        if point == "after-write" and not seen:
            seen.append(other.take(0, rows_of([2], 0)))

    assert ours.take(1, rows_of([3], 1), at=at)
    assert [row["id"] for row in rows_there(options, store)] == [1, 2, 3]


def test_maintenance_compacts_and_removes(options: dict[str, Any], store: ObjectStore) -> None:
    writer = driver(options)
    for batch in range(4):
        writer.take(batch, rows_of([batch], batch))
    layout, before = writer.layout(), data_files(options, store)
    assert len(before) == 4
    orphan = writer.name(9).file(0, 0, 0, "zstd")
    with layout.storage.open_output(f"{layout.directory}{orphan}") as stream:
        stream.write(b"of an attempt that died")
    assert maintain(writer.table, layout, writer.name(3), 3_600_000, SystemClock()).compacted == 4
    assert [row["id"] for row in rows_there(options, store)] == [0, 1, 2, 3]


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
