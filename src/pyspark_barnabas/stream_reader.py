"""Streaming reads: the driver says how far the next micro-batch goes, and tasks read up to there.

The reader lives as long as the query, in a process beside the driver, and keeps its connections.
What it remembers is for comfort only: a batch is defined by its start and end offsets, which Spark
journals, so a restarted query reads exactly what the batch held before.

Partitions that appear while the query runs are read from their beginning. Partitions that
disappear are data loss, unless `failOnDataLoss=false`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from barnabas.core.ids import TopicPartition
from barnabas.protocol.offset_numbers import EARLIEST, LATEST
from pyspark_barnabas import offsets, planning
from pyspark_barnabas import options as parse
from pyspark_barnabas.cluster import Cluster
from pyspark_barnabas.fetch import DataLoss, OffsetRange
from pyspark_barnabas.offsets import Offsets, OffsetTree
from pyspark_barnabas.options import OptionError, Options
from pyspark_barnabas.reader import TaskPartition, fetch_options, read_task

MAX_TRIGGER_DELAY_MS: Final = 15 * 60 * 1_000
BATCH_ONLY: Final = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
_log = logging.getLogger(__name__)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: Options) -> None:
        for name in BATCH_ONLY:
            if options.get(name) is not None:
                raise OptionError(f"{name} is for batches: a stream has no end")
        self._config = parse.cluster_config(options)
        self._subscription = parse.subscription(options)
        self._starting = parse.starting(options, is_stream=True)
        self._fetching = fetch_options(options)
        self._min_partitions = options.number("minPartitions")
        self._max_records = options.number("maxRecordsPerPartition")
        self._max_offsets = options.number("maxOffsetsPerTrigger")
        self._min_offsets = options.number("minOffsetsPerTrigger")
        self._max_delay_ms = options.duration_ms("maxTriggerDelay", MAX_TRIGGER_DELAY_MS)
        if self._max_offsets and self._min_offsets and self._max_offsets < self._min_offsets:
            raise OptionError("minOffsetsPerTrigger cannot be larger than maxOffsetsPerTrigger")
        self._cluster: Cluster | None = None
        self._latest: Offsets = {}
        self._target: Offsets | None = None
        self._last_batch_ms: float | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Tasks get a copy; connections and memories stay with the driver.
        return {**self.__dict__, "_cluster": None, "_latest": {}, "_target": None}

    # -- what Spark asks on the driver --------------------------------------------------------

    def initialOffset(self) -> OffsetTree:  # noqa: N802 - Spark's name
        cluster = self._opened()
        places = offsets.subscribed(cluster, self._subscription)
        isolation = self._fetching.isolation
        return offsets.to_tree(
            offsets.resolve(cluster, places, self._starting, isolation=isolation, which="starting")
        )

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        return ReadMaxRows(self._max_offsets) if self._max_offsets else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._target = self._ask_latest()

    def latestOffset(self, start: OffsetTree, limit: ReadLimit) -> OffsetTree:  # noqa: N802 - Spark's name
        latest = self._target if self._target is not None else self._ask_latest()
        ranges = self._ranges(offsets.from_tree(start), latest)
        if self._is_too_little(ranges):
            return start
        if isinstance(limit, ReadMaxRows):
            ranges = planning.limit(ranges, limit.max_rows)
        self._last_batch_ms = self._opened().clock.monotonic_ms()
        ends = {place: offset for place, offset in offsets.from_tree(start).items() if place in latest}
        ends |= {each.place: each.end for each in ranges}
        return offsets.to_tree(ends)

    def reportLatestOffset(self) -> OffsetTree | None:  # noqa: N802 - Spark's name
        return offsets.to_tree(self._latest) if self._latest else None

    def partitions(self, start: OffsetTree, end: OffsetTree) -> list[InputPartition]:
        ranges = self._ranges(offsets.from_tree(start), offsets.from_tree(end))
        tasks = planning.plan(
            ranges, min_partitions=self._min_partitions, max_records_per_partition=self._max_records
        )
        return [TaskPartition(task) for task in tasks]

    def stop(self) -> None:
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    # -- what runs in tasks -------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(self._config, partition, self._fetching)

    # -- how it is found out ------------------------------------------------------------------

    def _opened(self) -> Cluster:
        if self._cluster is None:
            # A query that begins hears at once of an address where nobody is; one that runs is patient.
            cluster = Cluster(self._config)
            cluster.reach()
            self._cluster = cluster
        return self._cluster

    def _ask_latest(self) -> Offsets:
        cluster = self._opened()
        places = offsets.subscribed(cluster, self._subscription, must_exist=False)
        self._latest = cluster.list_offsets(dict.fromkeys(places, LATEST), isolation=self._fetching.isolation)
        return self._latest

    def _ranges(self, start: Offsets, end: Offsets) -> list[OffsetRange]:
        """From `start` to `end`; what `start` does not know begins at its earliest offset."""
        gone = sorted(place for place in start if place not in end)
        if gone:
            self._lose(f"{', '.join(map(str, gone))} are gone; some data may have been missed")
        starts = start | self._beginnings([place for place in end if place not in start])
        ranges = []
        for place in sorted(end):
            if place not in starts:
                self._lose(f"{place} is gone; its records up to {end[place]} cannot be read")
                continue
            if end[place] < starts[place]:
                self._lose(
                    f"the end of {place} moved back from {starts[place]} to {end[place]}; was it made anew?"
                )
                continue
            ranges.append(OffsetRange(place.topic, place.partition, starts[place], end[place]))
        return ranges

    def _beginnings(self, new: list[TopicPartition]) -> Offsets:
        if not new:
            return {}
        earliest = self._opened().list_offsets(dict.fromkeys(new, EARLIEST))
        for place, offset in earliest.items():
            if offset > 0:
                self._lose(f"{place} is new and begins at {offset}; what was before is deleted already")
        return earliest

    def _is_too_little(self, ranges: list[OffsetRange]) -> bool:
        """Whether `minOffsetsPerTrigger` says to wait; never when all there is must be read."""
        if not self._min_offsets or self._target is not None:
            return False
        now_ms = self._opened().clock.monotonic_ms()
        if self._last_batch_ms is None:
            self._last_batch_ms = now_ms
        available = sum(each.size for each in ranges)
        return available < self._min_offsets and now_ms - self._last_batch_ms < self._max_delay_ms

    def _lose(self, message: str) -> None:
        if self._fetching.fail_on_data_loss:
            raise DataLoss(f"{message}. Set failOnDataLoss=false to go on without them.")
        _log.warning("%s", message)
