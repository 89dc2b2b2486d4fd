"""The PostgreSQL sink without Spark: what tasks stage, and what a driver makes of it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")

from barnabas.pipelines.spark.postgres import Database, quote_name
from barnabas.pipelines.spark.run import PipelineFailed
from barnabas.pipelines.spark.sinks.jdbc import _stage, _staging_of, _Target
from barnabas.pipelines.spec.model import Part
from tests.support.postgres import Postgres, run_postgres


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with run_postgres() as running:
        yield running


@pytest.fixture
def database(postgres: Postgres) -> Database:
    return Database("127.0.0.1", postgres.port, "postgres", "postgres")


def target(database: Database, names: list[str], kinds: list[str], **options: Any) -> _Target:
    part = Part("jdbc", {"mode": "insert", "create": True, **options})
    made = _Target(database, part, "pipeline", names, kinds)
    made.prepare()
    return made


def staged(database: Database, made: _Target, run: str, rows: list[tuple[Any, ...]]) -> str:
    table = quote_name(f"{_staging_of('query')}{run}")
    with database.transaction() as cursor:
        cursor.execute(
            f"CREATE TABLE {table} (_attempt bigint, _row bigint, _offset bigint, {made._columns()})"
        )
    _stage(database, table, made._names, made._kinds, [(None, *row) for row in rows])  # type: ignore[misc]
    return table


def test_of_two_drivers_with_the_same_batch_one_writes_it(database: Database, postgres: Postgres) -> None:
    made = target(database, ["id"], ["bigint"], table="both")
    tables = [staged(database, made, run, [(1,), (2,)]) for run in ("elder", "younger")]
    for table in tables:
        made._commit("query", 0, table, [0])
    assert postgres.query('SELECT id FROM "both" ORDER BY id') == [(1,), (2,)]


def test_only_rows_of_attempts_that_spark_took_count(database: Database, postgres: Postgres) -> None:
    made = target(database, ["id"], ["bigint"], table="attempts")
    table = staged(database, made, "run", [(1,)])
    with database.transaction() as cursor:
        cursor.execute(f"INSERT INTO {table} VALUES (7, 0, NULL, 1)")  # a speculative one that came late
    made._commit("query", 1, table, [0])
    assert postgres.query("SELECT id FROM attempts") == [(1,)]


def test_a_wide_table_is_staged(database: Database, postgres: Postgres) -> None:
    names = [f"c.{at}" for at in range(70)]  # with dots, as Flatten makes them
    made = target(database, names, ["integer"] * 70, table="wide")
    made._commit("query", 2, staged(database, made, "run", [tuple(range(70))] * 1_000), [0])
    assert postgres.query('SELECT count(*), sum("c.69") FROM wide') == [(1_000, 69_000)]


def test_moments_are_those_of_the_source_whatever_the_time_zone(
    database: Database, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        made = target(database, ["at", "wall"], ["timestamptz", "timestamp"], table="moments")
        noon = datetime(2024, 5, 1, 21, 0)  # noqa: DTZ001 - as Spark hands over noon in UTC, in Tokyo
        made._commit("query", 3, staged(database, made, "run", [(noon, noon), (None, None)]), [0])
    finally:
        monkeypatch.undo()
        time.tzset()
    found = postgres.query("SELECT at AT TIME ZONE 'UTC', wall FROM moments WHERE at IS NOT NULL")
    assert [tuple(map(str, row)) for row in found] == [("2024-05-01 12:00:00", "2024-05-01 21:00:00")]


def test_a_target_that_cannot_take_the_rows_is_told_before_anything_runs(
    database: Database, postgres: Postgres
) -> None:
    postgres.query("CREATE TABLE narrow (id bigint)")
    with pytest.raises(PipelineFailed, match="narrow has no column name; it has id"):
        target(database, ["id", "name"], ["bigint", "text"], table="narrow")
    with pytest.raises(PipelineFailed, match="no primary key or unique index on id"):
        target(database, ["id"], ["bigint"], table="narrow", mode="upsert", key=["id"])
    with pytest.raises(PipelineFailed, match="there is no table nowhere, and create is false"):
        target(database, ["id"], ["bigint"], table="nowhere", create=False)
