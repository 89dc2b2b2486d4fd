"""Stream of closed segment files: backfills a pipeline without a broker, with a checkpoint.

Offsets are those of the topic, in the form that the reader with `engine=python` uses. So a query may read
years of records from files at disk speed. At the end of the manifest it is restarted on the same checkpoint
with `engine=python`. It continues with the first record that was in no closed segment; no record is read
twice or left out.

The reader loads the manifest again for every micro-batch, so a new export makes more segments readable.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from barnabas.pipelines.state.checkpoint_format import topic_ids
from barnabas.protocol.offset_numbers import LATEST
from pyspark_barnabas.readers import offsets, planning
from pyspark_barnabas.readers.fetch import OffsetRange, report_data_loss
from pyspark_barnabas.readers.offsets import Offsets, OffsetTree
from pyspark_barnabas.readers.segments import SegmentRange, SegmentSource, offset_of
from pyspark_barnabas.readers.stream_reader import BATCH_ONLY
from pyspark_barnabas.shared.options import OptionError, Options
from pyspark_barnabas.worker.closed_connection import end_quietly_after_close


class SegmentStreamReader(SegmentSource, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """`engine=segments` for a stream."""

    def __init__(self, options: Options) -> None:
        for name in BATCH_ONLY:
            if options.get(name) is not None:
                raise OptionError(f"{name} is for batches: a stream has no end")
        super().__init__(options, is_stream=True)
        self._max_offsets = options.number("maxOffsetsPerTrigger")
        self._target: Offsets | None = None

    def initialOffset(self) -> OffsetTree:  # noqa: N802 - Spark's name
        starts = {
            topic_partition: _end_of(row)
            if self._starting.offsets.get(topic_partition, self._starting.default) == LATEST
            and self._starting.timestamp_ms is None
            else max(row["log_start_offset"], offset_of(self._starting, topic_partition, 0))
            for topic_partition, row in self._rows_at_first().items()
        }
        return offsets.to_tree(starts)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        return ReadMaxRows(self._max_offsets) if self._max_offsets else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._target = self._ends()

    def latestOffset(self, start: OffsetTree, limit: ReadLimit) -> OffsetTree:  # noqa: N802 - Spark's name
        before = offsets.from_tree(start)
        ends = self._target if self._target is not None else self._ends()
        ranges = [
            OffsetRange(*topic_partition, before.get(topic_partition, 0), end)
            for topic_partition, end in sorted(ends.items())
            if end > before.get(topic_partition, 0)
        ]
        if isinstance(limit, ReadMaxRows):
            ranges = planning.limit(ranges, limit.max_rows)
        return offsets.to_tree(before | {each.topic_partition: each.end for each in ranges}, topic_ids(start))

    def reportLatestOffset(self) -> OffsetTree | None:  # noqa: N802 - Spark's name
        return offsets.to_tree(self._ends())

    def partitions(self, start: OffsetTree, end: OffsetTree) -> list[InputPartition]:
        before, rows = offsets.from_tree(start), self._rows()
        ranges: list[SegmentRange] = []
        for topic_partition, last in sorted(offsets.from_tree(end).items()):
            first = before.get(topic_partition, 0)
            if last <= first:
                continue
            row = rows.get(topic_partition)
            if row is None:
                self._report_loss(
                    f"{topic_partition} is no longer in the manifest;"
                    f" offsets {first} to {last} cannot be read"
                )
                continue
            begin = row["log_start_offset"]
            if topic_partition in before and first < begin:
                self._report_loss(
                    f"offsets {first} to {begin} of {topic_partition} were deleted before they were read"
                )
            if (reached := _end_of(row)) < last:
                self._report_loss(
                    f"the manifest ends at {reached} of {topic_partition}, before offset {last}, which an"
                    " earlier one reached; export it again from the same broker"
                )
            ranges += self._ranges(topic_partition, row, first, last)
        return self._packed(ranges)

    def stop(self) -> None:
        end_quietly_after_close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._read(partition)

    def _ends(self) -> Offsets:
        """End offset of each partition in closed segments."""
        return {topic_partition: _end_of(row) for topic_partition, row in self._rows().items()}

    def _report_loss(self, message: str) -> None:
        report_data_loss(message, fails=self._fails)


def _end_of(row: Mapping[str, Any]) -> int:
    closed = [segment["end_offset"] for segment in row["segments"]]
    return int(min(max(closed, default=row["log_start_offset"]), row["last_stable_offset"]))
