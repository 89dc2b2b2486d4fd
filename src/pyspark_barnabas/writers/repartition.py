"""Repartitioning of rows so that each output partition has exactly one writer.

The partition of each row is decided before the shuffle, by the rule of Kafka's Java client: murmur2 of the
key. Rows without a key go by a hash of their value. The shuffle then goes by that partition. This shuffle is
the price of exactly-once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everyone calls it

from pyspark_barnabas.produce.partitioner import as_binary, murmur2
from pyspark_barnabas.shared import options as parse
from pyspark_barnabas.shared.cluster import Cluster
from pyspark_barnabas.shared.options import OptionError, Options
from pyspark_barnabas.writers.batch_names import QUERY_ID


def exactly_once(df: DataFrame, *, tasks: Any = None, **options: Any) -> DataFrame:
    """`df` with a `partition` column, repartitioned by it; `options` are those of writing.

    `topic` and `kafka.bootstrap.servers` (or `bootstrap_servers`) are required. `tasks` limits the number of
    writing tasks; the partition count of the topic is the upper bound.
    """
    given = connector_options(options)
    topic = given.get("topic")
    if topic is None:
        raise OptionError("exactly_once needs the option topic: one topic, whose partitions are known")
    with Cluster(parse.cluster_config(Options(given))) as cluster:
        if not _is_in_batch(df):
            cluster.reach()
        count = cluster.writable_partitions(topic)
    chosen = df.withColumn("partition", _partition(df, count))
    writers = min(count, int(tasks)) if tasks else count
    return chosen.repartitionById(writers, F.pmod(F.col("partition"), F.lit(writers)).cast("int"))


def _is_in_batch(df: DataFrame) -> bool:
    """True if `df` is a batch of a running query, which must retry while brokers are away."""
    return not df.isStreaming and bool(df.sparkSession.sparkContext.getLocalProperty(QUERY_ID))


def connector_options(given: Mapping[str, Any]) -> dict[str, str]:
    """Keyword arguments as options: `bootstrap_servers` is `kafka.bootstrap.servers`."""
    named = {"bootstrap_servers": "kafka.bootstrap.servers", "group_id": "kafka.group.id"}
    return {
        named.get(name, name): str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in given.items()
    }


def _partition(df: DataFrame, count: int) -> Column:
    # The partition depends on the row alone: a map task that runs again must send each row to the same
    # partition.
    by_value = F.pmod(F.xxhash64("value"), F.lit(count)).cast("int")
    chosen = by_value
    if "key" in df.columns:
        hashed = _hashed_partition(count)(F.col("key").cast("binary"))
        chosen = F.when(F.col("key").isNull(), by_value).otherwise(hashed)
    return F.coalesce(F.col("partition").cast("int"), chosen) if "partition" in df.columns else chosen


def _hashed_partition(count: int) -> Callable[..., Column]:
    def choose(keys: pa.Array) -> pa.Array:
        return pa.array((murmur2(as_binary(keys.fill_null(b""))) % count).astype("int32"))

    hashing: Callable[..., Column] = F.arrow_udf(choose, "int")  # type: ignore[attr-defined]
    return hashing


def exactly_once_batch_writer(
    *, checkpoint_location: str | None = None, **options: Any
) -> Callable[[DataFrame, int], None]:
    """Function for `foreachBatch` that writes each batch to a topic exactly once.

    `options` are those of the format; `topic`, `pipelineId` and `kafka.bootstrap.servers` are required. With
    `checkpoint_location`, that of the query, the transaction also commits the source's offsets.
    """
    given = connector_options(options)

    def write(df: DataFrame, batch_id: int) -> None:
        query_id = df.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
        if not query_id:
            raise OptionError("exactly_once_batch_writer works inside foreachBatch of a streaming query")
        chosen = {**given, "delivery": "exactly-once", "queryId": query_id, "batchId": str(batch_id)}
        if checkpoint_location is not None:
            chosen["checkpointLocation"] = checkpoint_location
        exactly_once(df, **given).write.format("barnabas").mode("append").options(**chosen).save()

    return write
