"""Reading closed segment files without a broker: backfill and time travel at disk speed.

A manifest from `barnabas log manifest` lists the closed segments, the log start offset, the last stable
offset and the aborted transactions of each partition. Executors must see the files under the manifest's
paths: on the broker's machine, or on a shared file system.

The base offset and largest timestamp of a segment decide whether it is read. In the first segment, the offset
index leads close to the start. The manifest is a snapshot: records written later are not read, and segments
that retention has deleted since are data loss.
"""

from __future__ import annotations

import json
import os
import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceReader, InputPartition

from barnabas.client.core.aborted_transactions import AbortedFilter
from barnabas.core.ids import TopicPartition
from barnabas.protocol.offset_numbers import EARLIEST, LATEST, READ_COMMITTED
from barnabas.records.batch import LOG_OVERHEAD_BYTES, MAGIC, RecordBatch, iterate_whole_batches
from barnabas.records.columnar.decode import DecodeTarget
from barnabas.records.columnar.legacy import decode_legacy, is_legacy, legacy_prefix
from barnabas.records.columnar.pieces import decode_pieces
from pyspark_barnabas.readers.fetch import DataLoss
from pyspark_barnabas.shared import options as parse
from pyspark_barnabas.shared.options import Bound, OptionError, Options

MANIFEST: Final = "segments-manifest.json"
VERSION: Final = 1
CHUNK_BYTES: Final = 2 << 20
TASK_BYTES: Final = 128 << 20
"""Bytes that Spark itself packs into a task when it reads files."""
TASK_BYTES_MIN: Final = 4 << 20
"""Bytes that are worth a task of their own, also Spark's."""
_HEADER: Final = struct.Struct(">qi4xb6xi")
"""Base offset, length, magic and last offset delta of a batch."""
_INDEX_ENTRY: Final = np.dtype([("offset", ">i4"), ("position", ">i4")])


@dataclass(frozen=True, slots=True)
class SegmentRange:
    """Offsets `start` (included) to `end` (excluded) of one segment file."""

    topic: str
    partition: int
    file: str
    base_offset: int
    size_bytes: int
    start: int
    end: int
    aborted: tuple[tuple[int, int], ...]


class SegmentPartition(InputPartition):
    def __init__(self, ranges: Sequence[SegmentRange]) -> None:
        super().__init__(None)
        self.ranges = tuple(ranges)


def load_manifest(path: str) -> list[dict[str, Any]]:
    """Partitions of a manifest file, or of the manifest in a log directory."""
    file = Path(path.removeprefix("file://").removeprefix("file:"))
    if file.is_dir():
        file /= MANIFEST
    try:
        tree = json.loads(file.read_text())
    except FileNotFoundError:
        raise OptionError(f"there is no manifest {file}: make it with `barnabas log manifest`") from None
    if tree.get("version") != VERSION:
        raise OptionError(f"{file} is of version {tree.get('version')}, not {VERSION}")
    partitions: list[dict[str, Any]] = tree["partitions"]
    return partitions


