"""The PostgreSQL source without Spark: the types that columns have, and values that none has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")

from pyspark.sql.types import StructType

from barnabas.pipelines.spark.context.run_context import PipelineFailed
from barnabas.pipelines.spark.databases.postgres import Postgres as PostgresDatabase
from barnabas.pipelines.spark.sources.jdbc import _columns, _fetch, _Range, _Table
from tests.support.postgres import Postgres, run_postgres


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with run_postgres() as running:
        yield running


KINDS = {
    "INT": "integer", "STRING": "string", "ARRAY<STRING>": "array<string>", "ARRAY<INT>": "array<integer>",
    "TIMESTAMP": "timestamp", "DECIMAL(38, 18)": "decimal(38,18)", "DECIMAL(10, 2)": "decimal(10,2)",
    "DECIMAL(30, 12)": "decimal(30,12)",
}  # fmt: skip
"""Spark parses types only where there is a session; these are the names under which it keeps them."""


def struct(columns: list[Any]) -> StructType:
    def plain(kind: str) -> Any:
        if kind.startswith("ARRAY"):
            element = KINDS[kind].removeprefix("array<").removesuffix(">")
            return {"type": "array", "elementType": element, "containsNull": True}
        return KINDS[kind]

    rows = [
        {"name": each.name, "type": plain(each.kind), "nullable": True, "metadata": {}} for each in columns
    ]
    return StructType.fromJson({"type": "struct", "fields": rows})


def read(
    postgres: Postgres, table: str, *, is_lenient: bool = False
) -> tuple[list[str], list[dict[str, Any]]]:
    bare = _Table(PostgresDatabase("127.0.0.1", postgres.port, "postgres", "postgres"), table, "id", 100)
    columns = _columns(bare)
    whole = replace(
        bare,
        columns=struct(columns),
        selected=", ".join(each.selected for each in columns),
        is_lenient=is_lenient,
    )
    rows = [row for batch in _fetch(whole, _Range(None, None)) for row in batch.to_pylist()]
    return [each.kind for each in columns], rows


def test_documents_and_arrays_are_what_postgres_has(postgres: Postgres) -> None:
    postgres.query("CREATE TABLE docs (id int, doc jsonb, raw json, tags text[], ns int[], u uuid, t time)")
    postgres.query(
        """INSERT INTO docs VALUES
        (1, '{"a": true, "b": null, "n": 1.10}', '{"x":1.10}', '{x,NULL,"y z"}', '{1,2}',
        '00000000-0000-0000-0000-000000000001', '01:02:03.5'), (2, NULL, NULL, NULL, NULL, NULL, NULL)"""
    )
    kinds, rows = read(postgres, "docs")
    assert kinds == ["INT", "STRING", "STRING", "ARRAY<STRING>", "ARRAY<INT>", "STRING", "STRING"]
    assert rows[0] == {
        "id": 1, "doc": '{"a": true, "b": null, "n": 1.10}', "raw": '{"x":1.10}', "tags": ["x", None, "y z"],
        "ns": [1, 2], "u": "00000000-0000-0000-0000-000000000001", "t": "01:02:03.5",
    }  # fmt: skip
    assert set(rows[1].values()) == {2, None}


def test_numbers_keep_their_digits(postgres: Postgres) -> None:
    postgres.query("CREATE TABLE numbers (id int, whole numeric, money numeric(10, 2), fine numeric(30, 12))")
    postgres.query("INSERT INTO numbers VALUES (1, 0.123456789012345678, 12345678.25, 0.123456789012)")
    kinds, (row,) = read(postgres, "numbers")
    assert kinds == ["INT", "DECIMAL(38, 18)", "DECIMAL(10, 2)", "DECIMAL(30, 12)"]
    assert [str(row[name]) for name in ("whole", "money", "fine")] == [
        "0.123456789012345678", "12345678.25", "0.123456789012",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "value"),
    [("numeric", "NaN"), ("numeric", "0.1234567890123456789"), ("numeric", "Infinity"),
     ("timestamptz", "infinity"), ("int[]", "{{1,2},{3,4}}")],
)  # fmt: skip
def test_values_that_no_type_holds_are_refused_by_name(postgres: Postgres, kind: str, value: str) -> None:
    postgres.query("DROP TABLE IF EXISTS odd")
    postgres.query(f"CREATE TABLE odd (id int, v {kind})")
    postgres.query(f"INSERT INTO odd VALUES (1, '{value}'), (2, NULL)")
    with pytest.raises(PipelineFailed, match=r'column v: .* cast the column there \("v"::text\)'):
        read(postgres, "odd")
    assert [row["v"] for row in read(postgres, "odd", is_lenient=True)[1]] == [None, None]
