"""Batch and streaming reads on a real Spark, on whichever broker `--broker` names."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions

import pyspark_barnabas
from pyspark_barnabas.engines import has_jvm_connector
from tests.support.fixtures import TopicFactory

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
STARTED_MS = 1_700_000_000_000


def produce(bootstrap: str, topic: str, first: int, rows: int, **settings: Any) -> None:
    """Keys, headers and times that tell the number of their row."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, **settings})
    for number in range(first, first + rows):
        producer.produce(
            topic,
            value=b"value-%d" % number,
            key=b"key-%d" % number if number % 3 else None,
            partition=number % 2,
            timestamp=STARTED_MS + number,
            headers=[("n", b"%d" % number), ("empty", None)] if number % 2 else None,
        )
    producer.flush()


def values(df: DataFrame) -> Counter[bytes]:
    return Counter(bytes(row.value) for row in df.select("value").collect())


def numbered(first: int, last: int) -> Counter[bytes]:
    return Counter(b"value-%d" % number for number in range(first, last))


@pytest.fixture
def filled(bootstrap: str, new_topic: TopicFactory) -> str:
    name = new_topic(partitions=2, retention_ms=-1)
    for index, codec in enumerate(CODECS):
        produce(bootstrap, name, 200 * index, 200, **{"compression.type": codec})
    return name


def batch(spark: SparkSession, bootstrap: str, **options: Any) -> DataFrame:
    return pyspark_barnabas.read(spark, engine="python", bootstrap_servers=bootstrap, **options)


def test_a_batch_is_what_spark_s_own_connector_reads(
    spark: SparkSession, bootstrap: str, filled: str
) -> None:
    if not has_jvm_connector(spark):
        pytest.skip("Spark's Kafka connector cannot be had here")
    options = {"bootstrap_servers": bootstrap, "subscribe": filled, "includeHeaders": True}
    ours = pyspark_barnabas.read(spark, engine="python", **options)
    theirs = pyspark_barnabas.read(spark, engine="jvm", **options)
    assert ours.columns == theirs.columns
    found = ours.orderBy("partition", "offset").collect()
    assert found == theirs.orderBy("partition", "offset").collect()
    assert len(found) == 1_000


def test_offsets_and_times_bound_a_batch(spark: SparkSession, bootstrap: str, filled: str) -> None:
    by_offset = batch(
        spark,
        bootstrap,
        subscribe=filled,
        startingOffsets=json.dumps({filled: {"0": 10, "1": -2}}),
        endingOffsets=json.dumps({filled: {"0": 20, "1": 5}}),
        columns="partition,offset,value",
        minPartitions=6,
    )
    found = sorted((row.partition, row.offset) for row in by_offset.collect())
    assert found == [(0, n) for n in range(10, 20)] + [(1, n) for n in range(5)]
    assert by_offset.rdd.getNumPartitions() >= 6
    by_time = batch(
        spark,
        bootstrap,
        subscribe=filled,
        startingTimestamp=STARTED_MS + 100,
        endingTimestamp=STARTED_MS + 300,
    )
    assert values(by_time) == numbered(100, 300)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribe": "t"}, "kafka.bootstrap.servers is required"),
        ({"bootstrap_servers": "x:1"}, "exactly one of subscribe, subscribePattern and assign"),
        (
            {"bootstrap_servers": "x:1", "subscribe": "t", "startingOffset": "x"},
            "did you mean startingOffsets",
        ),
        (
            {"bootstrap_servers": "x:1", "subscribe": "t", "kafka.sasl.mechanisms": "PLAIN"},
            "did you mean kafka.sasl.mechanism",
        ),
    ],
)
def test_a_wrong_option_is_named(spark: SparkSession, options: dict[str, str], message: str) -> None:
    with pytest.raises(Exception, match=message):
        pyspark_barnabas.read(spark, engine="python", **options).count()


class Sink:
    """A stream into memory, batch after batch."""

    def __init__(self, spark: SparkSession, bootstrap: str, directory: Path, **options: Any) -> None:
        self.spark, self.bootstrap, self.directory, self.options = spark, bootstrap, directory, options

    def run(self) -> list[int]:
        """Reads all that is there; how many rows each micro-batch had."""
        df = pyspark_barnabas.read_stream(
            self.spark,
            engine="python",
            bootstrap_servers=self.bootstrap,
            startingOffsets="earliest",
            **self.options,
        )
        query = (
            df.select("value")
            .writeStream.format("parquet")
            .option("path", str(self.directory / "out"))
            .option("checkpointLocation", str(self.directory / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return [each["numInputRows"] for each in query.recentProgress]

    def values(self) -> Counter[bytes]:
        return values(self.spark.read.parquet(str(self.directory / "out")))


def test_a_stream_goes_on_where_it_was_and_meets_new_partitions(
    spark: SparkSession, bootstrap: str, filled: str, tmp_path: Path
) -> None:
    sink = Sink(spark, bootstrap, tmp_path, subscribePattern=f"{filled}.*", maxOffsetsPerTrigger=400)
    assert [rows for rows in sink.run() if rows] == [400, 400, 200]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_partitions([NewPartitions(filled, 3)])[filled].result()
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(filled, b"value-1000", partition=2)
    producer.flush()
    sink.run()
    assert sink.values() == numbered(0, 1_001)


def test_a_missing_topic_is_data_loss_by_default(
    spark: SparkSession, bootstrap: str, new_topic: TopicFactory, tmp_path: Path
) -> None:
    kept, gone = (new_topic(partitions=2, retention_ms=-1) for _ in range(2))
    produce(bootstrap, kept, 0, 10)
    produce(bootstrap, gone, 10, 10)
    Sink(spark, bootstrap, tmp_path, subscribe=f"{kept},{gone}").run()
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([gone])[gone].result()
    produce(bootstrap, kept, 20, 10)
    with pytest.raises(Exception, match="failOnDataLoss"):
        Sink(spark, bootstrap, tmp_path, subscribe=f"{kept},{gone}").run()
    lenient = Sink(spark, bootstrap, tmp_path, subscribe=f"{kept},{gone}", failOnDataLoss=False)
    lenient.run()
    assert lenient.values() == numbered(0, 30)


def test_aborted_transactions_are_hidden_from_committed_reads(
    spark: SparkSession, bootstrap: str, new_topic: TopicFactory
) -> None:
    name = new_topic(retention_ms=-1)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    producer.init_transactions()
    for number in range(4):
        producer.begin_transaction()
        producer.produce(name, b"value-%d" % number)
        producer.flush()
        if number % 2:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    committed = {"kafka.isolation.level": "read_committed"}
    assert values(batch(spark, bootstrap, subscribe=name, **committed)) == Counter([b"value-0", b"value-2"])
    assert values(batch(spark, bootstrap, subscribe=name)) == numbered(0, 4)
