"""Topics into MariaDB and SQLite, and tables out of them: keys and deletes of records, and every crash."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.spark.pipelines.conftest import RunSpec
from tests.support.fixtures import TopicFactory
from tests.support.mariadb import Mariadb, run_mariadb
from tests.support.topics import consume, produce

Query = Callable[[str], list[Any]]
REASON = "__connect.errors.exception.message"


class Place:
    def __init__(self, url: str, query: Query) -> None:
        self.url, self.query = url, query


@pytest.fixture(scope="module")
def mariadb() -> Iterator[Mariadb]:
    with run_mariadb() as running:
        yield running


@pytest.fixture(params=["mysql", "sqlite"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "mysql":
        running = request.getfixturevalue("mariadb")
        return Place(running.url, running.query)
    file = tmp_path / "shop.db"

    def query(sql: str) -> list[Any]:
        connection = sqlite3.connect(file)
        try:
            with connection:
                return connection.execute(sql).fetchall()
        finally:
            connection.close()

    return Place(f"jdbc:sqlite:{file}", query)


def send(bootstrap: str, topic: str, records: list[tuple[Any, Any]]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for key, value in records:
        text = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
        producer.produce(topic, text, key=None if key is None else json.dumps(key).encode())
    assert producer.flush(30.0) == 0


def test_a_table_follows_keys_deletes_and_new_columns(
    run_spec: RunSpec, bootstrap: str, new_topic: TopicFactory, place: Place, request: pytest.FixtureRequest
) -> None:
    source, letters = new_topic(), new_topic()
    table = f"follow_{'m' if place.url.startswith('mysql') else 's'}"
    spec: dict[str, Any] = {
        "name": table,
        "source": {
            "type": "topic", "topics": source, "schema": "name STRING, n INT", "key_format": "json",
            "key_schema": "id BIGINT, region STRING",
        },
        "sink": {"type": "jdbc", "url": place.url, "table": table, "key_from": "record_key", "delete": True},
        "errors": {"tolerance": "all", "dead_letter_topic": letters},
    }  # fmt: skip
    one, two, three = ({"id": at, "region": "eu"} for at in (1, 2, 3))
    send(
        bootstrap, source,
        [(one, {"name": "a"}), (two, {"name": "b", "n": 2}), (one, {"name": "c"}), (three, {"name": "d"}),
         (three, None), (None, {"name": "nobody"})],
    )  # fmt: skip
    run_spec(spec)
    found = sorted(place.query(f"SELECT id, region, name, n FROM {table}"))
    assert found == [(1, "eu", "c", None), (2, "eu", "b", 2)]
    (letter,) = consume(bootstrap, letters)
    assert letter.json == {"name": "nobody"}
    assert "a null in its key" in letter.headers[REASON].decode()
    spec["source"]["schema"] += ", city STRING"
    spec["sink"]["evolve"] = True
    send(bootstrap, source, [(two, None), (one, {"name": "e", "city": "Brno"})])
    run_spec(spec)
    assert place.query(f"SELECT id, name, city FROM {table}") == [(1, "e", "Brno")]


@pytest.mark.parametrize(
    ("point", "row_bytes"),
    [("before-commit", 100), ("in-commit", 100), ("after-commit", 100), ("in-commit", 400_000)],
)
def test_a_driver_that_fails_anywhere_has_every_row_once(
    run_spec: RunSpec, bootstrap: str, new_topic: TopicFactory, place: Place,
    monkeypatch: pytest.MonkeyPatch, point: str, row_bytes: int,
) -> None:  # fmt: skip
    from barnabas.pipelines.spark.context.run_context import PipelineFailed
    from barnabas.pipelines.spark.sinks.jdbc import _Target

    waiting = [point]

    def reach(here: str) -> None:
        if here in waiting:
            waiting.remove(here)
            raise RuntimeError(f"the driver ends {here}")

    enter, move, take = _Target._enter, _Target._move, _Target.take

    def entering(self: _Target, *arguments: Any) -> None:
        reach("before-commit")
        enter(self, *arguments)

    def moving(self: _Target, *arguments: Any) -> None:
        move(self, *arguments)
        reach("in-commit")

    def taking(self: _Target, *arguments: Any) -> None:
        take(self, *arguments)
        reach("after-commit")

    monkeypatch.setattr(_Target, "_enter", entering)
    monkeypatch.setattr(_Target, "_move", moving)
    monkeypatch.setattr(_Target, "take", taking)
    source = new_topic()
    produce(bootstrap, source, [{"id": at, "text": "x" * row_bytes} for at in range(20)])
    table = f"crash_{point.replace('-', '_')}_{row_bytes}"
    spec = {
        "name": table,
        "source": {
            "type": "topic", "topics": source, "schema": "id BIGINT, text STRING",
            "max_offsets_per_trigger": 10,
        },
        "sink": {"type": "jdbc", "url": place.url, "table": table, "mode": "insert"},
    }  # fmt: skip
    with pytest.raises(PipelineFailed, match=f"the driver ends {point}"):
        run_spec(spec)
    run_spec(spec)
    assert not waiting
    counted = f"SELECT count(*), count(DISTINCT id), min(length(text)) FROM {table}"
    assert place.query(counted) == [(20, 20, row_bytes)]


@pytest.mark.parametrize("point", ["staged", "moved"])
def test_a_mariadb_that_crashes_has_every_row_once(
    run_spec: RunSpec, bootstrap: str, new_topic: TopicFactory, mariadb: Mariadb,
    monkeypatch: pytest.MonkeyPatch, point: str,
) -> None:  # fmt: skip
    from barnabas.pipelines.spark.context.run_context import Away
    from barnabas.pipelines.spark.sinks.jdbc import _Target

    crashes = [point]
    enter, move = _Target._enter, _Target._move

    def reach(here: str) -> None:
        if here in crashes:
            crashes.remove(here)
            mariadb.crash()

    def entering(self: _Target, *arguments: Any) -> None:
        reach("staged")
        enter(self, *arguments)

    def moving(self: _Target, *arguments: Any) -> None:
        move(self, *arguments)
        reach("moved")

    monkeypatch.setattr(_Target, "_enter", entering)
    monkeypatch.setattr(_Target, "_move", moving)
    source = new_topic()
    produce(bootstrap, source, [{"id": at} for at in range(20)])
    spec = {
        "name": f"server_{point}",
        "source": {"type": "topic", "topics": source, "schema": "id BIGINT"},
        "sink": {"type": "jdbc", "url": mariadb.url, "table": f"server_{point}", "mode": "insert"},
    }
    with pytest.raises(Away):  # a server out of reach is no failed attempt
        run_spec(spec)
    run_spec(spec)
    assert mariadb.query(f"SELECT count(*), count(DISTINCT id) FROM server_{point}") == [(20, 20)]


def test_rows_beyond_the_last_value_are_taken_up(
    run_spec: RunSpec, bootstrap: str, new_topic: TopicFactory, place: Place
) -> None:
    out = new_topic()
    place.query("CREATE TABLE users (id bigint PRIMARY KEY, name varchar(20), score double)")
    place.query("INSERT INTO users VALUES (1, 'ada', 0.5), (2, 'bob', NULL), (3, NULL, 1)")
    spec = {
        "name": "users",
        "source": {
            "type": "jdbc", "url": place.url,
            "query": "SELECT id, name, score FROM users WHERE name LIKE '%'",
            "column": "id", "max_rows_per_trigger": 1,
        },
        "sink": {"type": "topic", "topic": out, "key": "id"},
    }  # fmt: skip
    run_spec(spec)
    place.query("INSERT INTO users VALUES (9, 'late', 2)")
    run_spec(spec)
    found = [each.json for each in consume(bootstrap, out)]
    assert found == [
        {"id": 1, "name": "ada", "score": 0.5},
        {"id": 2, "name": "bob"},
        {"id": 9, "name": "late", "score": 2.0},
    ]
