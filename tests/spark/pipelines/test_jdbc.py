"""Real PostgreSQL: new rows are read, and written once after any retry."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.spark.pipelines.conftest import RunSpec
from tests.support.fixtures import TopicFactory
from tests.support.postgres import Postgres, run_postgres
from tests.support.topics import consume, produce


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with run_postgres() as running:
        yield running


def test_rows_beyond_the_last_value_are_taken_up(
    run_spec: RunSpec, bootstrap: str, new_topic: TopicFactory, postgres: Postgres
) -> None:
    out = new_topic()
    postgres.query("CREATE TABLE users (id bigint, name text, score numeric(10, 2), at timestamptz)")
    postgres.query(
        "INSERT INTO users SELECT n, 'u' || n, n / 2.0, '2024-05-01Z' FROM generate_series(1, 5) AS n"
    )
    spec = {
        "name": "users",
        "source": {
            "type": "jdbc",
            "url": postgres.url,
            "table": "users",
            "column": "id",
            "max_rows_per_trigger": 2,
        },
        "sink": {"type": "topic", "topic": out, "key": "id"},
    }
    progress = run_spec(spec)
    assert next(each.records for each in progress if each.records) == 2
    postgres.query("INSERT INTO users VALUES (9, 'late', 1, NULL)")
    run_spec(spec)
    found = consume(bootstrap, out)
    assert [each.json["id"] for each in found] == [1, 2, 3, 4, 5, 9]
    assert found[0].json == {"id": 1, "name": "u1", "score": 0.5, "at": "2024-05-01T00:00:00.000Z"}
    assert found[-1].key == b"9"


def test_an_upsert_counts_once_even_when_the_batch_is_tried_again(
    run_spec: RunSpec, bootstrap: str, new_topic: TopicFactory, postgres: Postgres, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("TEST_PGUSER", "postgres")
    source = new_topic()
    postgres.query("CREATE TABLE totals (id bigint PRIMARY KEY, name text, writes int DEFAULT 0)")
    postgres.query(
        "CREATE FUNCTION bump() RETURNS trigger AS $$ BEGIN NEW.writes = OLD.writes + 1; RETURN NEW; END $$"
        " LANGUAGE plpgsql"
    )
    postgres.query("CREATE TRIGGER b BEFORE UPDATE ON totals FOR EACH ROW EXECUTE FUNCTION bump()")
    spec = {
        "name": "totals.v1",
        "source": {"type": "topic", "topics": source, "schema": "id BIGINT, name STRING"},
        "sink": {
            "type": "jdbc", "url": f"jdbc:{postgres.url}", "user": "${env:TEST_PGUSER}",
            "table": "totals", "key": "id",
        },
    }  # fmt: skip
    produce(bootstrap, source, [{"id": 1, "name": "old"}, {"id": 2, "name": "x"}, {"id": 1, "name": "new"}])
    run_spec(spec)
    assert postgres.query("SELECT id, name, writes FROM totals ORDER BY id") == [(1, "new", 0), (2, "x", 0)]
    # As after a crash between the database's commit and Spark's own: the batch is run again.
    shutil.rmtree(tmp_path / "state" / "totals.v1" / "0" / "checkpoint" / "commits")
    run_spec(spec)
    assert postgres.query("SELECT id, name, writes FROM totals ORDER BY id") == [(1, "new", 0), (2, "x", 0)]
    produce(bootstrap, source, [{"id": 2, "name": "y"}])
    run_spec(spec)
    assert postgres.query("SELECT id, name, writes FROM totals ORDER BY id") == [(1, "new", 0), (2, "y", 1)]


@pytest.mark.kill_matrix
@pytest.mark.parametrize("point", ["before-staging", "before-commit", "after-commit"])
def test_a_database_that_crashes_anywhere_has_every_row_once(
    run_spec: RunSpec, bootstrap: str, new_topic: TopicFactory, postgres: Postgres,
    monkeypatch: pytest.MonkeyPatch, point: str,
) -> None:  # fmt: skip
    from barnabas.pipelines.spark.context.run_context import PipelineFailed
    from barnabas.pipelines.spark.sinks.jdbc import _Target

    crashes = [point]

    def reach(here: str) -> None:
        if here in crashes:
            crashes.remove(here)
            postgres.crash()

    stage, commit = _Target._create_staging, _Target._commit

    def staging(self: _Target, *arguments: Any) -> None:
        stage(self, *arguments)
        reach("before-staging")

    def committing(self: _Target, *arguments: Any) -> None:
        reach("before-commit")
        commit(self, *arguments)
        reach("after-commit")

    monkeypatch.setattr(_Target, "_create_staging", staging)
    monkeypatch.setattr(_Target, "_commit", committing)
    source = new_topic()
    produce(bootstrap, source, [{"id": at} for at in range(100)])
    table = f"crash_{point.replace('-', '_')}"
    spec = {
        "name": table,
        "source": {"type": "topic", "topics": source, "schema": "id BIGINT", "max_offsets_per_trigger": 50},
        "sink": {"type": "jdbc", "url": postgres.url, "table": table, "mode": "insert"},
    }
    try:
        run_spec(spec)
    except PipelineFailed:
        run_spec(spec)
    assert not crashes
    assert postgres.query(f"SELECT count(*), count(DISTINCT id) FROM {table}") == [(100, 100)]


def test_a_new_checkpoint_writes_all_that_it_reads(
    run_spec: RunSpec, bootstrap: str, new_topic: TopicFactory, postgres: Postgres, tmp_path: Path
) -> None:
    """The same file run elsewhere, offsets that are reset, a pipeline that is made again."""
    source = new_topic()
    produce(bootstrap, source, [{"id": at} for at in range(4)])
    spec = {
        "name": "again",
        "source": {"type": "topic", "topics": source, "schema": "id BIGINT", "max_offsets_per_trigger": 2},
        "sink": {"type": "jdbc", "url": postgres.url, "table": "again", "mode": "insert"},
    }
    run_spec(spec)
    run_spec(spec, generation=1)
    shutil.rmtree(tmp_path / "state" / "again")
    run_spec(spec)
    assert postgres.query("SELECT id, count(*) FROM again GROUP BY id ORDER BY id") == [
        (at, 3) for at in range(4)
    ]


def test_the_last_of_a_key_wins_however_many_tasks_read_it(
    run_spec: RunSpec, bootstrap: str, new_topic: TopicFactory, postgres: Postgres
) -> None:
    source = new_topic()
    produce(bootstrap, source, [{"id": 1, "name": f"n{at}"} for at in range(4)])
    for name, query in (("whole", "SELECT * FROM input"), ("bare", "SELECT id, name FROM input")):
        run_spec(
            {
                "name": name,
                "source": {
                    "type": "topic", "topics": source, "schema": "id BIGINT, name STRING",
                    "min_partitions": 2,
                },
                "transforms": [{"sql": query}],
                "sink": {"type": "jdbc", "url": postgres.url, "table": name, "key": "id"},
            }
        )  # fmt: skip
        assert postgres.query(f"SELECT id, name FROM {name}") == [(1, "n3")]


def test_a_table_is_created_and_a_missing_database_is_reported(
    run_spec: RunSpec, bootstrap: str, new_topic: TopicFactory, postgres: Postgres
) -> None:
    from barnabas.pipelines.spark.context.run_context import PipelineFailed

    source = new_topic()
    produce(bootstrap, source, [{"id": 1, "at": "2024-05-01T00:00:00Z"}, {"id": 1}])
    spec: dict[str, Any] = {
        "name": "plain",
        "source": {"type": "topic", "topics": source, "schema": "id BIGINT, at TIMESTAMP"},
        "sink": {"type": "jdbc", "url": postgres.url, "table": "plain", "mode": "insert"},
    }
    run_spec(spec)
    assert postgres.query("SELECT count(*), count(at) FROM plain") == [(2, 1)]
    with pytest.raises(PipelineFailed, match='database "nowhere" does not exist'):
        run_spec(
            {
                **spec,
                "name": "bad",
                "sink": {**spec["sink"], "url": f"postgresql://127.0.0.1:{postgres.port}/nowhere"},
            }
        )
