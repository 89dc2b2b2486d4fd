"""At-least-once writer: each task has its own producer.

The producer is idempotent, so a retry within a task leaves no duplicate. A task or micro-batch that Spark
runs again has a new producer and writes its rows again. No step waits for the driver: a task's records are
readable when it ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from barnabas.client.core.transaction_steps import idempotent_producer
from barnabas.core.ids import TopicPartition
from pyspark_barnabas.produce.encode import Producer
from pyspark_barnabas.produce.lanes import Lane
from pyspark_barnabas.produce.producer import DELIVERY_TIMEOUT_MS, BatchSender
from pyspark_barnabas.produce.rows import RowOptions, RowWriter, check_columns
from pyspark_barnabas.shared import options as parse
from pyspark_barnabas.shared.cluster import Cluster
from pyspark_barnabas.shared.cluster_config import ClusterConfig
from pyspark_barnabas.shared.options import BATCH_BYTES, Options


@dataclass
class Written(WriterCommitMessage):
    """Record count that a task wrote, by partition."""

    records: dict[TopicPartition, int] = field(default_factory=dict)


def row_options(options: Options, schema: StructType) -> RowOptions:
    """Options of the row writer, checked against the columns of the rows."""
    topic = options.get("topic")
    check_columns(schema, topic)
    parse.check_acks(options)
    request_bytes = options.number("kafka.max.request.size", BATCH_BYTES)
    assert request_bytes is not None
    # The margin covers the batch header and records whose size is underestimated.
    batch_bytes = max(request_bytes * 15 // 16 - 1_024, 1_024)
    return RowOptions(
        topic=topic,
        codec=parse.compression(options),
        batch_bytes=min(batch_bytes, options.number("kafka.batch.size") or batch_bytes),
    )


class _Writing:
    """Write path of batch and stream writers."""

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
            writer = RowWriter(cluster, lambda _topic_partitions: lane, self._rows, task=_task())
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
