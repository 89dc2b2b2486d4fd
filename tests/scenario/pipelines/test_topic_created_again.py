"""A topic that is deleted and created again under a stream, on a real broker, without Spark.

Spark's part is done by hand: it journals where a batch ends, asks for the tasks of the batch and runs them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

pytest.importorskip("pyspark", reason="PySpark is not installed")

from barnabas.testing.broker import run_broker
from pyspark_barnabas.readers.fetch import DataLoss
from pyspark_barnabas.readers.offsets import OffsetTree
from pyspark_barnabas.readers.stream_reader import StreamReader
from pyspark_barnabas.shared.options import Options
from tests.support.waiting import PATIENCE_S

TOPIC = "events"


class Events:
    """The topic, as an operator sees it."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap})

    def create(self, *values: str) -> None:
        self._admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(PATIENCE_S)
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for value in values:
            producer.produce(TOPIC, value.encode())
        assert producer.flush(PATIENCE_S) == 0

    def delete(self) -> None:
        self._admin.delete_topics([TOPIC])[TOPIC].result(PATIENCE_S)
        deadline = time.monotonic() + 30
        while TOPIC in self._admin.list_topics(timeout=PATIENCE_S).topics:
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def create_again(self, *values: str) -> None:
        self.delete()
        self.create(*values)

    def reader(self, **options: str) -> StreamReader:
        given = {"kafka.bootstrap.servers": self.bootstrap, "subscribe": TOPIC}
        return StreamReader(Options({**given, "startingOffsets": "earliest", **options}))


@pytest.fixture
def events() -> Iterator[Events]:
    with run_broker() as broker:
        yield Events(broker.bootstrap)


def next_batch(reader: StreamReader, start: OffsetTree) -> Any:
    return reader.latestOffset(start, reader.getDefaultReadLimit())


def read(reader: StreamReader, start: OffsetTree, end: OffsetTree) -> list[str]:
    return [
        value.decode()
        for task in reader.partitions(start, end)
        for batch in reader.read(task)
        for value in batch.column("value").to_pylist()
    ]


@pytest.mark.parametrize("count", [2, 5])
def test_the_new_topic_is_refused_or_read_whole(events: Events, count: int) -> None:
    """It has fewer records than were read of the deleted one, or more."""
    events.create("old 0", "old 1", "old 2")
    reader = events.reader(failOnDataLoss="false")
    start = reader.initialOffset()
    reached = next_batch(reader, start)
    assert read(reader, start, reached) == ["old 0", "old 1", "old 2"]
    new = [f"new {number}" for number in range(count)]
    events.create_again(*new)
    strict = events.reader()
    with pytest.raises(DataLoss, match="topic events was deleted and created again"):
        next_batch(strict, reached)
    strict.stop()
    batch = next_batch(reader, reached)
    assert read(reader, reached, batch) == new
    assert next_batch(reader, batch) == batch
    reader.stop()


def test_a_task_reads_nothing_of_a_topic_that_took_the_name_since(events: Events) -> None:
    events.create("old 0", "old 1")
    reader = events.reader()
    start = reader.initialOffset()
    (task,) = reader.partitions(start, next_batch(reader, start))
    events.create_again("new 0", "new 1")
    with pytest.raises(DataLoss, match="topic events was deleted and created again"):
        list(reader.read(task))
    reader.stop()
