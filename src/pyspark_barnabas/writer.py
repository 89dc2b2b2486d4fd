"""Writing at least once: each task has a producer of its own.

The producer is idempotent, so a request that is sent again within a task leaves no duplicate; a task
or a micro-batch that Spark runs again has a new producer and writes its rows again. Nothing waits
for the driver: what a task has written is there when it ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from barnabas.client.transaction_steps import idempotent_producer
from barnabas.core.ids import TopicPartition
from pyspark_barnabas import options as parse
from pyspark_barnabas.cluster import Cluster
from pyspark_barnabas.cluster_config import ClusterConfig
from pyspark_barnabas.encode import Producer
from pyspark_barnabas.lanes import Lane
from pyspark_barnabas.options import BATCH_BYTES, Options
from pyspark_barnabas.producer import DELIVERY_TIMEOUT_MS, BatchSender
from pyspark_barnabas.rows import RowOptions, RowWriter, check_columns


@dataclass
class Written(WriterCommitMessage):
    """What a task wrote, by partition."""

    records: dict[TopicPartition, int] = field(default_factory=dict)


def row_options(options: Options, schema: StructType) -> RowOptions:
    """Checked against the columns that there are."""
    topic = options.get("topic")
    check_columns(schema, topic)
    batch_bytes = options.number("kafka.max.request.size", BATCH_BYTES)
    assert batch_bytes is not None
    return RowOptions(
        topic=topic,
        codec=parse.compression(options),
        # The overhead of a batch, and of records that are larger than they are taken for, stays below.
        batch_bytes=max(batch_bytes * 15 // 16 - 1_024, 1_024),
    )


class _Writing:
    """What batch and stream writers have in common."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._config: ClusterConfig = parse.cluster_config(options)
        self._rows = row_options(options, schema)
        self._delivery_timeout_ms = options.number("kafka.delivery.timeout.ms", DELIVERY_TIMEOUT_MS)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        assert self._delivery_timeout_ms is not None
        with Cluster(self._config) as cluster:
            producer = Producer(*cluster.run(idempotent_producer(cluster.state)))
            sender = BatchSender(cluster, delivery_timeout_ms=self._delivery_timeout_ms)
            lane = Lane(producer, sender)
            writer = RowWriter(cluster, lambda _places: lane, self._rows, task=_task())
            writer.write(iterator)
            return Written(writer.records)


class BatchWriter(_Writing, DataSourceArrowWriter):
    """`df.write.format("barnabas")`."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return super().write(iterator)


class StreamWriter(_Writing, DataSourceStreamArrowWriter):
    """`df.writeStream.format("barnabas")`."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return super().write(iterator)


def _task() -> int:
    context: Any = TaskContext.get()
    return 0 if context is None else int(context.partitionId())