class SegmentSource:
    """Options and segment selection of batch and stream reads.

    The isolation level is read_committed unless `kafka.isolation.level` is set.
    """

    def __init__(self, options: Options, *, is_stream: bool) -> None:
        path = options.get("manifest") or options.get("path")
        if not path:
            raise OptionError("engine=segments needs manifest: a file or a log directory that has one")
        self._manifest = path
        self._subscription = parse.subscription(options)
        self._starting = parse.starting(options, is_stream=is_stream)
        self._ending = parse.ending(options)
        for bound in (self._starting, self._ending):
            if bound.timestamps_ms:
                raise OptionError(
                    "engine=segments knows one timestamp for all: startingTimestamp, endingTimestamp"
                )
        level = options.kafka().get("isolation.level")
        self._isolation = parse.isolation(options) if level else READ_COMMITTED
        self._columns = parse.columns(options)
        self._min_tasks = options.number("minPartitions")
        self._keeps_order = options.flag("keepOrder", default=False)
        self._fails = options.flag("failOnDataLoss", default=True)

    def _rows(self) -> dict[TopicPartition, dict[str, Any]]:
        """Manifest rows of the subscribed partitions, loaded now."""
        rows = load_manifest(self._manifest)
        topic_partitions = {TopicPartition(row["topic"], row["partition"]): row for row in rows}
        return {
            topic_partition: row
            for topic_partition, row in topic_partitions.items()
            if self._is_wanted(topic_partition)
        }

    def _rows_at_first(self) -> dict[TopicPartition, dict[str, Any]]:
        """Manifest rows at the start of a query, when every topic and partition named in the options must
        exist."""
        rows, wanted = self._rows(), self._subscription
        topics = {topic_partition.topic for topic_partition in rows}
        missing = [name for name in wanted.topics if name not in topics]
        missing += [
            str(topic_partition) for topic_partition in wanted.assigned if topic_partition not in rows
        ]
        if missing:
            raise OptionError(
                f"the manifest {self._manifest} does not list {', '.join(missing)}; export it "
                "for them with `barnabas log manifest`, or ask the brokers with engine=python"
            )
        return rows

    def _is_wanted(self, topic_partition: TopicPartition) -> bool:
        wanted = self._subscription
        if wanted.assigned:
            return topic_partition in wanted.assigned
        if wanted.pattern is not None:
            return re.fullmatch(wanted.pattern, topic_partition.topic) is not None
        return topic_partition.topic in wanted.topics

    def _ranges(
        self, topic_partition: TopicPartition, row: dict[str, Any], start: int, end: int
    ) -> Iterator[SegmentRange]:
        """Segments with offsets from `start` (included) to `end` (excluded)."""
        for segment in row["segments"]:
            first, last = max(start, segment["base_offset"]), min(end, segment["end_offset"])
            is_too_old = (
                self._starting.timestamp_ms is not None
                and segment["max_timestamp"] is not None
                and segment["max_timestamp"] < self._starting.timestamp_ms
            )
            if first >= last or is_too_old:
                continue
            aborted = tuple(
                (first_offset, producer_id)
                for producer_id, first_offset, last_offset in row["aborted"]
                if last_offset >= segment["base_offset"] and first_offset < last
            )
            yield SegmentRange(
                *topic_partition,
                segment["file"],
                segment["base_offset"],
                segment["size_bytes"],
                first,
                last,
                aborted,
            )

    def _packed(self, ranges: Sequence[SegmentRange]) -> list[InputPartition]:
        return pack(ranges, min_tasks=self._min_tasks, keeps_order=self._keeps_order)

    def _read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Records of a task's segments. Runs on an executor."""
        assert isinstance(partition, SegmentPartition)
        for wanted in partition.ranges:
            try:
                yield from self._in_time(_read_segment(wanted, self._columns, self._isolation))
            except FileNotFoundError:
                if self._fails:
                    raise DataLoss(
                        f"{wanted.file} was deleted after the manifest was exported; export it again, or set "
                        "failOnDataLoss=false"
                    ) from None

    def _in_time(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        start, end = self._starting.timestamp_ms, self._ending.timestamp_ms
        if start is None and end is None:
            yield from batches
            return
        if "timestamp" not in self._columns:
            raise OptionError("startingTimestamp and endingTimestamp need the column timestamp")
        for batch in batches:
            stamps = batch.column("timestamp").view(pa.int64())
            kept = pc.greater_equal(stamps, (start or 0) * 1_000)
            if end is not None:
                kept = pc.and_(kept, pc.less(stamps, end * 1_000))
            yield batch.filter(kept)


class SegmentReader(SegmentSource, DataSourceReader):
    """`engine=segments` for a batch."""

    def __init__(self, options: Options) -> None:
        super().__init__(options, is_stream=False)

    def partitions(self) -> list[InputPartition]:
        ranges: list[SegmentRange] = []
        for topic_partition, row in self._rows_at_first().items():
            start = max(row["log_start_offset"], offset_of(self._starting, topic_partition, 0))
            end = min(
                row["last_stable_offset"], offset_of(self._ending, topic_partition, row["last_stable_offset"])
            )
            ranges += self._ranges(topic_partition, row, start, end)
        return self._packed(ranges) or [SegmentPartition([])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._read(partition)


def offset_of(bound: Bound, topic_partition: TopicPartition, default: int) -> int:
    offset = bound.offsets.get(topic_partition, bound.default)
    return default if offset in (EARLIEST, LATEST) else offset


def pack(
    ranges: Sequence[SegmentRange], *, min_tasks: int | None = None, keeps_order: bool = False
) -> list[InputPartition]:
    """Tasks: small segments share one, a large segment has its own.

    At least `min_tasks` get equal parts of the bytes, if these are worth it. With `keeps_order`, the segments
    of a partition have one task.
    """
    total = sum(each.size_bytes for each in ranges)
    share = max(TASK_BYTES_MIN, total / (min_tasks or 1))
    tasks: list[list[SegmentRange]] = []
    filled = 0
    for each in ranges:
        is_full = filled >= share or filled + each.size_bytes > TASK_BYTES
        if keeps_order and tasks:
            last = tasks[-1][-1]
            is_full = is_full and (each.topic, each.partition) != (last.topic, last.partition)
        if not tasks or is_full:
            tasks.append([])
            filled = 0
        tasks[-1].append(each)
        filled += each.size_bytes
    return [SegmentPartition(task) for task in tasks]


def _read_segment(wanted: SegmentRange, columns: tuple[str, ...], isolation: int) -> Iterator[pa.RecordBatch]:
    target = DecodeTarget(wanted.topic, wanted.partition, columns)
    dropped = AbortedFilter(wanted.aborted if isolation == READ_COMMITTED else ())
    descriptor = os.open(wanted.file, os.O_RDONLY)
    try:
        position = 0 if wanted.aborted else _position_before(wanted, descriptor)
        # Decoding copies, so one buffer serves the whole file and stays in the CPU cache.
        buffer = np.empty(CHUNK_BYTES, np.uint8).data
        while position < wanted.size_bytes:
            chunk = buffer[: min(len(buffer), wanted.size_bytes - position)]
            chunk = chunk[: os.preadv(descriptor, [chunk], position)]
            is_whole = len(chunk) < len(buffer)
            if is_legacy(chunk):
                records = legacy_prefix(chunk)
                used = len(records)
                yield from decode_legacy(records, target, wanted.start, wanted.end)
            else:
                batches = list(iterate_whole_batches(chunk))
                used = sum(batch.size_bytes for batch in batches)
                yield from decode_pieces(_kept(batches, dropped), target, wanted.start, wanted.end)
                if batches and batches[-1].next_offset >= wanted.end:
                    return
            if not used:
                if is_whole:
                    # A failed write left bytes behind the last batch, or compaction has replaced the file of
                    # the manifest with a smaller one.
                    return
                buffer = np.empty(2 * len(buffer), np.uint8).data
            position += used
    finally:
        os.close(descriptor)


def _kept(batches: Sequence[RecordBatch], dropped: AbortedFilter) -> Iterator[RecordBatch]:
    for batch in batches:
        if dropped.keeps(batch):
            batch.check_crc()
            yield batch


def _position_before(wanted: SegmentRange, descriptor: int) -> int:
    """File position at or before the batch with offset `start`, from the offset index.

    The index has no checksum. An entry that does not match the batch at its position is ignored.
    """
    if wanted.start <= wanted.base_offset:
        return 0
    try:
        content = Path(wanted.file).with_suffix(".index").read_bytes()
    except OSError:
        return 0
    entries = np.frombuffer(content[: len(content) // 8 * 8], _INDEX_ENTRY)
    offsets = entries["offset"].astype(np.int64)
    # Kafka preallocates the files of open indexes. Zeros behind the last entry are not entries.
    filled = 1 + int(offsets.argmax()) if len(offsets) else 0
    slot = int(np.searchsorted(offsets[:filled], wanted.start - wanted.base_offset, side="right")) - 1
    if slot < 0:
        return 0
    offset, position = wanted.base_offset + int(offsets[slot]), int(entries["position"][slot])
    return position if offset <= wanted.start and _leads_to(descriptor, position, offset) else 0


def _leads_to(descriptor: int, position: int, offset: int) -> bool:
    """True if a batch at `position`, or one soon after it, holds `offset`."""
    while position >= 0:
        header = os.pread(descriptor, _HEADER.size, position)
        if len(header) < _HEADER.size:
            return False
        base_offset, length, magic, last_offset_delta = _HEADER.unpack(header)
        last_offset = base_offset + (last_offset_delta if magic == MAGIC else 0)
        if last_offset >= offset:
            return bool(base_offset <= offset)
        if length <= 0:
            return False
        position += LOG_OVERHEAD_BYTES + length
    return False
