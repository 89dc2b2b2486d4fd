"""The exactly-once sink, on whichever broker `--broker` names.

Every test ends with the same question: does a reader of committed data see the input, each record
once?
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AdminClient

from barnabas.client.core import transaction_steps as transactions
from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.errors import InvalidProducerEpoch, ProducerFenced
from pyspark_barnabas import exactly_once, exactly_once_batch_writer
from pyspark_barnabas.shared.cluster import Cluster
from pyspark_barnabas.shared.cluster_config import ClusterConfig
from tests.spark.faulty import POINTS, FaultySource
from tests.support.fixtures import TopicFactory

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

ROWS = 3_000


@pytest.fixture
def pipeline(spark: SparkSession, bootstrap: str, new_topic: TopicFactory, tmp_path: Path) -> Pipeline:
    return Pipeline(spark, bootstrap, new_topic, tmp_path)


class Pipeline:
    """A copy of one topic into another, whose driver may die."""

    def __init__(self, spark: SparkSession, bootstrap: str, new_topic: TopicFactory, directory: Path) -> None:
        self.spark = spark
        self.options = {"kafka.bootstrap.servers": bootstrap}
        self.client = {"bootstrap.servers": bootstrap}
        self.new_topic = new_topic
        self.source, self.sink = new_topic(partitions=2), new_topic(partitions=3)
        self.pipeline_id = f"pipeline-{uuid.uuid4()}"
        self.checkpoint = directory / "checkpoint"
        self.fault = directory / "fault"
        self.fault.write_text("")
        host, port = bootstrap.split(":")
        self.config = ClusterConfig((Endpoint(host, int(port)),))

    def produce(self, first: int = 0, rows: int = ROWS) -> None:
        df = self.spark.range(first, first + rows).selectExpr(
            "cast(id as string) as key", "concat('value-', id) as value"
        )
        self.save(df, self.source)

    def save(self, df: DataFrame, topic: str) -> None:
        df.write.format("barnabas").mode("append").options(**self.options, topic=topic).save()

    def stream(self, **options: Any) -> DataFrame:
        return (
            self.spark.readStream.format("barnabas")
            .options(**self.options, subscribe=self.source, startingOffsets="earliest", **options)
            .load()
            .select("key", "value")
        )

    def start(
        self, df: DataFrame | None = None, sink: dict[str, str] | None = None, **options: Any
    ) -> StreamingQuery:
        if df is None:
            df = exactly_once(self.stream(**options), topic=self.sink, **self.options)
        return (
            df.writeStream.format("barnabas-faulty")
            .options(**self.options, topic=self.sink, delivery="exactly-once", pipelineId=self.pipeline_id)
            .option("checkpointLocation", str(self.checkpoint))
            .options(path=str(self.fault), **(sink or {}))
            .trigger(availableNow=True)
            .start()
        )

    def run(self, **options: Any) -> None:
        self.start(**options).awaitTermination()

    def committed(self) -> Counter[bytes]:
        rows = (
            self.spark.read.format("barnabas")
            .options(**self.options, subscribe=self.sink, columns="value")
            .option("kafka.isolation.level", "read_committed")
            .load()
            .collect()
        )
        return Counter(bytes(row.value) for row in rows)

    def group_offsets(self) -> dict[int, int]:
        with Cluster(self.config) as cluster:
            found = cluster.run(transactions.committed_metadata(cluster.state, self.pipeline_id))
        return {
            topic_partition.partition: offset
            for topic_partition, (offset, _) in found.items()
            if topic_partition.topic == self.source
        }


@pytest.fixture(autouse=True)
def _faulty_source(spark: SparkSession) -> None:
    spark.dataSource.register(FaultySource)


def once(rows: int = ROWS) -> Counter[bytes]:
    return Counter(b"value-%d" % number for number in range(rows))


def test_every_record_arrives_once_and_the_group_moves_along(pipeline: Pipeline) -> None:
    pipeline.produce()
    pipeline.run(maxOffsetsPerTrigger=1_000)
    assert pipeline.committed() == once()
    assert sum(pipeline.group_offsets().values()) == ROWS


@pytest.mark.parametrize("point", POINTS)
def test_a_driver_that_dies_leaves_every_record_once(pipeline: Pipeline, point: str) -> None:
    sink = {"markerTopic": pipeline.new_topic(cleanup_policy="compact")}
    pipeline.produce()
    pipeline.fault.write_text(point)
    with pytest.raises(Exception, match="STREAM_FAILED"):
        pipeline.run(sink=sink)
    assert pipeline.fault.read_text() == "", "it did not die where it should have"
    assert pipeline.committed() in (Counter(), once()), "a part of a batch is visible"
    pipeline.produce(first=ROWS, rows=100)
    pipeline.run(sink=sink)
    assert pipeline.committed() == once(ROWS + 100)
    assert sum(pipeline.group_offsets().values()) == ROWS + 100


@pytest.mark.parametrize("batches", [0, 1])
def test_a_batch_is_recognised_after_the_group_was_forgotten(pipeline: Pipeline, batches: int) -> None:
    """As brokers do after `offsets.retention.minutes`, whether it was the first batch or a later one."""
    marker_topic = pipeline.new_topic(cleanup_policy="compact")
    for number in range(batches):
        pipeline.produce(first=number * ROWS)
        pipeline.run(sink={"markerTopic": marker_topic})
    pipeline.produce(first=batches * ROWS)
    pipeline.fault.write_text("after-end-unheard")
    with pytest.raises(Exception, match="STREAM_FAILED"):
        pipeline.run(sink={"markerTopic": marker_topic})
    assert pipeline.committed() == once((batches + 1) * ROWS)
    admin = AdminClient({**pipeline.client})
    admin.delete_consumer_groups([pipeline.pipeline_id])[pipeline.pipeline_id].result()
    assert pipeline.group_offsets() == {}
    pipeline.run(sink={"markerTopic": marker_topic})
    assert pipeline.committed() == once((batches + 1) * ROWS)


def test_a_zombie_can_neither_write_nor_commit(pipeline: Pipeline) -> None:
    with Cluster(pipeline.config) as cluster:
        zombie = cluster.run(transactions.begin(cluster.state, pipeline.pipeline_id, 60_000))
    pipeline.produce()
    pipeline.run()
    with Cluster(pipeline.config) as cluster:
        with pytest.raises((ProducerFenced, InvalidProducerEpoch)):
            cluster.run(transactions.end(cluster.state, zombie, commit=True))
    assert pipeline.committed() == once()


def test_rows_that_were_not_arranged_are_refused(pipeline: Pipeline) -> None:
    pipeline.produce()
    with pytest.raises(Exception, match=r"two tasks wrote to|give each output partition one writer"):
        pipeline.start(pipeline.stream(minPartitions=2)).awaitTermination()
    assert pipeline.committed() == Counter()


def test_a_new_checkpoint_is_another_query(pipeline: Pipeline) -> None:
    pipeline.produce()
    pipeline.run()
    pipeline.checkpoint = pipeline.checkpoint.with_name("other")
    pipeline.run()
    assert pipeline.committed() == once() + once()


def test_foreach_batch_writes_each_batch_once(pipeline: Pipeline) -> None:
    pipeline.produce()
    write = exactly_once_batch_writer(
        topic=pipeline.sink,
        pipelineId=pipeline.pipeline_id,
        checkpoint_location=str(pipeline.checkpoint),
        **pipeline.options,
    )

    def twice(df: DataFrame, batch_id: int) -> None:
        write(df, batch_id)
        write(df, batch_id)

    _run_for_each(pipeline, twice)
    assert pipeline.committed() == once()
    assert sum(pipeline.group_offsets().values()) == ROWS


def _run_for_each(pipeline: Pipeline, write: Callable[[DataFrame, int], None]) -> None:
    query = (
        pipeline.stream()
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", str(pipeline.checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
