"""A batch whose tasks look up the offsets when they read: a topic as a table that is joined with a stream."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from pyspark_barnabas.readers.batch_reader import BatchReader
from pyspark_barnabas.shared.options import Options
from tests.support.waiting import PATIENCE_S


def test_tasks_of_one_plan_see_what_came_since(pipelines_broker: str) -> None:
    admin = AdminClient({"bootstrap.servers": pipelines_broker})
    admin.create_topics([NewTopic("dim", 3, 1)])["dim"].result(PATIENCE_S)
    producer = Producer({"bootstrap.servers": pipelines_broker})

    def produce(value: str, partition: int) -> None:
        producer.produce("dim", value.encode(), partition=partition)
        assert producer.flush(PATIENCE_S) == 0

    options = {"kafka.bootstrap.servers": pipelines_broker, "subscribe": "dim"}
    fixed, late = BatchReader(Options(options)), BatchReader(Options({**options, "offsetsAtRead": "true"}))
    produce("first", 0)
    plans = {reader: reader.partitions() for reader in (fixed, late)}

    def read(reader: BatchReader) -> list[str]:
        return sorted(
            value.decode()
            for task in plans[reader]
            for batch in reader.read(task)
            for value in batch.column("value").to_pylist()
        )

    assert (read(fixed), read(late)) == (["first"], ["first"])
    produce("second", 0)
    produce("third", 2)  # nothing was there when the plan was made
    assert (read(fixed), read(late)) == (["first"], ["first", "second", "third"])
