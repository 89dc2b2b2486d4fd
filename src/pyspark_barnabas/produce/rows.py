"""Rows of a Spark task to batches in flight: column checks, partitioning, flushes.

Rows are gathered up to about two megabytes, sorted by partition with one stable `take`, encoded and sent. So
a task holds little memory, and batches are large even with many partitions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from barnabas.core.ids import TopicPartition
from barnabas.records.columnar.varints import Ints
from barnabas.records.compression import Codec
from pyspark_barnabas.produce import encode
from pyspark_barnabas.produce.encode import Rows
from pyspark_barnabas.produce.lanes import Lane
from pyspark_barnabas.produce.partitioner import as_binary, assign
from pyspark_barnabas.produce.producer import Outgoing
from pyspark_barnabas.shared.cluster import Cluster
from pyspark_barnabas.shared.options import OptionError

FLUSH_BYTES: Final = 2 << 20
COLUMNS: Final = ("key", "value", "topic", "partition", "headers", "timestamp")
NO_TIMESTAMP_MS: Final = -1


@dataclass(frozen=True, slots=True)
class RowOptions:
    topic: str | None
    """None when the rows have a `topic` column."""
    codec: Codec
    batch_bytes: int


def check_columns(schema: StructType, topic: str | None) -> None:
    """Check the columns of the rows. OptionError names the wrong or unknown column and the expected type."""
    kinds = {field.name.lower(): field.dataType for field in schema.fields}
    unknown = sorted(set(kinds) - set(COLUMNS))
    if unknown:
        raise OptionError(
            f"there is no column {', '.join(unknown)} in a topic; there are {', '.join(COLUMNS)}"
        )
    if "value" not in kinds:
        raise OptionError("a value column of type string or binary is required")
    for name in ("key", "value"):
        if name in kinds and not isinstance(kinds[name], (StringType, BinaryType)):
            raise OptionError(f"column {name} must be a string or binary, not {kinds[name].simpleString()}")
    if topic is None and not isinstance(kinds.get("topic"), StringType):
        raise OptionError("the topic is required: option topic, or a column topic of type string")
    if "partition" in kinds and not isinstance(kinds["partition"], (IntegerType, LongType, ShortType)):
        raise OptionError("column partition must be an int")
    if "headers" in kinds and not isinstance(kinds["headers"], ArrayType):
        raise OptionError("column headers must be an array<struct<key: string, value: binary>>")
    if "timestamp" in kinds and not isinstance(kinds["timestamp"], TimestampType):
        raise OptionError("column timestamp must be a timestamp")


class RowWriter:
    """Writes the rows of one task."""

    def __init__(
        self,
        cluster: Cluster,
        choose_lane: Callable[[list[TopicPartition]], Lane],
        options: RowOptions,
        *,
        task: int,
    ) -> None:
        """`choose_lane` is called before each flush, with the partitions of the flush."""
        self._cluster = cluster
        self._choose_lane = choose_lane
        self._options = options
        self._sticky = task
        self._lanes: list[Lane] = []
        self._partition_counts: dict[str, int] = {}

    @property
    def records(self) -> dict[TopicPartition, int]:
        """Record count of each partition."""
        return dict(sum((Counter(lane.sequences) for lane in self._lanes), Counter()))

    def write(self, batches: Iterator[pa.RecordBatch]) -> None:
        gathered: list[pa.RecordBatch] = []
        gathered_bytes = 0
        for batch in batches:
            if not batch.num_rows:
                continue
            gathered.append(batch)
            gathered_bytes += batch.nbytes
            if gathered_bytes >= FLUSH_BYTES:
                self._write(gathered)
                gathered, gathered_bytes = [], 0
        if gathered:
            self._write(gathered)
        for lane in self._lanes:
            lane.sender.flush()

    def _write(self, gathered: list[pa.RecordBatch]) -> None:
        table = pa.Table.from_batches(gathered).combine_chunks()
        columns = {
            name.lower(): table.column(name).chunk(0)
            for name in table.column_names
            if name.lower() in COLUMNS
        }
        rounds: dict[tuple[int, int], list[Outgoing]] = {}
        for topic, rows in self._by_topic(columns):
            for lane, number, batch in self._encoded(topic, rows):
                rounds.setdefault((lane, number), []).append(batch)
        for lane, number in sorted(rounds):
            self._lanes[lane].sender.send(rounds[lane, number])
        for each in self._lanes:
            each.rest()

    def _lane(self, topic_partitions: list[TopicPartition]) -> int:
        lane = self._choose_lane(topic_partitions)
        if lane not in self._lanes:
            self._lanes.append(lane)
        return self._lanes.index(lane)

    def _by_topic(self, columns: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
        if self._options.topic is not None:
            yield self._options.topic, columns
            return
        topics = columns["topic"]
        if topics.null_count:
            raise ValueError("a row has no topic")
        for topic in pc.unique(topics).to_pylist():
            chosen = pc.equal(topics, topic)
            yield topic, {name: column.filter(chosen) for name, column in columns.items()}

    def _encoded(self, topic: str, columns: dict[str, Any]) -> Iterator[tuple[int, int, Outgoing]]:
        """Batches of one topic, each with its lane and its number within its partition."""
        chosen = self._partitions(topic, columns)
        order = np.argsort(chosen, kind="stable")
        used, starts = np.unique(chosen[order], return_index=True)
        if len(used) > 1:
            wanted = pa.array(order)
            columns = {name: column.take(wanted) for name, column in columns.items()}
        topic_partitions = [TopicPartition(topic, int(partition)) for partition in used]
        chosen_lane = self._lane(topic_partitions)
        lane = self._lanes[chosen_lane]
        bounds = [*starts.tolist(), len(chosen)]
        now_ms = self._cluster.clock.now_ms()
        for topic_partition, first, last in zip(topic_partitions, bounds, bounds[1:], strict=False):
            pieces = {name: column.slice(first, last - first) for name, column in columns.items()}
            times = _milliseconds(pieces.get("timestamp"), now_ms)
            rows = Rows(pieces.get("key"), pieces["value"], pieces.get("headers"), times)
            cuts = encode.cuts_by_size(encode.sizes(rows), self._options.batch_bytes)
            for number, payload in enumerate(encode.payloads(rows, cuts)):
                sequence = lane.sequences.get(topic_partition, 0)
                records = encode.seal(
                    payload,
                    codec=self._options.codec,
                    timestamp_ms=now_ms,
                    producer=lane.producer,
                    base_sequence=sequence & 0x7FFF_FFFF,
                )
                lane.sequences[topic_partition] = sequence + payload.record_count
                yield chosen_lane, number, Outgoing(topic_partition, sequence, records, payload.record_count)

    def _partitions(self, topic: str, columns: dict[str, Any]) -> Ints:
        if topic not in self._partition_counts:
            self._partition_counts[topic] = self._cluster.writable_partitions(topic)
        count = self._partition_counts[topic]
        keys = as_binary(columns["key"]) if "key" in columns else None
        self._sticky += 1
        rows = len(columns["value"])
        given = columns.get("partition")
        if given is None:
            return assign(keys, rows, count, self._sticky % count)
        chosen: Ints = given.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
        if given.null_count:
            free = assign(keys, rows, count, self._sticky % count)
            chosen = np.where(given.is_null().to_numpy(zero_copy_only=False), free, chosen)
        wrong = chosen[(chosen < 0) | (chosen >= count)]
        if wrong.size:
            raise ValueError(f"topic {topic} has {count} partitions, so there is no partition {wrong[0]}")
        return chosen


def _milliseconds(column: Any | None, now_ms: int) -> Ints | None:
    """Timestamp of each record. Records without one get the time of the write, as from any producer."""
    if column is None or column.null_count == len(column):
        return None
    micros = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
    found: Ints = micros.fill_null(1_000 * NO_TIMESTAMP_MS).to_numpy(zero_copy_only=False) // 1_000
    if (earliest := int(found.min())) < NO_TIMESTAMP_MS:
        raise ValueError(f"a record's timestamp is before 1970: {earliest} ms")
    return np.where(found == NO_TIMESTAMP_MS, now_ms, found)
