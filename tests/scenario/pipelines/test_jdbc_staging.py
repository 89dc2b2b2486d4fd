"""The PostgreSQL sink without Spark: what tasks stage, and what a driver makes of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")
pytest.importorskip("pg8000", reason="pg8000 is not installed")

import pg8000.dbapi

from barnabas.pipelines.spark.context.run_context import Away, PipelineFailed
from barnabas.pipelines.spark.databases.database import ColumnType, Database
from barnabas.pipelines.spark.databases.postgres import Postgres as PostgresDatabase
from barnabas.pipelines.spark.sinks.jdbc import Staged, _stage, _staging_of, _Target
from barnabas.pipelines.spec.model import Part
from tests.support.postgres import Postgres, run_postgres
from tests.support.waiting import PATIENCE_S


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with run_postgres() as running:
        yield running


@pytest.fixture
def database(postgres: Postgres) -> Database:
    return PostgresDatabase("127.0.0.1", postgres.port, "postgres", "postgres")


def target(database: Database, names: list[str], kinds: list[str], **options: Any) -> _Target:
    part = Part("jdbc", {"mode": "insert", "create": True, **options})
    types = [ColumnType(kind, is_moment=kind == "timestamptz") for kind in kinds]
    made = _Target(database, part, "pipeline", names, types)
    made.prepare()
    return made


def staged(
    database: Database, made: _Target, run: str, rows: list[tuple[Any, ...]]
) -> tuple[str, list[Staged]]:
    """A staging table as a batch has it, and the report of the one task that filled it."""
    table = database.quote_name(f"{_staging_of('query')}{run}")
    made._create_staging(table)
    report = _stage(database, table, made._names, made._kinds, [(None, 0, *row) for row in rows])  # type: ignore[misc]
    return table, [report]


def test_of_two_drivers_with_the_same_batch_one_writes_it(database: Database, postgres: Postgres) -> None:
    made = target(database, ["id"], ["bigint"], table="both")
    tables = [staged(database, made, run, [(1,), (2,)]) for run in ("elder", "younger")]
    for table in tables:
        made._commit("query", 0, *table)
    assert postgres.query('SELECT id FROM "both" ORDER BY id') == [(1,), (2,)]


def test_pipelines_that_start_at_once_create_one_table(
    database: Database, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    postgres.query("DROP TABLE IF EXISTS barnabas_batches")
    check = _Target._check_target
    failures: list[BaseException] = []

    def prepare() -> None:
        try:
            target(database, ["id"], ["bigint"], table="created_once")
        except BaseException as error:
            failures.append(error)

    younger = threading.Thread(target=prepare)

    def check_beside_another(self: _Target, cursor: Any) -> None:
        """The first has made its tables and not committed; the second waits for it."""
        monkeypatch.setattr(_Target, "_check_target", check)
        younger.start()
        deadline = time.monotonic() + PATIENCE_S
        while not postgres.query("SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"):
            assert time.monotonic() < deadline, "the second does not wait"
        check(self, cursor)

    monkeypatch.setattr(_Target, "_check_target", check_beside_another)
    prepare()
    younger.join()
    assert failures == []


def test_only_rows_of_attempts_that_spark_took_count(database: Database, postgres: Postgres) -> None:
    made = target(database, ["id"], ["bigint"], table="attempts")
    table, reports = staged(database, made, "run", [(1,)])
    with database.transaction() as cursor:
        cursor.execute(f"INSERT INTO {table} VALUES (7, 0, NULL, 0, 1)")  # a speculative one that came late
    made._commit("query", 1, table, reports)
    assert postgres.query("SELECT id FROM attempts") == [(1,)]


def test_staged_rows_that_a_crash_took_are_missed_before_the_batch_is_noted(
    database: Database, postgres: Postgres
) -> None:
    made = target(database, ["id"], ["bigint"], table="crashed")
    lost = staged(database, made, "before", [(1,), (2,)])
    postgres.crash()
    with pytest.raises(Away, match="0 of 2 staged rows for crashed"):
        made._commit("crash", 0, *lost)
    assert not made._is_done("crash", 0)
    made._commit("crash", 0, *staged(database, made, "after", [(1,), (2,)]))
    assert made._is_done("crash", 0)
    assert postgres.query("SELECT id FROM crashed ORDER BY id") == [(1,), (2,)]


def test_one_attempt_of_several_that_is_missing_stops_the_batch(
    database: Database, postgres: Postgres
) -> None:
    """A backend crashed while tasks were staging; Spark ran the ones that failed again."""
    made = target(database, ["id"], ["bigint"], table="partly")
    table, reports = staged(database, made, "partly", [(1,)])
    with pytest.raises(Away, match="1 of 4 staged rows"):
        made._commit("partly", 0, table, [*reports, Staged(attempt=5, rows=3)])
    assert postgres.query("SELECT count(*) FROM partly") == [(0,)]


def test_a_wide_table_is_staged(database: Database, postgres: Postgres) -> None:
    names = [f"c.{at}" for at in range(70)]  # with dots, as Flatten makes them
    made = target(database, names, ["integer"] * 70, table="wide")
    made._commit("query", 2, *staged(database, made, "run", [tuple(range(70))] * 1_000))
    assert postgres.query('SELECT count(*), sum("c.69") FROM wide') == [(1_000, 69_000)]


def test_timestamps_are_those_of_the_source_in_any_time_zone(
    database: Database, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        made = target(database, ["at", "wall"], ["timestamptz", "timestamp"], table="moments")
        noon = datetime(2024, 5, 1, 21, 0)  # noqa: DTZ001 - as Spark hands over noon in UTC, in Tokyo
        made._commit("query", 3, *staged(database, made, "run", [(noon, noon), (None, None)]))
    finally:
        monkeypatch.undo()
        time.tzset()
    found = postgres.query("SELECT at AT TIME ZONE 'UTC', wall FROM moments WHERE at IS NOT NULL")
    assert [tuple(map(str, row)) for row in found] == [("2024-05-01 12:00:00", "2024-05-01 21:00:00")]


def test_text_goes_into_columns_of_other_types(database: Database, postgres: Postgres) -> None:
    postgres.query("CREATE TYPE mood AS ENUM ('fine')")
    postgres.query(
        "CREATE TABLE typed (doc jsonb, id uuid PRIMARY KEY, mood mood, short varchar(3), n numeric(4,1))"
    )
    names = ["doc", "id", "mood", "short", "n"]
    made = target(database, names, ["text"] * 5, table="typed", mode="upsert", key=["id"])
    number = "00000000-0000-0000-0000-000000000001"
    made._commit("query", 4, *staged(database, made, "typed", [('{"a": [1]}', number, "fine", "abc", "1.5")]))
    assert postgres.query("SELECT doc->'a'->>0, id::text, mood::text, short, n::text FROM typed") == [
        ("1", number, "fine", "abc", "1.5")
    ]
    late = staged(database, made, "late", [("{}", number, "fine", "abcd", "1")])
    with pytest.raises(pg8000.dbapi.Error, match="too long"):
        made._commit("query", 5, *late)


def test_a_target_that_cannot_take_the_rows_is_reported_before_the_run(
    database: Database, postgres: Postgres
) -> None:
    postgres.query("CREATE TABLE narrow (id bigint)")
    with pytest.raises(PipelineFailed, match="narrow has no column name; it has id"):
        target(database, ["id", "name"], ["bigint", "text"], table="narrow")
    with pytest.raises(PipelineFailed, match="no primary key or unique index on id"):
        target(database, ["id"], ["bigint"], table="narrow", mode="upsert", key=["id"])
    with pytest.raises(PipelineFailed, match="there is no table nowhere, and create is false"):
        target(database, ["id"], ["bigint"], table="nowhere", create=False)
