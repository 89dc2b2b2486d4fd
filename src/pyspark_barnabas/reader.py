"""Batch reads: the range is fixed when the plan is made, and tasks read it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from pyspark_barnabas import offsets, planning
from pyspark_barnabas import options as parse
from pyspark_barnabas.cluster import Cluster
from pyspark_barnabas.cluster_config import ClusterConfig
from pyspark_barnabas.fetch import FetchOptions, OffsetRange, read_range
from pyspark_barnabas.options import FETCH_BYTES, OptionError, Options

STREAM_ONLY: Final = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")


class TaskPartition(InputPartition):
    """What one task reads: ranges, one after another."""

    def __init__(self, ranges: Sequence[OffsetRange]) -> None:
        super().__init__(None)
        self.ranges = tuple(ranges)


def fetch_options(options: Options) -> FetchOptions:
    fetch_bytes = options.number("kafka.max.partition.fetch.bytes", FETCH_BYTES)
    poll_timeout_ms = options.number("kafkaConsumer.pollTimeoutMs", 120_000)
    assert fetch_bytes is not None
    assert poll_timeout_ms is not None
    return FetchOptions(
        columns=parse.columns(options),
        isolation=parse.isolation(options),
        fail_on_data_loss=options.flag("failOnDataLoss", default=True),
        fetch_bytes=fetch_bytes,
        poll_timeout_ms=poll_timeout_ms,
    )


def read_task(
    config: ClusterConfig, partition: InputPartition, fetching: FetchOptions
) -> Iterator[pa.RecordBatch]:
    """Runs on an executor."""
    assert isinstance(partition, TaskPartition)
    with Cluster(config) as cluster:
        for wanted in partition.ranges:
            yield from read_range(cluster, wanted, fetching)


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

    def partitions(self) -> list[InputPartition]:
        with Cluster(self._config) as cluster:
            cluster.reach()
            ranges = self._ranges(cluster)
        tasks = planning.plan(
            ranges, min_partitions=self._min_partitions, max_records_per_partition=self._max_records
        )
        return [TaskPartition(task) for task in tasks or [[]]]

    def _ranges(self, cluster: Cluster) -> list[OffsetRange]:
        isolation = self._fetching.isolation
        places = offsets.subscribed(cluster, self._subscription)
        starts = offsets.resolve(cluster, places, self._starting, isolation=isolation, which="starting")
        ends = offsets.resolve(cluster, places, self._ending, isolation=isolation, which="ending")
        return [
            OffsetRange(place.topic, place.partition, starts[place], ends[place])
            for place in places
            if place in starts and place in ends
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(self._config, partition, self._fetching)
