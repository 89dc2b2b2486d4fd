"""Pipelines between topics, files and the terminal, on a real Spark and a real broker."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.pipelines.conftest import RunSpec
from tests.spark.test_segments import export
from tests.support.broker import Broker
from tests.support.fixtures import TopicFactory
from tests.support.topics import consume, produce

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from barnabas.pipelines.state.progress import Progress

SCHEMA = "id BIGINT, name STRING, at TIMESTAMP"


def test_a_topic_is_cleaned_into_another_and_bad_records_become_dead_letters(
    run_spec: RunSpec, bootstrap: str, new_topic: TopicFactory
) -> None:
    clicks, clean, letters = new_topic(), new_topic(), new_topic()
    produce(bootstrap, clicks, [{"id": 1, "name": "ada"}, b"not json", {"id": "x"}, {"id": 2, "name": "bob"}],
            key=b"k", headers=[("trace", b"t1")])  # fmt: skip
    spec = {
        "name": "clean",
        "source": {"type": "topic", "topics": clicks, "schema": SCHEMA},
        "transforms": [
            {"type": "ReplaceField", "renames": "name:user", "exclude": "at"},
            {"type": "InsertField", "offset_field": "place"},
            {"type": "ValueToKey", "fields": "id"},
        ],
        "sink": {"type": "topic", "topic": clean},
        "errors": {"tolerance": "all", "dead_letter_topic": letters},
    }
    progress = run_spec(spec)
    found = consume(bootstrap, clean)
    assert [each.json for each in found] == [
        {"id": 1, "user": "ada", "place": 0},
        {"id": 2, "user": "bob", "place": 3},
    ]
    assert [each.key for each in found] == [b'{"id":1}', b'{"id":2}']
    assert found[0].headers == {"trace": b"t1"}
    dead = consume(bootstrap, letters)
    assert [(each.key, each.value) for each in dead] == [(b"k", b"not json"), (b"k", b'{"id": "x"}')]
    assert dead[0].headers["trace"] == b"t1"
    assert dead[0].headers["__connect.errors.topic"] == clicks.encode()
    assert dead[1].headers["__connect.errors.offset"] == b"2"
    assert dead[0].headers["__connect.errors.connector.name"] == b"clean"
    assert b"not JSON" in dead[0].headers["__connect.errors.exception.message"]
    assert [(each.records, each.errors) for each in progress if each.records] == [(4, 2)]

    produce(bootstrap, clicks, [{"id": 3, "name": "cyd"}])
    run_spec(spec)
    assert [each.json["id"] for each in consume(bootstrap, clean)] == [1, 2, 3]


def test_a_bad_record_stops_a_pipeline_that_tolerates_none(
    run_spec: RunSpec, bootstrap: str, new_topic: TopicFactory
) -> None:
    from barnabas.pipelines.spark.context.run_context import PipelineFailed

    source = new_topic()
    produce(bootstrap, source, [{"id": 1}, b"junk"])
    with pytest.raises(PipelineFailed, match=f"topic {source}, partition 0, offset 1: the value is not JSON"):
        run_spec({
            "name": "strict",
            "source": {"type": "topic", "topics": source, "schema": SCHEMA},
            "sink": {"type": "console"},
        })  # fmt: skip


def test_too_large_a_share_of_bad_records_stops_the_pipeline(
    run_spec: RunSpec, bootstrap: str, new_topic: TopicFactory, tmp_path: Path
) -> None:
    from barnabas.pipelines.spark.context.run_context import PipelineFailed

    source, letters = new_topic(), new_topic()
    produce(bootstrap, source, [{"id": 1}, b"junk", b"more junk"])
    with pytest.raises(PipelineFailed, match="2 of 3 records are bad"):
        run_spec({
            "name": "ratio",
            "source": {"type": "topic", "topics": source, "schema": SCHEMA},
            "sink": {"type": "files", "path": str(tmp_path / "out")},
            "errors": {"tolerance": "all", "max_error_ratio": 0.5, "dead_letter_topic": letters},
        })  # fmt: skip


def test_latest_is_looked_up_once(run_spec: RunSpec, bootstrap: str, new_topic: TopicFactory) -> None:
    """Records after the first start are read, though no batch was made before the second."""
    source, out = new_topic(partitions=2), new_topic()
    produce(bootstrap, source, [{"id": 1}])
    spec: dict[str, Any] = {
        "name": "latest",
        "source": {"type": "topic", "topics": source, "schema": "id BIGINT", "starting_offsets": "latest"},
        "sink": {"type": "topic", "topic": out},
    }
    run_spec(spec)
    produce(bootstrap, source, [{"id": at} for at in range(2, 9)])
    run_spec(spec)
    assert sorted(each.json["id"] for each in consume(bootstrap, out)) == [*range(2, 9)]


def test_files_are_partitioned_few_and_written_once(
    run_spec: RunSpec, bootstrap: str, new_topic: TopicFactory, tmp_path: Path
) -> None:
    """The sink is no topic: dead letters take a query of their own, and arrive all the same."""
    source, letters = new_topic(partitions=2), new_topic()
    produce(
        bootstrap,
        source,
        [{"id": at, "name": f"n{at % 2}", "at": "2024-05-01T00:00:00Z"} for at in range(50)],
    )
    produce(bootstrap, source, [b"junk"])
    spec: dict[str, Any] = {
        "name": "lake",
        "source": {"type": "topic", "topics": source, "schema": SCHEMA},
        "transforms": [{"sql": "SELECT *, date(at) AS day FROM input"}, {"filter": "id < 40"}],
        "sink": {
            "type": "files",
            "path": str(tmp_path / "out"),
            "format": "json",
            "partition_by": ["day", "name"],
        },
        "errors": {"tolerance": "all", "dead_letter_topic": letters},
    }
    run_spec(spec)
    run_spec(spec)
    files = sorted((tmp_path / "out").rglob("*.json"))
    assert [file.parent.relative_to(tmp_path / "out").as_posix() for file in files] == [
        "day=2024-05-01/name=n0",
        "day=2024-05-01/name=n1",
    ]
    rows = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    assert sorted(row["id"] for row in rows) == list(range(40))
    assert set(rows[0]) == {"id", "at"}
    assert [each.value for each in consume(bootstrap, letters)] == [b"junk"]


def test_windows_are_counted_and_a_python_function_follows(
    run_spec: RunSpec, bootstrap: str, new_topic: TopicFactory
) -> None:
    source, counts = new_topic(), new_topic()
    produce(
        bootstrap, source, [{"id": at, "name": "a", "at": f"2024-05-01T00:00:{at:02}Z"} for at in range(25)]
    )
    produce(bootstrap, source, [{"id": 99, "name": "a", "at": "2024-05-01T01:00:00Z"}])
    run_spec(
        {
            "name": "windows",
            "source": {"type": "topic", "topics": source, "schema": SCHEMA},
            "transforms": [
                {"type": "deduplicate", "keys": "id", "time": "at"},
                {
                    "type": "window",
                    "time": "at",
                    "size": "10 seconds",
                    "watermark": "5 seconds",
                    "group_by": "name",
                    "aggregates": {"clicks": "count(*)", "last": "max(id)"},
                },
            ],
            "sink": {"type": "topic", "topic": counts, "key": "name"},
        },
        functions=[lambda rows: rows.withColumnRenamed("clicks", "n")],
    )
    found = sorted(
        (each.json for each in consume(bootstrap, counts)), key=lambda row: str(row["window_start"])
    )
    assert [(row["n"], row["last"]) for row in found] == [(10, 9), (10, 19), (5, 24)]


def test_a_schema_is_inferred_from_samples_and_kept(
    run_spec: RunSpec, bootstrap: str, new_topic: TopicFactory
) -> None:
    from barnabas.pipelines.spark.context.run_context import PipelineFailed

    source, out = new_topic(), new_topic()
    produce(bootstrap, source, [{"a": 1, "nested": {"b": "x"}}])
    spec = {
        "name": "inferred",
        "source": {"type": "topic", "topics": source},
        "transforms": [{"Flatten": "_"}],
        "sink": {"type": "topic", "topic": out},
    }
    run_spec(spec)
    produce(bootstrap, source, [{"a": 2}])
    run_spec(spec)
    assert [each.json for each in consume(bootstrap, out)] == [{"a": 1, "nested_b": "x"}, {"a": 2}]
    produce(bootstrap, source, [{"a": 3, "late": True}])
    with pytest.raises(PipelineFailed, match=r"fields that the inferred schema lacks \(late\)"):
        run_spec(spec)


def test_a_stream_is_joined_with_a_static_table(
    run_spec: RunSpec, bootstrap: str, new_topic: TopicFactory, tmp_path: Path
) -> None:
    source, out = new_topic(), new_topic()
    (tmp_path / "users").mkdir()
    (tmp_path / "users" / "a.csv").write_text("1,Berlin\n2,Prague\n")
    produce(bootstrap, source, [{"id": 2, "name": "k"}, {"id": 7, "name": "z"}])
    run_spec({
        "name": "joined",
        "source": {"type": "topic", "topics": source, "schema": "id BIGINT, name STRING"},
        "transforms": [{
            "type": "join", "on": "id", "how": "left",
            "source": {
                "type": "files", "path": str(tmp_path / "users"), "format": "csv",
                "schema": "id BIGINT, city STRING",
            },
        }],
        "sink": {"type": "topic", "topic": out},
    })  # fmt: skip
    assert [each.json for each in consume(bootstrap, out)] == [
        {"id": 2, "name": "k", "city": "Prague"},
        {"id": 7, "name": "z"},
    ]


def test_a_topic_that_is_joined_is_a_table_as_it_is_at_each_batch(
    spark: SparkSession, bootstrap: str, new_topic: TopicFactory, tmp_path: Path
) -> None:
    from barnabas.pipelines.spark.context.run_context import Run
    from barnabas.pipelines.spark.runner import start_pipeline
    from barnabas.pipelines.spec.validation import load_document

    source, customers, out = new_topic(), new_topic(), new_topic()
    produce(bootstrap, customers, [{"who": "ada", "tier": "old"}, {"who": "ada", "tier": "new"}])
    produce(bootstrap, customers, [{"who": "bob", "tier": "gone"}, None], key=b"bob")
    produce(bootstrap, customers, [{"who": "cyd", "tier": "a"}, {"who": "cyd", "tier": "b"}], key=b"cyd")
    produce(bootstrap, source, [{"id": 1, "who": "ada"}, {"id": 2, "who": "bob"}, {"id": 3, "who": "cyd"}])
    spec = load_document({
        "name": "table",
        "source": {"type": "topic", "topics": source, "schema": "id BIGINT, who STRING"},
        "transforms": [{
            "type": "join", "on": "who", "how": "left",
            "source": {"type": "topic", "topics": customers, "schema": "who STRING, tier STRING"},
        }],
        "sink": {"type": "topic", "topic": out},
    })  # fmt: skip

    def tiers(count: int) -> dict[int, str | None]:
        deadline = time.monotonic() + 300
        while len(found := consume(bootstrap, out)) < count:
            assert running.failure is None, running.failure
            assert time.monotonic() < deadline
            time.sleep(0.2)
        assert len(found) == count
        return {each.json["id"]: each.json.get("tier") for each in found}

    running = start_pipeline(Run(spark, spec, bootstrap, str(tmp_path / "state")))
    try:
        assert tiers(3) == {1: "new", 2: None, 3: "b"}
        produce(bootstrap, customers, [{"who": "bob", "tier": "back"}], key=b"bob")
        produce(bootstrap, source, [{"id": 4, "who": "bob"}])
        assert tiers(4)[4] == "back"
    finally:
        running.stop()


def test_a_backfill_from_segments_goes_on_from_the_broker_where_the_files_end(
    run_spec: RunSpec, broker: Broker, bootstrap: str, new_topic: TopicFactory, tmp_path: Path
) -> None:
    source, out = new_topic(segment_bytes=32_768), new_topic()
    for number in range(0, 200, 10):
        rows = [{"id": at, "name": "x" * 500} for at in range(number, number + 10)]
        produce(bootstrap, source, rows)
    manifest = tmp_path / "manifest.json"
    export(broker, source, manifest)
    (exported,) = json.loads(manifest.read_text())["partitions"]
    closed = exported["segments"][-1]["end_offset"]
    assert 50 < closed < 200, "some segments are closed, and one is not"
    spec: dict[str, Any] = {
        "name": "backfill",
        "source": {
            "type": "topic", "topics": source, "schema": SCHEMA, "manifest": str(manifest),
            "max_offsets_per_trigger": 40,
        },
        "transforms": [{"type": "ReplaceField", "include": "id"}],
        "engine": "segments",
        "sink": {"type": "topic", "topic": out},
    }  # fmt: skip
    progress = run_spec(spec)
    assert max(each.records for each in progress) == 40
    assert [each.json["id"] for each in consume(bootstrap, out)] == list(range(closed))
    assert sum(each.records for each in run_spec(spec)) == 0, "there is nothing new in the files"
    del spec["engine"], spec["source"]["manifest"]
    run_spec(spec)
    assert [each.json["id"] for each in consume(bootstrap, out)] == list(range(200))


def test_two_topics_are_joined_by_key_and_time(
    run_spec: RunSpec, bootstrap: str, new_topic: TopicFactory
) -> None:
    views, clicks, out = new_topic(), new_topic(), new_topic()
    times = {name: f"2024-05-01T00:{minute:02}:00Z" for name, minute in (("t", 0), ("soon", 1), ("late", 9))}
    produce(bootstrap, views, [{"id": 1, "at": times["t"]}, {"id": 2, "at": times["t"]}])
    produce(
        bootstrap,
        clicks,
        [{"id": 1, "url": "/a", "at": times["soon"]}, {"id": 2, "url": "/b", "at": times["late"]}],
    )
    run_spec({
        "name": "attributed",
        "source": {"type": "topic", "topics": views, "schema": "id BIGINT, at TIMESTAMP"},
        "transforms": [{
            "type": "join", "on": "id", "static": False, "time": "at", "within": "5 minutes",
            "source": {"type": "topic", "topics": clicks, "schema": "id BIGINT, url STRING, at TIMESTAMP"},
        }],
        "sink": {"type": "topic", "topic": out},
    })  # fmt: skip
    assert [(each.json["id"], each.json["url"]) for each in consume(bootstrap, out)] == [(1, "/a")]


def test_records_that_come_after_an_idle_time_are_reported(
    spark: SparkSession, bootstrap: str, new_topic: TopicFactory, tmp_path: Path
) -> None:
    """Spark reports idle triggers under the number of the batch that comes next."""
    from barnabas.pipelines.spark.context.run_context import Run
    from barnabas.pipelines.spark.runner import start_pipeline
    from barnabas.pipelines.spec.validation import load_document

    source, out = new_topic(), new_topic()
    spec = load_document(
        {
            "name": "idle",
            "source": {"type": "topic", "topics": source, "schema": "id BIGINT"},
            "sink": {"type": "topic", "topic": out},
        }
    )
    seen: list[Progress] = []
    started = start_pipeline(Run(spark, spec, bootstrap, str(tmp_path / "state")), seen.append)
    try:
        wait_for(lambda: started.query.lastProgress is not None)
        produce(bootstrap, source, [{"id": at} for at in range(7)])
        wait_for(lambda: sum(each.records for each in seen) == 7)
    finally:
        started.stop()
    assert sum(each.records for each in seen) == 7


def wait_for(holds: Callable[[], bool], patience_s: float = 300.0) -> None:
    end = time.monotonic() + patience_s
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.2)
