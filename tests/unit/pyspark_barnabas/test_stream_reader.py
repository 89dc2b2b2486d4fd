"""How far the next micro-batch goes: all there is, or as much as the options let through."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")

from barnabas.core.clock import ManualClock
from barnabas.core.ids import TopicPartition
from barnabas.protocol.offset_numbers import EARLIEST
from pyspark_barnabas.fetch import DataLoss
from pyspark_barnabas.offsets import OffsetTree
from pyspark_barnabas.options import OptionError, Options
from pyspark_barnabas.reader import TaskPartition
from pyspark_barnabas.stream_reader import StreamReader


class Topic:
    """One topic of a cluster: where its partitions end."""

    def __init__(self, *ends: int) -> None:
        self.ends = list(ends)
        self.begins = 0
        self.clock = ManualClock()

    def partitions(self, topics: Iterable[str]) -> dict[str, int]:
        return {name: len(self.ends) for name in topics if self.ends}

    def list_offsets(self, asked: Mapping[TopicPartition, int], **_: object) -> dict[TopicPartition, int]:
        return {
            place: self.begins if what == EARLIEST else self.ends[place.partition]
            for place, what in asked.items()
        }


def reader_of(topic: Topic, **options: str) -> StreamReader:
    given = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t", "startingOffsets": "earliest"}
    reader = StreamReader(Options({**given, **options}))
    reader._cluster = topic  # type: ignore[assignment]
    return reader


def ends(tree: OffsetTree) -> list[int]:
    return [offset for _, offset in sorted(tree["t"].items())]


def next_batch(reader: StreamReader, start: OffsetTree) -> Any:
    return reader.latestOffset(start, reader.getDefaultReadLimit())


def test_a_batch_takes_all_there_is() -> None:
    reader = reader_of(Topic(40, 60))
    assert ends(next_batch(reader, reader.initialOffset())) == [40, 60]


def test_a_batch_is_bounded_and_the_bound_shared_by_what_waits() -> None:
    reader = reader_of(Topic(40, 60, 0), maxOffsetsPerTrigger="10")
    start = reader.initialOffset()
    first = next_batch(reader, start)
    assert ends(first) == [4, 6, 0]
    assert ends(next_batch(reader, first)) == [8, 12, 0]


def test_another_bound_goes_on_where_the_last_batch_ended() -> None:
    """This is how the throughput of a stream is changed: the query is started again with other options."""
    topic = Topic(1_000)
    slow = reader_of(topic, maxOffsetsPerTrigger="10")
    reached = next_batch(slow, slow.initialOffset())
    fast = reader_of(topic, maxOffsetsPerTrigger="500")
    assert ends(next_batch(fast, reached)) == [510]


def test_little_is_waited_for_but_not_for_ever() -> None:
    topic = Topic(3)
    reader = reader_of(topic, minOffsetsPerTrigger="10", maxTriggerDelay="5s")
    start = reader.initialOffset()
    assert next_batch(reader, start) == start
    topic.clock.advance(4_999)
    assert next_batch(reader, start) == start
    topic.clock.advance(1)
    assert ends(next_batch(reader, start)) == [3]
    topic.ends = [13]
    assert ends(next_batch(reader, {"t": {"0": 3}})) == [13], "that is enough"


def test_all_that_there_was_is_read_to_its_end_however_little_it_is() -> None:
    topic = Topic(3)
    reader = reader_of(topic, minOffsetsPerTrigger="10")
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    topic.ends = [50]
    assert ends(next_batch(reader, start)) == [3]


def test_a_new_partition_is_read_from_its_beginning() -> None:
    topic = Topic(5)
    reader = reader_of(topic)
    reached = next_batch(reader, reader.initialOffset())
    topic.ends.append(7)
    batch = next_batch(reader, reached)
    (task,) = reader.partitions(reached, batch)
    assert isinstance(task, TaskPartition)
    assert [(each.partition, each.start, each.end) for each in task.ranges] == [(1, 0, 7)]
    topic.begins = 2
    with pytest.raises(DataLoss, match="begins at 2"):
        next_batch(reader, reached)


@pytest.mark.parametrize("left", [(), (4,)])
def test_what_is_gone_is_data_loss_unless_told_otherwise(left: tuple[int, ...]) -> None:
    topic = Topic(5, 6)
    reader, careless = reader_of(topic), reader_of(topic, failOnDataLoss="false")
    reached = next_batch(reader, reader.initialOffset())
    topic.ends = list(left)
    with pytest.raises(DataLoss, match="gone"):
        next_batch(reader, reached)
    next_batch(careless, reached)


def test_bounds_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(OptionError, match="minOffsetsPerTrigger"):
        reader_of(Topic(1), minOffsetsPerTrigger="2", maxOffsetsPerTrigger="1")
