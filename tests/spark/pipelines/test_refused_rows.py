"""Records that can be read and computed, and that the sink refuses: they become dead letters."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.spark.pipelines.conftest import RunSpec
from tests.support.fixtures import TopicFactory
from tests.support.postgres import Postgres, run_postgres
from tests.support.topics import Seen, consume, produce

pytestmark = pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas")

REASON = "__connect.errors.exception.message"


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with run_postgres() as running:
        yield running


def produce_bytes(bootstrap: str, topic: str, values: list[bytes | None]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "message.max.bytes": 4_000_000})
    for value in values:
        producer.produce(topic, value)
    producer.flush()


def reasons(letters: list[Seen]) -> dict[str, str]:
    """By the offset of the record."""
    return {
        each.headers["__connect.errors.offset"].decode(): each.headers[REASON].decode() for each in letters
    }


def test_rows_that_the_database_refuses_become_dead_letters(
    run_spec: RunSpec, bootstrap: str, new_topic: TopicFactory, postgres: Postgres
) -> None:
    source, letters = new_topic(), new_topic()
    postgres.query("CREATE TABLE refusing (id bigint PRIMARY KEY, name varchar(3), at timestamptz)")
    values = [
        {"id": 1, "name": "ok"},
        {"id": 2, "name": "too long"},
        {"id": 3, "name": "a\x00b"},
        {"name": "key"},
        {"id": 5, "at": "+12000-01-01T00:00:00Z"},
        {"id": 6, "name": "yes"},
    ]
    produce_bytes(bootstrap, source, [*(json.dumps(each).encode() for each in values), None])
    spec = {
        "name": "refusing",
        "source": {"type": "topic", "topics": source, "schema": "id BIGINT, name STRING, at TIMESTAMP"},
        "sink": {"type": "jdbc", "url": postgres.url, "table": "refusing", "key": "id"},
        "errors": {"tolerance": "all", "dead_letter_topic": letters},
    }
    run_spec(spec)
    run_spec(spec)
    assert postgres.query("SELECT id, name FROM refusing ORDER BY id") == [(1, "ok"), (6, "yes")]
    written = consume(bootstrap, letters)
    found = reasons(written)
    stages = {
        each.headers["__connect.errors.offset"].decode(): each.headers["__connect.errors.stage"]
        for each in written
    }
    # Rows that fail before the database judges them one by one, such as a year beyond 9999, count as
    # failures of the transformation.
    assert stages["1"] == stages["3"] == stages["6"] == b"TASK_PUT"
    assert stages["4"] == b"TRANSFORMATION"
    assert sorted(found) == ["1", "2", "3", "4", "6"]
    assert "value too long for type character varying(3) (SQLSTATE 22001)" in found["1"]
    assert postgres.query("SELECT count(*) FROM pg_tables WHERE tablename LIKE 'barnabas\\_trial%'") == [(0,)]


def test_records_that_are_too_large_for_the_topic_become_dead_letters(
    run_spec: RunSpec, bootstrap: str, new_topic: TopicFactory
) -> None:
    source, out, letters = new_topic(), new_topic(), new_topic()
    produce(bootstrap, source, [{"id": 1, "s": "a" * 600_000}, {"id": 2, "s": "b"}])
    run_spec(
        {
            "name": "growing",
            "source": {"type": "topic", "topics": source, "schema": "id BIGINT, s STRING"},
            "transforms": [{"sql": "SELECT id, repeat(s, 2) AS s FROM input"}],
            "sink": {"type": "topic", "topic": out},
            "errors": {"tolerance": "all", "dead_letter_topic": letters},
        }
    )
    assert [each.json["id"] for each in consume(bootstrap, out)] == [2]
    (letter,) = consume(bootstrap, letters)
    assert letter.json["id"] == 1
    assert "larger than max.message.bytes" in letter.headers[REASON].decode()


@pytest.mark.parametrize("is_made_here", [True, False])
def test_a_letter_of_a_record_that_fills_its_topic(
    run_spec: RunSpec, bootstrap: str, new_topic: TopicFactory, *, is_made_here: bool
) -> None:
    source, out = new_topic(), new_topic()
    letters = f"{source}-letters" if is_made_here else new_topic()
    produce_bytes(bootstrap, source, [b"x" * 1_048_400, b'{"id": 2}'])
    run_spec(
        {
            "name": f"full-{is_made_here}",
            "source": {"type": "topic", "topics": source, "schema": "id BIGINT"},
            "sink": {"type": "topic", "topic": out},
            "errors": {"tolerance": "all", "dead_letter_topic": letters},
        }
    )
    assert [each.json for each in consume(bootstrap, out)] == [{"id": 2}]
    (letter,) = consume(bootstrap, letters)
    said = letter.headers[REASON].decode()
    if is_made_here:
        assert letter.value == b"x" * 1_048_400
        assert "left out" not in said
    else:
        assert letter.value is None
        assert "the value of 1048400 bytes is left out" in said


def test_a_pipeline_goes_on_with_any_number_of_records_in_quarantine(
    run_spec: RunSpec, bootstrap: str, new_topic: TopicFactory, tmp_path: Path
) -> None:
    source, out, letters = new_topic(), new_topic(), new_topic()
    produce(bootstrap, source, [{"id": at} for at in range(10)])
    spec: dict[str, Any] = {
        "name": "crowded",
        "source": {"type": "topic", "topics": source, "schema": "id BIGINT"},
        "sink": {"type": "topic", "topic": out},
        "errors": {"tolerance": "all", "dead_letter_topic": letters},
    }
    note = tmp_path / "state" / "crowded" / "0" / "quarantine"
    note.mkdir(parents=True)
    noted = {f"{source}/0/{at}": f"ValueError: bad {at}" for at in (3, *range(1_000, 4_000))}
    (note / "part-00000.txt").write_text(json.dumps(noted) + "\n")
    run_spec(spec)
    assert sorted(each.json["id"] for each in consume(bootstrap, out)) == [0, 1, 2, *range(4, 10)]
    assert reasons(consume(bootstrap, letters)) == {"3": "ValueError: bad 3"}
