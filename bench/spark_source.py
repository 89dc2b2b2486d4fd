"""`format("barnabas")` beside Spark's own Kafka connector: the same topic, the same Spark, one run.

    make bench-spark            # writes the table of connectors in bench/RESULTS.md, and spark.json

Reads sum the length of the values, so every value crosses into Spark; writes produce rows that Spark
generates. The connectors take turns. The first round of every work warms the JVM up, whose compiler is
busy for some seconds with either connector, and does not count. Checkpoints are written as pipelines write
them, for both.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import report
from tests.peers.spark_kafka import CONNECTOR_VERSION
from tests.support.broker import REPOSITORY, BarnabasBroker, running
from tests.support.fixtures import create_topic
from tests.support.spark import spark_session

from barnabas.pipelines.spark.state.checkpoint_manager import write_checkpoints_quickly

HERE = Path(__file__).parent
PARTITIONS = 2
FORMATS = {"barnabas": "barnabas", "kafka": "kafka"}
SIZES = {"100b": 100, "1k": 1_000}
FLOOR_RECORDS = 10
"""Of a micro-batch that does next to nothing."""
FLOOR_BATCHES = 40


class Bench:
    def __init__(self, spark: Any, broker: BarnabasBroker, directory: Path, rounds: int) -> None:
        self.spark, self.broker, self.directory, self.rounds = spark, broker, directory, rounds
        self.samples: report.Samples = {connector: {} for connector in FORMATS}
        self.serial = 0

    def options(self, **more: Any) -> dict[str, Any]:
        return {"kafka.bootstrap.servers": self.broker.bootstrap, **more}

    def measure(self, figure: str, works: dict[str, Callable[[], float]]) -> None:
        """The figure of each connector, in turn."""
        for number in range(1 + self.rounds):
            for connector, work in works.items():
                value = work()
                print(f"  {figure:20} {connector:10} {value:15,.3f}", file=sys.stderr, flush=True)
                if number:
                    self.samples[connector].setdefault(figure, []).append(value)

    def write(self, size: str, rows: int) -> str:
        """The name of a topic that was written."""
        topics: list[str] = []
        filler = "x" * (SIZES[size] - 20)
        made = self.spark.range(0, rows, 1, PARTITIONS).selectExpr(
            "cast(id as string) as key", f"concat(lpad(cast(id as string), 20, '0'), '{filler}') as value"
        )

        def work(kind: str) -> Callable[[], float]:
            def rate() -> float:
                topics.append(f"{size}-{kind}-{len(topics)}")
                create_topic(self.broker, topics[-1], PARTITIONS, {"segment.bytes": str(16 << 20)})
                options = self.options(topic=topics[-1])
                return rows / timed(lambda: made.write.format(kind).options(**options).mode("append").save())

            return rate

        self.measure(f"write_{size}_rows_s", {name: work(kind) for name, kind in FORMATS.items()})
        return topics[0]

    def batch(self, size: str, rows: int, topic: str) -> None:
        def work(kind: str) -> Callable[[], float]:
            df = self.spark.read.format(kind).options(**self.options(subscribe=topic)).load()
            return lambda: rows / timed(lambda: check_sum(df, rows))

        self.measure(f"batch_{size}_rows_s", {name: work(kind) for name, kind in FORMATS.items()})

    def stream(self, size: str, rows: int, topic: str) -> None:
        """By the time in all triggers but the first: a query's start, some seconds, is not throughput."""

        def work(kind: str) -> Callable[[], float]:
            options = self.options(
                subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=rows // 4
            )

            def rate() -> float:
                self.serial += 1
                df = self.spark.readStream.format(kind).options(**options).load()
                query = (
                    df.selectExpr("sum(length(value))")
                    .writeStream.format("noop")
                    .outputMode("complete")
                    .option("checkpointLocation", str(self.directory / f"checkpoint-{self.serial}"))
                    .trigger(availableNow=True)
                    .start()
                )
                query.awaitTermination()
                batches = [each for each in query.recentProgress if each["numInputRows"]]
                assert sum(each["numInputRows"] for each in batches) == rows
                # The share of each partition is rounded, so a trigger of a few rows may come at the end.
                whole = [each for each in batches[1:] if each["numInputRows"] > rows // 8]
                spent_ms = sum(each["durationMs"]["triggerExecution"] for each in whole)
                return float(sum(each["numInputRows"] for each in whole) * 1_000 / spent_ms)

            return rate

        self.measure(f"stream_{size}_rows_s", {name: work(kind) for name, kind in FORMATS.items()})

    def floor(self, topic: str) -> None:
        """Seconds of a micro-batch of a few records, in a query that begins the next one at once."""

        def work(kind: str) -> Callable[[], float]:
            options = self.options(
                subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=FLOOR_RECORDS
            )

            def spent() -> float:
                self.serial += 1
                df = self.spark.readStream.format(kind).options(**options).load()
                query = (
                    df.selectExpr("length(value)")
                    .writeStream.format("noop")
                    .option("checkpointLocation", str(self.directory / f"checkpoint-{self.serial}"))
                    .trigger(processingTime="0 seconds")
                    .start()
                )
                while len(query.recentProgress) < FLOOR_BATCHES and query.isActive:
                    time.sleep(0.1)
                query.stop()
                # The first batches start workers, and have Spark generate code.
                batches = [each for each in query.recentProgress[3:] if each["numInputRows"]]
                return statistics.median(each["durationMs"]["triggerExecution"] for each in batches) / 1_000

            return spent

        self.measure("micro_batch_s", {name: work(kind) for name, kind in FORMATS.items()})

    def segments(self, size: str, topic: str) -> None:
        """Closed segments from their files, and the same offsets from the broker by the JVM connector."""
        import pyspark_barnabas

        manifest = self.directory / "manifest.json"
        command = [sys.executable, "-m", "barnabas", "log", "manifest", str(self.broker.data_directory)]
        command += ["--topic", topic, "--out", str(manifest), "--bootstrap", self.broker.bootstrap]
        paths = os.pathsep.join(sys.path)
        subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": paths}, stdout=sys.stderr)
        ours = pyspark_barnabas.read_segments(self.spark, str(manifest), topics=[topic])
        rows = ours.count()
        partitions = json.loads(manifest.read_text())["partitions"]
        ends = {str(row["partition"]): row["segments"][-1]["end_offset"] for row in partitions}
        options = self.options(subscribe=topic, endingOffsets=json.dumps({topic: ends}))
        theirs = self.spark.read.format("kafka").options(**options).load()
        rates: dict[str, Callable[[], float]] = {
            "barnabas": lambda: rows / timed(lambda: check_sum(ours, rows)),
            "kafka": lambda: rows / timed(lambda: check_sum(theirs, rows)),
        }
        self.measure(f"segments_{size}_rows_s", rates)


def timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def check_sum(df: Any, rows: int) -> None:
    count, length = df.selectExpr("count(value)", "sum(length(value))").collect()[0]
    assert count == rows
    assert length in {rows * size for size in SIZES.values()}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000, help="of 100 B; half as many of 1 KB")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-spark-") as directory:
        path = Path(directory)
        # The JVM that Spark's users have: the tests' own is told not to compile for speed.
        opened = spark_session(path, spark_driver_extraJavaOptions="-XX:+UseG1GC")
        with running(BarnabasBroker(path / "data")) as broker, opened as spark:
            write_checkpoints_quickly(spark, directory)
            bench = Bench(spark, broker, path, arguments.rounds)
            for size in SIZES:
                rows = arguments.rows if size == "100b" else arguments.rows // 2
                topic = bench.write(size, rows)
                bench.batch(size, rows, topic)
                bench.stream(size, rows, topic)
                bench.segments(size, topic)
                if size == "100b":
                    bench.floor(topic)
            about = report.versions(REPOSITORY) | {"Spark": spark.version, "JVM connector": CONNECTOR_VERSION}
    for name in ("Apache Kafka", "librdkafka"):
        del about[name]
    described = (
        f'`format("barnabas")` and `format("kafka")` on one topic of {PARTITIONS} partitions of one '
        f"Barnabas broker, Spark `local[2]`, {arguments.rounds} round(s) after a first that does not count, "
        f"{arguments.rows:,} rows of 100 B and {arguments.rows // 2:,} of 1 KB. "
        "In the rows of closed segments ours reads files, and the JVM connector the same offsets "
        "from the broker."
    )
    print(report.rendered_spark(bench.samples, about, described))
    report.write_spark(HERE, bench.samples, about, described)


if __name__ == "__main__":
    main()
