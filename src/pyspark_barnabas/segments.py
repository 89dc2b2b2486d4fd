"""Reading closed segment files, without a broker: backfill and time travel at disk speed.

What may be read is in a manifest that `barnabas log manifest` exports: the closed segments, where the
partition starts, up to where its data is committed, and which transactions were aborted. Executors
must see the files under the manifest's paths (the broker's machine, or a shared file system).

Segments outside the wanted offsets or times are left out by their base offset and largest timestamp;
inside the first one, the offset index leads close to the start. The manifest is a snapshot: what was
written later is not read, what retention removed since is data loss.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceReader, InputPartition

from barnabas.client.aborted import AbortedFilter
from barnabas.core.ids import TopicPartition
from barnabas.protocol.offset_numbers import EARLIEST, LATEST, READ_COMMITTED
from barnabas.records.batch import RecordBatch, iterate_whole_batches
from pyspark_barnabas import options as parse
from pyspark_barnabas.decode import Place
from pyspark_barnabas.fetch import DataLoss, decode_pieces
from pyspark_barnabas.legacy import decode_legacy, is_legacy, legacy_prefix
from pyspark_barnabas.options import Bound, OptionError, Options

MANIFEST: Final = "segments-manifest.json"
VERSION: Final = 1
CHUNK_BYTES: Final = 2 << 20
TASK_BYTES: Final = 128 << 20
"""What Spark itself packs into a task when it reads files."""
_INDEX_ENTRY: Final = np.dtype([("offset", ">i4"), ("position", ">i4")])


@dataclass(frozen=True, slots=True)
class SegmentRange:
    """Offsets `start` to before `end` of one file."""

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
    """The partitions of a manifest, or of the one in a log directory."""
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
    """What reading batches and streams of segments have in common.

    Committed data only, unless `kafka.isolation.level` says otherwise.
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
        self._fails = options.flag("failOnDataLoss", default=True)

    def _rows(self) -> dict[TopicPartition, dict[str, Any]]:
        """What the manifest says now, of the partitions that are wanted."""
        rows = load_manifest(self._manifest)
        places = {TopicPartition(row["topic"], row["partition"]): row for row in rows}
        return {place: row for place, row in places.items() if self._is_wanted(place)}

    def _rows_at_first(self) -> dict[TopicPartition, dict[str, Any]]:
        """The same, when all that was asked for by name must be there."""
        rows, wanted = self._rows(), self._subscription
        topics = {place.topic for place in rows}
        missing = [name for name in wanted.topics if name not in topics]
        missing += [str(place) for place in wanted.assigned if place not in rows]
        if missing:
            raise OptionError(
                f"the manifest {self._manifest} does not speak of {', '.join(missing)}; export it "
                "for them with `barnabas log manifest`, or ask the brokers with engine=python"
            )
        return rows

    def _is_wanted(self, place: TopicPartition) -> bool:
        wanted = self._subscription
        if wanted.assigned:
            return place in wanted.assigned
        if wanted.pattern is not None:
            return re.fullmatch(wanted.pattern, place.topic) is not None
        return place.topic in wanted.topics

    def _ranges(
        self, place: TopicPartition, row: dict[str, Any], start: int, end: int
    ) -> Iterator[SegmentRange]:
        """The segments that hold offsets from `start` to before `end`."""
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
                *place, segment["file"], segment["base_offset"], segment["size_bytes"], first, last, aborted
            )

    def _read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Runs on an executor."""
        assert isinstance(partition, SegmentPartition)
        for wanted in partition.ranges:
            try:
                yield from self._in_time(_read_segment(wanted, self._columns, self._isolation))
            except FileNotFoundError:
                if self._fails:
                    raise DataLoss(
                        f"{wanted.file} is gone since the manifest was made; export it again, or set "
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
    """`engine=segments` of a batch."""

    def __init__(self, options: Options) -> None:
        super().__init__(options, is_stream=False)

    def partitions(self) -> list[InputPartition]:
        ranges: list[SegmentRange] = []
        for place, row in self._rows_at_first().items():
            start = max(row["log_start_offset"], offset_of(self._starting, place, 0))
            end = min(row["last_stable_offset"], offset_of(self._ending, place, row["last_stable_offset"]))
            ranges += self._ranges(place, row, start, end)
        return pack(ranges) or [SegmentPartition([])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._read(partition)


def offset_of(bound: Bound, place: TopicPartition, default: int) -> int:
    offset = bound.offsets.get(place, bound.default)
    return default if offset in (EARLIEST, LATEST) else offset


def pack(ranges: Sequence[SegmentRange]) -> list[InputPartition]:
    """Small segments share a task; a large one has its own."""
    tasks: list[list[SegmentRange]] = []
    filled = TASK_BYTES
    for each in ranges:
        if filled + each.size_bytes > TASK_BYTES:
            tasks.append([])
            filled = 0
        tasks[-1].append(each)
        filled += each.size_bytes
    return [SegmentPartition(task) for task in tasks]


def _read_segment(wanted: SegmentRange, columns: tuple[str, ...], isolation: int) -> Iterator[pa.RecordBatch]:
    place = Place(wanted.topic, wanted.partition, columns)
    dropped = AbortedFilter(wanted.aborted if isolation == READ_COMMITTED else ())
    descriptor = os.open(wanted.file, os.O_RDONLY)
    try:
        position = 0 if wanted.aborted else _position_before(wanted)
        # What is decoded is a copy, so one buffer serves the whole file, and stays in the cache.
        buffer = np.empty(CHUNK_BYTES, np.uint8).data
        while position < wanted.size_bytes:
            chunk = buffer[: min(len(buffer), wanted.size_bytes - position)]
            chunk = chunk[: os.preadv(descriptor, [chunk], position)]
            is_whole = len(chunk) < len(buffer)
            if is_legacy(chunk):
                records = legacy_prefix(chunk)
                used = len(records)
                yield from decode_legacy(records, place, wanted.start, wanted.end)
            else:
                batches = list(iterate_whole_batches(chunk))
                used = sum(batch.size_bytes for batch in batches)
                yield from decode_pieces(_kept(batches, dropped), place, wanted.start, wanted.end)
                if batches and batches[-1].next_offset >= wanted.end:
                    return
            if not used:
                if is_whole:
                    # What a failed write left behind the last batch; or nothing, because compaction has put
                    # a smaller file in the place of the one that the manifest speaks of.
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


def _position_before(wanted: SegmentRange) -> int:
    """Where to begin in the file so that `start` is not missed."""
    if wanted.start <= wanted.base_offset:
        return 0
    try:
        content = Path(wanted.file).with_suffix(".index").read_bytes()
    except OSError:
        return 0
    entries = np.frombuffer(content[: len(content) // 8 * 8], _INDEX_ENTRY)
    offsets = entries["offset"].astype(np.int64)
    # Kafka sizes the files of open indexes beforehand; zeros behind the last entry are none.
    filled = 1 + int(offsets.argmax()) if len(offsets) else 0
    slot = int(np.searchsorted(offsets[:filled], wanted.start - wanted.base_offset, side="right")) - 1
    return int(entries["position"][slot]) if slot >= 0 else 0
