"""Rows that Polars and DuckDB find in a table: readers that share no code with the sink."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

Rows = list[dict[str, Any]]


def read_rows(kind: str, path: Path) -> Rows:
    """All rows, read by Polars; DuckDB must find as many in the files of the table."""
    frame = scan(kind, path).collect()
    files = live_paths(kind, path)
    duckdb = pytest.importorskip("duckdb")
    counted = 0
    if files:
        with duckdb.connect() as connection:
            counted = connection.execute(
                "SELECT count(*) FROM read_parquet(?, union_by_name=true)", [files]
            ).fetchone()[0]
    assert counted == frame.height
    return list(frame.to_dicts())


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


def data_paths(path: Path) -> set[str]:
    """All data files below the table's directory, whether the table lists them or not."""
    return {str(each) for each in path.rglob("*.parquet") if "_delta_log" not in each.parts}


def scan(kind: str, path: Path) -> Any:
    polars = pytest.importorskip("polars")
    if kind == "delta":
        pytest.importorskip("deltalake")
        return polars.scan_delta(str(path))
    return polars.scan_iceberg(iceberg_table(path).metadata_location)
