"""Rows that Polars and DuckDB find in a table: readers that share no code with the sink."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.object_store import ObjectStore

Rows = list[dict[str, Any]]


def read_rows(kind: str, path: Path) -> Rows:
    """All rows, as Polars reads the table; DuckDB must find the same in its files."""
    frame = scan(kind, path).collect()
    check_same_rows(frame, live_paths(kind, path))
    return list(frame.to_dicts())


def check_same_rows(frame: Any, files: list[str]) -> None:
    """DuckDB finds the rows of Polars' frame in Parquet files: their number, and all numbers and texts."""
    duckdb = pytest.importorskip("duckdb")
    if not files:
        assert frame.height == 0
        return
    source = "FROM read_parquet(?, union_by_name=true, hive_partitioning=false)"
    with duckdb.connect() as connection:
        there = connection.execute(f"SELECT * {source} LIMIT 0", [files]).description
        found_names = {column[0] for column in there}
        names = [each for each in frame.columns if each in found_names and _is_simple(frame.schema[each])]
        columns = ", ".join('"' + each.replace('"', '""') + '"' for each in names) or "NULL"
        found = connection.execute(f"SELECT {columns} {source}", [files]).fetchall()
    assert len(found) == frame.height
    if names:
        assert Counter(found) == Counter(frame.select(names).rows())


def _is_simple(kind: Any) -> bool:
    return bool(kind.is_integer()) or str(kind) in ("String", "Binary", "Boolean")


def query(kind: str, path: Path, sql: str) -> list[tuple[Any, ...]]:
    """DuckDB's answer to a question about the table `rows`."""
    duckdb = pytest.importorskip("duckdb")
    rows = scan(kind, path).collect().to_arrow()
    with duckdb.connect() as connection:
        connection.register("rows", rows)
        return list(connection.execute(sql).fetchall())


def live_paths(kind: str, path: Path) -> list[str]:
    """Data files of the present version, as the format's own library lists them."""
    if kind == "delta":
        deltalake = pytest.importorskip("deltalake")
        return list(deltalake.DeltaTable(str(path)).file_uris())
    table = iceberg_table(path)
    return [task.file.file_path.removeprefix("file://") for task in table.scan().plan_files()]


def iceberg_table(path: Path) -> Any:
    pytest.importorskip("pyiceberg")
    from pyiceberg.catalog import load_catalog

    catalog = load_catalog("barnabas", type="sql", uri=f"sqlite:///{path / 'catalog.db'}")
    return catalog.load_table("barnabas." + path.name.replace(".", "_"))


def read_store(options: Mapping[str, Any], store: ObjectStore, scratch: Path) -> Rows:
    """All rows of a table in an object store, as `read_rows` finds them on a disk."""
    polars = pytest.importorskip("polars")
    if options["format"] == "delta":
        deltalake = pytest.importorskip("deltalake")
        frame = polars.scan_delta(options["path"], storage_options=store.options).collect()
        urls = deltalake.DeltaTable(options["path"], storage_options=store.options).file_uris()
    else:
        table = iceberg_in_store(options, store)
        frame = polars.scan_iceberg(table, storage_options=store.options).collect()
        urls = [task.file.file_path for task in table.scan().plan_files()]
    scratch.mkdir(exist_ok=True)
    files = []
    for number, url in enumerate(urls):
        file = scratch / f"{number}.parquet"
        file.write_bytes(store.read(url))
        files.append(str(file))
    check_same_rows(frame, files)
    return list(frame.to_dicts())


def iceberg_in_store(options: Mapping[str, Any], store: ObjectStore) -> Any:
    pytest.importorskip("pyiceberg")
    from pyiceberg.catalog import load_catalog

    given = store.options
    properties = {
        "s3.endpoint": given["aws_endpoint"],
        "s3.region": given["aws_region"],
        "s3.access-key-id": given["aws_access_key_id"],
        "s3.secret-access-key": given["aws_secret_access_key"],
    }
    return load_catalog("barnabas", **options["catalog"], **properties).load_table(options["table"])


def data_paths(path: Path) -> set[str]:
    """All data files below the table's directory, whether the table lists them or not."""
    return {str(each) for each in path.rglob("*.parquet") if "_delta_log" not in each.parts}


def scan(kind: str, path: Path) -> Any:
    polars = pytest.importorskip("polars")
    if kind == "delta":
        pytest.importorskip("deltalake")
        return polars.scan_delta(str(path))
    return polars.scan_iceberg(iceberg_table(path).metadata_location)
