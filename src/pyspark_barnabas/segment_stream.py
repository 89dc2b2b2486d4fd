"""Closed segments as a stream: the backfill of a pipeline, from files, with a checkpoint.

Offsets are those of the topic, in the very form in which the reader that asks a broker keeps them. So
a query may read years from files, at disk speed and without a broker's help, and when it has come to
the end of the manifest be started again on the same checkpoint with `engine=python`: it goes on with
the first record that was in no closed segment, and no record is read twice or left out.

The manifest is read again for every micro-batch; one that was exported anew has more to read.
"""

from __future__ import annotations

import logging
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

from barnabas.protocol.offset_numbers import LATEST
from pyspark_barnabas import offsets, planning
from pyspark_barnabas.fetch import DataLoss, OffsetRange
from pyspark_barnabas.offsets import Offsets, OffsetTree
from pyspark_barnabas.options import OptionError, Options
from pyspark_barnabas.segments import SegmentRange, SegmentSource, offset_of, pack
from pyspark_barnabas.stream_reader import BATCH_ONLY

_log = logging.getLogger(__name__)


class SegmentStreamReader(SegmentSource, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """`engine=segments` of a stream."""

    def __init__(self, options: Options) -> None:
        for name in BATCH_ONLY:
            if options.get(name) is not None:
                raise OptionError(f"{name} is for batches: a stream has no end")
        super().__init__(options, is_stream=True)
        self._max_offsets = options.number("maxOffsetsPerTrigger")
        self._target: Offsets | None = None

    def initialOffset(self) -> OffsetTree:  # noqa: N802 - Spark's name
        starts = {
            place: _end_of(row)
            if self._starting.offsets.get(place, self._starting.default) == LATEST
            and self._starting.timestamp_ms is None
            else max(row["log_start_offset"], offset_of(self._starting, place, 0))
            for place, row in self._rows_at_first().items()
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
            OffsetRange(*place, before.get(place, 0), end)
            for place, end in sorted(ends.items())
            if end > before.get(place, 0)
        ]
        if isinstance(limit, ReadMaxRows):
            ranges = planning.limit(ranges, limit.max_rows)
        return offsets.to_tree(before | {each.place: each.end for each in ranges})

    def reportLatestOffset(self) -> OffsetTree | None:  # noqa: N802 - Spark's name
        return offsets.to_tree(self._ends())

    def partitions(self, start: OffsetTree, end: OffsetTree) -> list[InputPartition]:
        before, rows = offsets.from_tree(start), self._rows()
        ranges: list[SegmentRange] = []
        for place, last in sorted(offsets.from_tree(end).items()):
            first = before.get(place, 0)
            if last <= first:
                continue
            row = rows.get(place)
            if row is None:
                self._lose(
                    f"{place} is not in the manifest any more; offsets {first} to {last} cannot be read"
                )
                continue
            begin = row["log_start_offset"]
            if place in before and first < begin:
                self._lose(f"offsets {first} to {begin} of {place} were deleted before they were read")
            if (reached := _end_of(row)) < last:
                self._lose(
                    f"the manifest ends at {reached} of {place}, before offset {last}, which an earlier one "
                    "reached; export it again from the same broker"
                )
            ranges += self._ranges(place, row, first, last)
        return pack(ranges)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._read(partition)

    def _ends(self) -> Offsets:
        """Up to where each partition can be read from closed segments."""
        return {place: _end_of(row) for place, row in self._rows().items()}

    def _lose(self, message: str) -> None:
        if self._fails:
            raise DataLoss(f"{message}. Set failOnDataLoss=false to go on without them.")
        _log.warning("%s", message)


def _end_of(row: Mapping[str, Any]) -> int:
    closed = [segment["end_offset"] for segment in row["segments"]]
    return int(min(max(closed, default=row["log_start_offset"]), row["last_stable_offset"]))
