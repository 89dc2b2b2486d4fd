"""Streaming reads: the driver sets the end of the next micro-batch, and tasks read up to it.

The reader lives as long as the query, in a process beside the driver, and keeps its connections. Its memory
is only a cache. Start and end offsets define a batch and Spark journals them, so a restarted query reads
exactly the records that the batch held before.

Partitions that appear while the query runs are read from their beginning. Partitions that disappear are data
loss, unless `failOnDataLoss=false`. A topic that was deleted and created again is data loss too, and its
topic id reveals it. The old offsets do not apply to the new topic; `failOnDataLoss=false` reads it from its
beginning.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
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
from barnabas.pipelines.state.checkpoint_format import topic_ids
from barnabas.protocol.offset_numbers import EARLIEST, LATEST
from pyspark_barnabas.readers import offsets, planning
from pyspark_barnabas.readers.batch_reader import TaskPartition, fetch_options, read_task
from pyspark_barnabas.readers.fetch import OffsetRange, report_data_loss
from pyspark_barnabas.readers.offsets import Offsets, OffsetTree, TopicIds
from pyspark_barnabas.shared import options as parse
from pyspark_barnabas.shared.cluster import Cluster
from pyspark_barnabas.shared.options import OptionError, Options
from pyspark_barnabas.worker.closed_connection import end_quietly_after_close

MAX_TRIGGER_DELAY_MS: Final = 15 * 60 * 1_000
BATCH_ONLY: Final = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp", "offsetsAtRead")


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
        self._ids: dict[str, str] = {}
        self._target: Offsets | None = None
        self._last_batch_ms: float | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Tasks get a copy. Connections and cached offsets stay with the driver.
        return {**self.__dict__, "_cluster": None, "_latest": {}, "_ids": {}, "_target": None}

    # --- planning, on the driver ---

    def initialOffset(self) -> OffsetTree:  # noqa: N802 - Spark's name
        cluster = self._opened()
        topic_partitions = offsets.subscribed(cluster, self._subscription)
        isolation = self._fetching.isolation
        self._ids = cluster.topic_ids({topic_partition.topic for topic_partition in topic_partitions})
        found = offsets.resolve(
            cluster, topic_partitions, self._starting, isolation=isolation, which="starting"
        )
        return offsets.to_tree(found, self._ids)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        return ReadMaxRows(self._max_offsets) if self._max_offsets else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._target = self._ask_latest()

    def latestOffset(self, start: OffsetTree, limit: ReadLimit) -> OffsetTree:  # noqa: N802 - Spark's name
        latest = self._target if self._target is not None else self._ask_latest()
        ids = {**topic_ids(start), **self._ids}
        begun = self._continued(start, ids, latest)
        ranges = self._ranges(begun, latest, ids)
        if self._is_too_little(ranges):
            return start
        if isinstance(limit, ReadMaxRows):
            ranges = planning.limit(ranges, limit.max_rows)
        self._last_batch_ms = self._opened().clock.monotonic_ms()
        ends = {
            topic_partition: offset for topic_partition, offset in begun.items() if topic_partition in latest
        }
        ends |= {each.topic_partition: each.end for each in ranges}
        return offsets.to_tree(ends, ids)

    def reportLatestOffset(self) -> OffsetTree | None:  # noqa: N802 - Spark's name
        return offsets.to_tree(self._latest) if self._latest else None

    def partitions(self, start: OffsetTree, end: OffsetTree) -> list[InputPartition]:
        ids = topic_ids(end)
        ends = offsets.from_tree(end)
        begun = self._continued(start, ids, ends)
        for topic in offsets.created_again(ids, self._current_ids(ids)):
            # Records of the new topic belong to the next micro-batch, which begins with them.
            self._report_loss(f"topic {topic} was deleted and created again before its records were read")
            begun, ends = _without(topic, begun), _without(topic, ends)
        ranges = self._ranges(begun, ends, ids)
        tasks = planning.plan(
            ranges, min_partitions=self._min_partitions, max_records_per_partition=self._max_records
        )
        return [TaskPartition(task) for task in tasks]

    def stop(self) -> None:
        end_quietly_after_close()
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    # --- reading, in tasks ---

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(self._config, partition, self._fetching)

    # --- offsets and topic ids ---

    def _opened(self) -> Cluster:
        if self._cluster is None:
            # A query that starts fails at once on a wrong address. A running query retries.
            cluster = Cluster(self._config)
            cluster.reach()
            self._cluster = cluster
        return self._cluster

    def _ask_latest(self) -> Offsets:
        cluster = self._opened()
        topic_partitions = offsets.subscribed(cluster, self._subscription, must_exist=False)
        self._ids = cluster.topic_ids({topic_partition.topic for topic_partition in topic_partitions})
        self._latest = cluster.list_offsets(
            dict.fromkeys(topic_partitions, LATEST), isolation=self._fetching.isolation
        )
        return self._latest

    def _current_ids(self, wanted: Collection[str]) -> dict[str, str]:
        """Topic ids of the latest metadata. A reader that begins with a journaled batch requests metadata
        first."""
        if wanted and not self._ids:
            cluster = self._opened()
            cluster.partitions(wanted)
            self._ids = cluster.topic_ids(wanted)
        return self._ids

    def _continued(self, start: OffsetTree, ids: TopicIds, ends: Offsets) -> Offsets:
        """Offsets at which reading continues in topics with `ids`, without topics that were created again.

        A partition that ends before its position was truncated if its topic is the same; reading continues at
        its end. Where the topic id is unknown, the topic counts as new, so that no record is left out.
        """
        begun = offsets.from_tree(start)
        known = topic_ids(start)
        for topic in offsets.created_again(known, ids):
            self._report_loss(
                f"topic {topic} was deleted and created again since it was read (topic id {ids[topic]},"
                f" was {known[topic]})",
                "read the new topic from its beginning",
            )
            begun = _without(topic, begun)
        gone = sorted(topic_partition for topic_partition in begun if topic_partition not in ends)
        if gone:
            self._report_loss(f"{', '.join(map(str, gone))} are gone; some data may have been missed")
        for topic_partition in [
            topic_partition
            for topic_partition, offset in begun.items()
            if ends.get(topic_partition, offset) < offset
        ]:
            self._report_loss(
                f"the end of {topic_partition} moved back from {begun[topic_partition]}"
                f" to {ends[topic_partition]}"
            )
            if topic_partition.topic in known:
                begun[topic_partition] = ends[topic_partition]
            else:
                del begun[topic_partition]
        return begun

    def _ranges(self, start: Offsets, end: Offsets, ids: TopicIds) -> list[OffsetRange]:
        """Ranges from `start` to `end`. A partition that `start` lacks begins at its earliest offset."""
        starts = start | self._beginnings(
            [topic_partition for topic_partition in end if topic_partition not in start]
        )
        ranges = []
        for topic_partition in sorted(end):
            if topic_partition not in starts:
                self._report_loss(
                    f"{topic_partition} is gone; its records up to {end[topic_partition]} cannot be read"
                )
                continue
            ranges.append(
                OffsetRange(
                    topic_partition.topic,
                    topic_partition.partition,
                    starts[topic_partition],
                    end[topic_partition],
                    ids.get(topic_partition.topic, ""),
                )
            )
        return ranges

    def _beginnings(self, new: list[TopicPartition]) -> Offsets:
        if not new:
            return {}
        earliest = self._opened().list_offsets(dict.fromkeys(new, EARLIEST))
        for topic_partition, offset in earliest.items():
            if offset > 0:
                self._report_loss(
                    f"{topic_partition} is new and begins at {offset}; earlier records are already deleted"
                )
        return earliest

    def _is_too_little(self, ranges: list[OffsetRange]) -> bool:
        """True if the reader waits for `minOffsetsPerTrigger`; never when the target is fixed."""
        if not self._min_offsets or self._target is not None:
            return False
        now_ms = self._opened().clock.monotonic_ms()
        if self._last_batch_ms is None:
            self._last_batch_ms = now_ms
        available = sum(each.size for each in ranges)
        return available < self._min_offsets and now_ms - self._last_batch_ms < self._max_delay_ms

    def _report_loss(self, message: str, remedy: str = "go on without them") -> None:
        report_data_loss(message, fails=self._fetching.fail_on_data_loss, remedy=remedy)


def _without(topic: str, known: Offsets) -> Offsets:
    return {
        topic_partition: offset for topic_partition, offset in known.items() if topic_partition.topic != topic
    }
