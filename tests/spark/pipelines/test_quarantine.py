"""Records that break a transform: set aside, and the pipeline goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.spark.pipelines.conftest import RunSpec
from tests.support.fixtures import TopicFactory
from tests.support.topics import consume, produce
from tests.support.waiting import PATIENCE_S

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Making a Python function for Spark asks for pandas, of which Spark does not know the newest yet.
pytestmark = pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas")

GONE = 60


def delete_records(bootstrap: str, topic: str, upto: int) -> None:
    admin, topic_partition = AdminClient({"bootstrap.servers": bootstrap}), TopicPartition(topic, 0, upto)
    (deleted,) = admin.delete_records([topic_partition]).values()
    deleted.result()


def committed(bootstrap: str, group: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        (found,) = consumer.committed([TopicPartition(topic, 0)], timeout=PATIENCE_S)
        return int(found.offset)
    finally:
        consumer.close()


def divide(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812

    return rows.withColumn("share", F.udf(lambda n: 100 // n, "int")("n"))


def test_a_record_that_breaks_a_function_becomes_a_dead_letter_and_the_batch_is_written_once(
    run_spec: RunSpec, bootstrap: str, new_topic: TopicFactory
) -> None:
    from barnabas.pipelines.spark.context.run_context import PipelineFailed

    source, out, letters = new_topic(), new_topic(), new_topic()
    produce(bootstrap, source, [{"n": at % 9} for at in range(1, 12)])
    spec: dict[str, Any] = {
        "name": "poison",
        "source": {"type": "topic", "topics": source, "schema": "n INT"},
        "sink": {"type": "topic", "topic": out},
    }
    with pytest.raises(PipelineFailed, match="ZeroDivisionError"):
        run_spec({**spec, "name": "strict"}, functions=[divide])
    run_spec({**spec, "errors": {"tolerance": "all", "dead_letter_topic": letters}}, functions=[divide])
    assert sorted(each.json["n"] for each in consume(bootstrap, out)) == [1, 1, 2, 2, 3, 4, 5, 6, 7, 8]
    (dead,) = consume(bootstrap, letters)
    assert dead.json == {"n": 0}
    assert dead.headers["__connect.errors.offset"] == b"8"
    assert b"ZeroDivisionError" in dead.headers["__connect.errors.exception.message"]


@pytest.mark.kill_matrix
def test_a_driver_that_dies_before_its_note_writes_no_letter_again(
    run_spec: RunSpec, bootstrap: str, new_topic: TopicFactory, spark: SparkSession, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    from barnabas.pipelines.spark.recovery import quarantine
    from barnabas.pipelines.spark.state.state_files import add_note

    deaths = [1]

    def dying(*arguments: Any) -> None:
        if deaths:
            deaths.pop()
            raise RuntimeError("killed")
        add_note(*arguments)

    monkeypatch.setattr(quarantine, "add_note", dying)
    source, letters = new_topic(), new_topic()
    produce(bootstrap, source, [{"n": at} for at in range(3)])
    spec: dict[str, Any] = {
        "name": "poison-dies",
        "source": {"type": "topic", "topics": source, "schema": "n INT"},
        "sink": {"type": "files", "path": str(tmp_path / "lake")},
        "errors": {"tolerance": "all", "dead_letter_topic": letters},
    }
    with pytest.raises(RuntimeError, match="killed"):
        run_spec(spec, functions=[divide])
    assert len(consume(bootstrap, letters)) == 1, "the letter is written before the note"
    run_spec(spec, functions=[divide])
    assert [each.json for each in consume(bootstrap, letters)] == [{"n": 0}]
    assert sorted(row["n"] for row in spark.read.parquet(str(tmp_path / "lake")).collect()) == [1, 2]


def test_beside_a_sink_that_is_no_topic_it_becomes_a_dead_letter_too(
    run_spec: RunSpec, bootstrap: str, new_topic: TopicFactory, spark: SparkSession, tmp_path: Path
) -> None:
    """The query of the dead letters may have passed the record by before anyone knew that it breaks.

    The topic begins where retention has left it, not at offset 0.
    """
    source, letters = new_topic(), new_topic()
    produce(bootstrap, source, [{"n": 0}] * GONE)
    delete_records(bootstrap, source, GONE)
    produce(bootstrap, source, [{"n": 0}, b"junk", *({"n": at % 9} for at in range(1, 12))])
    spec: dict[str, Any] = {
        "name": "poison-files",
        "source": {"type": "topic", "topics": source, "schema": "n INT"},
        "sink": {"type": "files", "path": str(tmp_path / "lake")},
        "errors": {"tolerance": "all", "dead_letter_topic": letters},
    }
    run_spec(spec, functions=[divide])
    rows = spark.read.parquet(str(tmp_path / "lake")).collect()
    assert sorted(row["n"] for row in rows) == [1, 1, 2, 2, 3, 4, 5, 6, 7, 8]
    found = {each.headers["__connect.errors.offset"]: each for each in consume(bootstrap, letters)}
    first, junk, last = (str(GONE + at).encode() for at in (0, 1, 10))
    assert sorted(found) == sorted([first, junk, last])
    assert len(consume(bootstrap, letters)) == 3
    assert found[last].json == found[first].json == {"n": 0}
    assert b"ZeroDivisionError" in found[last].headers["__connect.errors.exception.message"]
    stages = {offset: each.headers["__connect.errors.stage"] for offset, each in found.items()}
    assert stages == {first: b"TRANSFORMATION", junk: b"VALUE_CONVERTER", last: b"TRANSFORMATION"}
    assert found[last].headers["__connect.errors.class.name"] == b"barnabas.pipelines.spark.transforms"
    assert committed(bootstrap, "pipeline-poison-files", source) == GONE + 13, "its lag is visible"
    # Notes are added to, never replaced; and a note that is lost loses no later record.
    (note,) = (tmp_path / "state" / "poison-files" / "0" / "quarantine").iterdir()
    note.write_text(json.dumps({f"{source}/0/{GONE}": "as if the other one had been lost"}))
    produce(bootstrap, source, [{"n": 0}, {"n": 3}])
    run_spec(spec, functions=[divide])
    offsets = [each.headers["__connect.errors.offset"] for each in consume(bootstrap, letters)]
    assert str(GONE + 13).encode() in offsets
    assert len([*note.parent.iterdir()]) == 2
