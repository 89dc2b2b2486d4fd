"""`format("barnabas")` beside Spark's own Kafka connector: the same topic, the same Spark, one run.

    python bench/spark_source.py [--rows 1000000] [--rounds 2]

Reads sum the length of the values, so every value crosses into Spark; writes produce rows that Spark
generates. Each figure is the best of the rounds; the connectors take turns. Ratios above 1 are ours.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parents[1] / "src")]

from tests.support.broker import BarnabasBroker, running
from tests.support.fixtures import create_topic
from tests.support.spark import spark_session

PARTITIONS = 2
FORMATS = {"barnabas": "barnabas", "jvm": "kafka"}


def timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


class Bench:
    def __init__(self, spark: Any, broker: BarnabasBroker, directory: Path, rounds: int) -> None:
        self.spark, self.broker, self.directory, self.rounds = spark, broker, directory, rounds
        self.rates: dict[tuple[str, str], float] = {}
        self.serial = 0

    def options(self, **more: Any) -> dict[str, Any]:
        return {"kafka.bootstrap.servers": self.broker.bootstrap, **more}

    def measure(self, name: str, rows: int, works: dict[str, Callable[[], object]]) -> None:
        for _ in range(self.rounds):
            for engine, work in works.items():
                rate = rows / timed(work)
                self.rates[name, engine] = max(rate, self.rates.get((name, engine), 0.0))
                print(f"  {name:16} {engine:10} {rate:12,.0f} rows/s", flush=True)

    def rows(self, count: int, value_bytes: int) -> Any:
        filler = "x" * (value_bytes - 20)
        return self.spark.range(0, count, 1, PARTITIONS).selectExpr(
            "cast(id as string) as key", f"concat(lpad(cast(id as string), 20, '0'), '{filler}') as value"
        )

    def write(self, name: str, count: int, value_bytes: int) -> str:
        topics: list[str] = []

        def work(kind: str) -> Callable[[], None]:
            def run() -> None:
                self.serial += 1
                topic = f"{name.replace(' ', '-')}-{kind}-{self.serial}"
                create_topic(self.broker, topic, PARTITIONS, {"segment.bytes": str(16 << 20)})
                topics.append(topic)
                rows = self.rows(count, value_bytes)
                rows.write.format(kind).options(**self.options(topic=topic)).mode("append").save()

            return run

        self.measure(name, count, {engine: work(kind) for engine, kind in FORMATS.items()})
        return topics[0]

    def batch(self, name: str, count: int, topic: str) -> None:
        def work(kind: str) -> Callable[[], None]:
            def run() -> None:
                df = self.spark.read.format(kind).options(**self.options(subscribe=topic)).load()
                assert df.selectExpr("count(value)", "sum(length(value))").collect()[0][0] == count

            return run

        self.measure(name, count, {engine: work(kind) for engine, kind in FORMATS.items()})

    def stream(self, name: str, count: int, topic: str) -> None:
        """By the time in triggers: a query's start, some seconds, is not throughput."""
        for _ in range(self.rounds):
            for engine, kind in FORMATS.items():
                self.serial += 1
                options = self.options(
                    subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=count // 2
                )
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
                assert sum(each["numInputRows"] for each in batches) == count
                last = batches[-1]
                rate = last["numInputRows"] * 1_000 / last["durationMs"]["triggerExecution"]
                self.rates[name, engine] = max(rate, self.rates.get((name, engine), 0.0))
                print(f"  {name:16} {engine:10} {rate:12,.0f} rows/s", flush=True)

    def segments(self, name: str, topic: str) -> None:
        import pyspark_barnabas

        manifest = self.directory / "manifest.json"
        command = [sys.executable, "-m", "barnabas", "log", "manifest", str(self.broker.data_directory)]
        command += ["--topic", topic, "--out", str(manifest), "--bootstrap", self.broker.bootstrap]
        subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
        df = pyspark_barnabas.read_segments(self.spark, str(manifest), topics=[topic])
        count = df.count()
        rows = json.loads(manifest.read_text())["partitions"]
        ends = {topic: {str(row["partition"]): row["segments"][-1]["end_offset"] for row in rows}}

        def ours() -> None:
            assert df.selectExpr("count(value)", "sum(length(value))").collect()[0][0] == count

        def jvm() -> None:
            options = self.options(subscribe=topic, endingOffsets=json.dumps(ends))
            other = self.spark.read.format("kafka").options(**options).load()
            assert other.selectExpr("count(value)", "sum(length(value))").collect()[0][0] == count

        self.measure(name, count, {"barnabas": ours, "jvm": jvm})

    def table(self) -> str:
        lines = ["| work | barnabas rows/s | JVM rows/s | ratio |", "|---|---:|---:|---:|"]
        for name in dict.fromkeys(name for name, _ in self.rates):
            ours, theirs = self.rates[name, "barnabas"], self.rates[name, "jvm"]
            lines.append(f"| {name} | {ours:,.0f} | {theirs:,.0f} | {ours / theirs:.2f} |")
        return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=2)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="spark-source-") as directory:
        path = Path(directory)
        with running(BarnabasBroker(path / "data")) as broker, spark_session(path) as spark:
            bench = Bench(spark, broker, path, arguments.rounds)
            for size, label in ((100, "100 B"), (1_000, "1 KB")):
                rows = arguments.rows if size == 100 else arguments.rows // 3
                topic = bench.write(f"write {label}", rows, size)
                bench.batch(f"batch {label}", rows, topic)
                bench.stream(f"stream {label}", rows, topic)
                bench.segments(f"segments {label}", topic)
            print(bench.table())


if __name__ == "__main__":
    main()
