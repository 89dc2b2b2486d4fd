"""Batch reads: the driver fixes the offset range when it plans, and tasks read that range.

Spark plans a batch once, even one that is joined with a stream and read again in every micro-batch. With
`offsetsAtRead`, tasks look up the end of their partitions when they read. A topic that stands for a table is
then the table at that moment.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from barnabas.protocol.offset_numbers import EARLIEST, LATEST
from pyspark_barnabas.readers import offsets, planning
from pyspark_barnabas.readers.fetch import FetchOptions, OffsetRange, read_range
from pyspark_barnabas.shared import options as parse
from pyspark_barnabas.shared.cluster import Cluster
from pyspark_barnabas.shared.cluster_config import ClusterConfig
from pyspark_barnabas.shared.options import FETCH_BYTES, OptionError, Options

STREAM_ONLY: Final = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")


class TaskPartition(InputPartition):
    """Ranges that one task reads, in order."""

    def __init__(self, ranges: Sequence[OffsetRange], *, is_open: bool = False) -> None:
        super().__init__(None)
        self.ranges = tuple(ranges)
        self.is_open = is_open
        """The ranges end at the log end offset at the time of the read."""


def fetch_options(options: Options) -> FetchOptions:
    fetch_bytes = options.number("kafka.max.partition.fetch.bytes", FETCH_BYTES)
    poll_timeout_ms = options.number("kafkaConsumer.pollTimeoutMs", 120_000)
    assert fetch_bytes is not None
    assert poll_timeout_ms is not None
    return FetchOptions(
        columns=parse.columns(options),
        isolation=parse.isolation(options),
        fail_on_data_loss=options.flag("failOnDataLoss", default=True),
        # A task fetches one partition at a time, so the smaller of the two limits holds.
        fetch_bytes=min(fetch_bytes, options.number("kafka.fetch.max.bytes") or fetch_bytes),
        poll_timeout_ms=poll_timeout_ms,
    )


def read_task(
    config: ClusterConfig, partition: InputPartition, fetching: FetchOptions
) -> Iterator[pa.RecordBatch]:
    """Records of a task's ranges. Runs on an executor."""
    assert isinstance(partition, TaskPartition)
    with Cluster(config) as cluster:
        ranges = _current(cluster, partition.ranges, fetching) if partition.is_open else partition.ranges
        for wanted in ranges:
            yield from read_range(cluster, wanted, fetching)


def _current(
    cluster: Cluster, ranges: Sequence[OffsetRange], fetching: FetchOptions
) -> Iterator[OffsetRange]:
    topic_partitions = [each.topic_partition for each in ranges]
    begins = cluster.list_offsets(dict.fromkeys(topic_partitions, EARLIEST))
    ends = cluster.list_offsets(dict.fromkeys(topic_partitions, LATEST), isolation=fetching.isolation)
    for each in ranges:
        if each.topic_partition in begins and each.topic_partition in ends:
            yield replace(
                each, start=max(each.start, begins[each.topic_partition]), end=ends[each.topic_partition]
            )


class BatchReader(DataSourceReader):
    def __init__(self, options: Options) -> None:
        for name in STREAM_ONLY:
            if options.get(name) is not None:
                raise OptionError(f"{name} is for streams: a batch reads its whole range")
        self._config = parse.cluster_config(options)
        self._subscription = parse.subscription(options)
        self._starting = parse.starting(options, is_stream=False)
        self._ending = parse.ending(options)
        self._fetching = fetch_options(options)
        self._min_partitions = options.number("minPartitions")
        self._max_records = options.number("maxRecordsPerPartition")
        self._is_open = options.flag("offsetsAtRead", default=False)

    def partitions(self) -> list[InputPartition]:
        with Cluster(self._config) as cluster:
            cluster.reach()
            ranges = self._ranges(cluster)
        if self._is_open and ranges:
            return [TaskPartition(task, is_open=True) for task in planning.whole(ranges)]
        tasks = planning.plan(
            ranges, min_partitions=self._min_partitions, max_records_per_partition=self._max_records
        )
        return [TaskPartition(task) for task in tasks or [[]]]

    def _ranges(self, cluster: Cluster) -> list[OffsetRange]:
        isolation = self._fetching.isolation
        topic_partitions = offsets.subscribed(cluster, self._subscription)
        ids = cluster.topic_ids({topic_partition.topic for topic_partition in topic_partitions})
        starts = offsets.resolve(
            cluster, topic_partitions, self._starting, isolation=isolation, which="starting"
        )
        ends = offsets.resolve(cluster, topic_partitions, self._ending, isolation=isolation, which="ending")
        return [
            OffsetRange(
                topic_partition.topic,
                topic_partition.partition,
                starts[topic_partition],
                ends[topic_partition],
                ids.get(topic_partition.topic, ""),
            )
            for topic_partition in topic_partitions
            if topic_partition in starts and topic_partition in ends
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(self._config, partition, self._fetching)
