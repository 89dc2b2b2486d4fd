"""Examples of Spark's guide to its own Kafka connector, with one word changed.

Each of these runs with `format("kafka")` where that connector is on the class path, and with
`format("barnabas")`: the results are the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from confluent_kafka import Producer

from pyspark_barnabas.engines import has_jvm_connector
from tests.support.fixtures import TopicFactory

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.slow
ROWS = 60
FORMATS = ("kafka", "barnabas")


class World(NamedTuple):
    spark: SparkSession
    servers: str
    first: str
    second: str
    out: str
    directory: Path

    def batch(self, word: str) -> Any:
        return self.spark.read.format(word).option("kafka.bootstrap.servers", self.servers)

    def stream(self, word: str) -> Any:
        return self.spark.readStream.format(word).option("kafka.bootstrap.servers", self.servers)

    def drained(self, df: DataFrame, *columns: str) -> list[Any]:
        """Rows of a stream until everything is read."""
        name = f"seen_{abs(hash((id(df), columns)))}"
        query = (
            df.selectExpr(*columns)
            .writeStream.format("memory")
            .queryName(name)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return sorted(map(str, self.spark.table(name).collect()))

    def written(self) -> list[Any]:
        df = self.batch("barnabas").option("subscribe", self.out).load()
        return collected(df, "topic", *KEY_AND_VALUE)


KEY_AND_VALUE = ("CAST(key AS STRING)", "CAST(value AS STRING)")


def collected(df: DataFrame, *columns: str) -> list[Any]:
    return sorted(map(str, df.selectExpr(*(columns or KEY_AND_VALUE)).collect()))


def one_topic_as_a_stream(world: World, word: str) -> Any:
    df = world.stream(word).option("subscribe", world.first).option("startingOffsets", "earliest").load()
    return world.drained(df, *KEY_AND_VALUE)


def a_topic_with_headers_as_a_stream(world: World, word: str) -> Any:
    df = (
        world.stream(word)
        .option("subscribe", world.first)
        .option("includeHeaders", "true")
        .option("startingOffsets", "earliest")
        .load()
    )
    return world.drained(df, *KEY_AND_VALUE, "headers")


def several_topics_as_a_stream(world: World, word: str) -> Any:
    topics = f"{world.first},{world.second}"
    df = world.stream(word).option("subscribe", topics).option("startingOffsets", "earliest").load()
    return world.drained(df, *KEY_AND_VALUE)


def a_pattern_as_a_stream(world: World, word: str) -> Any:
    pattern = f"{world.first[:-1]}.*"
    df = world.stream(word).option("subscribePattern", pattern).option("startingOffsets", "earliest").load()
    return world.drained(df, *KEY_AND_VALUE)


def a_topic_as_a_batch(world: World, word: str) -> Any:
    return collected(world.batch(word).option("subscribe", world.first).load())


def explicit_offsets(world: World, word: str) -> Any:
    starting = {world.first: {"0": 5, "1": -2}, world.second: {"0": -2, "1": -2}}
    ending = {world.first: {"0": 20, "1": -1}, world.second: {"0": -1, "1": -1}}
    return collected(
        world.batch(word)
        .option("subscribe", f"{world.first},{world.second}")
        .option("startingOffsets", json.dumps(starting))
        .option("endingOffsets", json.dumps(ending))
        .load()
    )


def a_pattern_as_a_batch(world: World, word: str) -> Any:
    return collected(
        world.batch(word)
        .option("subscribePattern", f"{world.first[:-1]}.*")
        .option("startingOffsets", "earliest")
        .option("endingOffsets", "latest")
        .load()
    )


def all_columns(world: World, word: str) -> Any:
    df = world.batch(word).option("subscribe", world.first).load()
    return df.dtypes, collected(df, "*")


def options_of_the_guide(world: World, word: str) -> Any:
    """Each is accepted, whether or not it changes what is read."""
    df = (
        world.batch(word)
        .option("assign", json.dumps({world.first: [0, 1]}))
        .option("startingTimestamp", "0")
        .option("endingTimestamp", "4102444800000")
        .option("startingOffsetsByTimestampStrategy", "latest")
        .option("failOnDataLoss", "false")
        .option("kafkaConsumer.pollTimeoutMs", "60000")
        .option("fetchOffset.numRetries", "5")
        .option("fetchOffset.retryIntervalMs", "20")
        .option("minPartitions", "4")
        .option("maxRecordsPerPartition", "10")
        .option("groupIdPrefix", "spark")
        .option("includeHeaders", "false")
        .load()
    )
    return collected(df)


def limits_of_the_guide(world: World, word: str) -> Any:
    df = (
        world.stream(word)
        .option("subscribe", world.first)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "20")
        .option("minOffsetsPerTrigger", "10")
        .option("maxTriggerDelay", "1s")
        .load()
    )
    return world.drained(df, *KEY_AND_VALUE)


def a_stream_into_a_topic(world: World, word: str) -> Any:
    source = world.stream(word).option("subscribe", world.first).option("startingOffsets", "earliest").load()
    query = (
        source.selectExpr(*KEY_AND_VALUE)
        .writeStream.format(word)
        .option("kafka.bootstrap.servers", world.servers)
        .option("topic", world.out)
        .option("checkpointLocation", str(world.directory / f"into-{word}"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return world.written()


def a_stream_into_the_topics_that_its_rows_name(world: World, word: str) -> Any:
    source = world.stream(word).option("subscribe", world.first).option("startingOffsets", "earliest").load()
    query = (
        source.selectExpr(f"'{world.out}' AS topic", *KEY_AND_VALUE)
        .writeStream.format(word)
        .option("kafka.bootstrap.servers", world.servers)
        .option("checkpointLocation", str(world.directory / f"by-row-{word}"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return world.written()


def a_batch_into_a_topic(world: World, word: str) -> Any:
    df = a_batch_to_write(world, word)
    writing = df.selectExpr(*KEY_AND_VALUE).write.format(word).mode("append")
    writing.option("kafka.bootstrap.servers", world.servers).option("topic", world.out).save()
    return world.written()


def a_batch_into_the_topics_that_its_rows_name(world: World, word: str) -> Any:
    df = a_batch_to_write(world, word).selectExpr(f"'{world.out}' AS topic", *KEY_AND_VALUE)
    df.write.format(word).mode("append").option("kafka.bootstrap.servers", world.servers).save()
    return world.written()


def a_batch_to_write(world: World, word: str) -> DataFrame:
    df: DataFrame = world.batch(word).option("subscribe", world.first).load()
    return df


READING = (
    one_topic_as_a_stream,
    a_topic_with_headers_as_a_stream,
    several_topics_as_a_stream,
    a_pattern_as_a_stream,
    a_topic_as_a_batch,
    explicit_offsets,
    a_pattern_as_a_batch,
    all_columns,
    options_of_the_guide,
    limits_of_the_guide,
)
WRITING = (
    a_stream_into_a_topic,
    a_stream_into_the_topics_that_its_rows_name,
    a_batch_into_a_topic,
    a_batch_into_the_topics_that_its_rows_name,
)


@pytest.fixture
def world(spark: SparkSession, bootstrap: str, new_topic: TopicFactory, tmp_path: Path) -> World:
    if not has_jvm_connector(spark):
        pytest.skip("Spark's own connector is not on the class path")
    first, second = new_topic(partitions=2), new_topic(partitions=2)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(ROWS):
        for topic in (first, second):
            producer.produce(
                topic,
                b"value-%d" % number,
                key=b"key-%d" % number if number % 3 else None,
                partition=number % 2,
                headers=[("n", b"%d" % number)],
            )
    assert producer.flush(60) == 0
    return World(spark, bootstrap, first, second, f"{first}-out", tmp_path)


@pytest.mark.parametrize("example", READING, ids=lambda each: each.__name__)
def test_one_word_changes_and_the_rows_do_not(world: World, example: Callable[[World, str], Any]) -> None:
    kafka, barnabas = (example(world, word) for word in FORMATS)
    assert barnabas == kafka
    assert kafka


@pytest.mark.parametrize("example", WRITING, ids=lambda each: each.__name__)
def test_one_word_changes_and_the_same_is_written(world: World, example: Callable[[World, str], Any]) -> None:
    """Into a topic that does not exist, as either connector has the broker create it."""
    kafka = example(world._replace(out=f"{world.out}-kafka"), "kafka")
    barnabas = example(world._replace(out=f"{world.out}-barnabas"), "barnabas")
    assert [row.replace("-out-barnabas", "-out-kafka") for row in barnabas] == kafka
    assert len(kafka) == ROWS


def test_a_batch_must_say_that_it_appends(world: World) -> None:
    """The second word that changes: Spark refuses its default mode to sources in Python."""
    writing = a_batch_to_write(world, "barnabas").selectExpr(*KEY_AND_VALUE).write.format("barnabas")
    with pytest.raises(Exception, match=r'Please use either the "Append"'):
        writing.option("kafka.bootstrap.servers", world.servers).option("topic", world.out).save()
