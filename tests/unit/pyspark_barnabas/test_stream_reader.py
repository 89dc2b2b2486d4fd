"""End of the next micro-batch: everything, or as much as the options allow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")

from barnabas.core.ids import TopicPartition
from barnabas.protocol.offset_numbers import EARLIEST
from pyspark_barnabas.readers.batch_reader import TaskPartition
from pyspark_barnabas.readers.fetch import DataLoss
from pyspark_barnabas.readers.offsets import OffsetTree
from pyspark_barnabas.readers.stream_reader import StreamReader
from pyspark_barnabas.shared.options import OptionError, Options
from tests.support.manual_time import ManualClock


class Topic:
    """One topic of a cluster: where its partitions end."""

    def __init__(self, *ends: int) -> None:
        self.ends = list(ends)
        self.begins = 0
        self.topic_id = "first"
        self.clock = ManualClock()

    def partitions(self, topics: Iterable[str]) -> dict[str, int]:
        return {name: len(self.ends) for name in topics if self.ends}

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        return {name: self.topic_id for name in topics if self.topic_id and self.ends}

    def create_again(self, *ends: int) -> None:
        self.ends = list(ends)
        self.topic_id = "second"

    def list_offsets(self, asked: Mapping[TopicPartition, int], **_: object) -> dict[TopicPartition, int]:
        return {
            topic_partition: self.begins if what == EARLIEST else self.ends[topic_partition.partition]
            for topic_partition, what in asked.items()
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


def read(reader: StreamReader, start: OffsetTree, end: OffsetTree) -> list[tuple[int, int, int]]:
    return [
        (each.partition, each.start, each.end)
        for task in reader.partitions(start, end)
        if isinstance(task, TaskPartition)
        for each in task.ranges
    ]


@pytest.mark.parametrize("records", [3, 40, 90])
def test_a_topic_that_was_created_again_is_refused_by_name(records: int) -> None:
    """Whether the new topic has fewer records than were read, as many, or more."""
    topic = Topic(40)
    reader = reader_of(topic)
    reached = next_batch(reader, reader.initialOffset())
    topic.create_again(records)
    with pytest.raises(DataLoss, match=r"topic t was deleted and created again .*topic id second, was first"):
        next_batch(reader, reached)
    with pytest.raises(DataLoss, match="to read the new topic from its beginning"):
        next_batch(reader_of(topic), reached)


@pytest.mark.parametrize("records", [3, 40, 90])
def test_a_topic_that_was_created_again_is_read_from_its_beginning_where_loss_is_accepted(
    records: int,
) -> None:
    topic = Topic(40)
    reader = reader_of(topic, failOnDataLoss="false")
    reached = next_batch(reader, reader.initialOffset())
    topic.create_again(records)
    batch = next_batch(reader, reached)
    assert ends(batch) == [records]
    assert read(reader, reached, batch) == [(0, 0, records)]
    assert next_batch(reader, batch) == batch, "and once only"


def test_a_bounded_batch_of_a_topic_that_was_created_again_goes_on_inside_it() -> None:
    topic = Topic(40)
    reader = reader_of(topic, failOnDataLoss="false", maxOffsetsPerTrigger="5")
    topic.create_again(8)
    first = next_batch(reader, {"t": {"0": 40}, "@topic_ids": {"t": "first"}})
    assert [ends(first), ends(next_batch(reader, first))] == [[5], [8]]


def test_a_journaled_batch_of_a_topic_that_is_gone_reads_nothing_of_the_new_one() -> None:
    topic = Topic(40)
    reader = reader_of(topic)
    start = reader.initialOffset()
    end = next_batch(reader, start)
    topic.create_again(90)
    with pytest.raises(DataLoss, match="created again before its records were read"):
        reader_of(topic).partitions(start, end)
    careless = reader_of(topic, failOnDataLoss="false")
    assert read(careless, start, end) == []
    following = next_batch(careless, end)
    assert read(careless, end, following) == [(0, 0, 90)]


def test_a_checkpoint_without_topic_ids_goes_on_and_has_them_from_there_on() -> None:
    topic = Topic(40)
    reader = reader_of(topic)
    batch = next_batch(reader, {"t": {"0": 30}})
    assert read(reader, {"t": {"0": 30}}, batch) == [(0, 30, 40)]
    topic.create_again(60)
    with pytest.raises(DataLoss, match="created again"):
        next_batch(reader, batch)


@pytest.mark.parametrize(
    ("ids", "following"), [({"@topic_ids": {"t": "first"}}, (0, 10, 15)), ({}, (0, 0, 10))]
)
def test_a_partition_that_ends_before_its_position_goes_on(
    ids: dict[str, Any], following: tuple[int, int, int]
) -> None:
    """At its end if it is of the same topic, and was cut off; else from its beginning."""
    topic = Topic(10)
    start = {"t": {"0": 40}, **ids}
    with pytest.raises(DataLoss, match="the end of t-0 moved back from 40 to 10"):
        next_batch(reader_of(topic), start)
    careless = reader_of(topic, failOnDataLoss="false")
    batch = next_batch(careless, start)
    assert ends(batch) == [10]
    found = read(careless, start, batch)
    topic.ends = [15]
    found += read(careless, batch, next_batch(careless, batch))
    assert found[0] == following
    assert found[-1][2] == 15


def test_a_broker_without_topic_ids_is_read_as_before() -> None:
    topic = Topic(40)
    topic.topic_id = ""
    reader = reader_of(topic)
    start = reader.initialOffset()
    assert start == {"t": {"0": 0}}
    assert next_batch(reader, start) == {"t": {"0": 40}}


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
def test_missing_partitions_are_data_loss_by_default(left: tuple[int, ...]) -> None:
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
