"""Rows a second from a topic into tables, beside plain Spark that writes Parquet, and from closed segments.

    PYTHONPATH=src:. python bench/tables.py --records 200000 --rounds 2

One topic of two partitions holds JSON records of about 1 KB. The works take turns on one Spark, `local[2]`:

- `delta`, `iceberg`: a pipeline with a `table` sink, from the broker.
- `upsert`: the same into Delta by key, with every key new.
- `plain`: Spark's own Kafka connector, `from_json`, and Spark's Parquet sink, as one would write it by
  hand.
- `segments`: the pipeline into Delta, from closed segment files.

The rate counts all micro-batches but the first, whose start is not throughput. CPU is that of this process,
its JVM, its workers and the broker, a row. The first round warms the JVM up and does not count. Prints a
table; writes nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import psutil
from confluent_kafka import Producer
from tests.support.broker import BarnabasBroker, running
from tests.support.fixtures import create_topic
from tests.support.spark import activate, spark_session

from barnabas.pipelines.spark.context.run_context import Run
from barnabas.pipelines.spark.runner import run_pipeline
from barnabas.pipelines.spark.state.checkpoint_manager import write_checkpoints_quickly
from barnabas.pipelines.spec.validation import load_document

TOPIC = "orders"
SCHEMA = "id BIGINT, customer STRING, cents BIGINT, at TIMESTAMP, note STRING"
PARTITIONS = 2
BATCHES = 5
NOTES = 64
"""Different texts, so that a record compresses as little as real ones."""


class Bench:
    def __init__(self, spark: Any, broker: BarnabasBroker, directory: Path, records: int) -> None:
        self._spark, self._broker, self._directory, self._records = spark, broker, directory, records
        self._serial = 0
        self.manifest = directory / "manifest.json"

    def fill(self) -> None:
        create_topic(self._broker, TOPIC, PARTITIONS, {"segment.bytes": str(16 << 20)})
        producer = Producer(
            {"bootstrap.servers": self._broker.bootstrap, "linger.ms": 20, "compression.type": "lz4"}
        )
        random = Random(1)
        notes = [random.randbytes(440).hex() for _ in range(NOTES)]
        for at in range(self._records):
            value = {
                "id": at, "customer": f"customer-{at % 1_000}", "cents": at % 10_000,
                "at": f"2026-05-{at % 28 + 1:02}T10:00:00Z", "note": f"{at}{notes[at % NOTES]}",
            }  # fmt: skip
            while True:
                try:
                    producer.produce(TOPIC, json.dumps(value), partition=at % PARTITIONS)
                    break
                except BufferError:
                    producer.poll(0.1)
        assert producer.flush(300) == 0
        command = [sys.executable, "-m", "barnabas", "log", "manifest", str(self._broker.data_directory)]
        command += ["--topic", TOPIC, "--out", str(self.manifest), "--bootstrap", self._broker.bootstrap]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        subprocess.run(command, check=True, env=environment, stdout=sys.stderr)

    def pipeline(self, sink: dict[str, Any], *, from_segments: bool = False) -> tuple[float, int, int]:
        """Seconds in all micro-batches but the first, their records, and all records."""
        self._serial += 1
        source = {
            "type": "topic",
            "topics": TOPIC,
            "schema": SCHEMA,
            "max_offsets_per_trigger": self._per_batch,
        }
        document: dict[str, Any] = {
            "name": f"bench-{self._serial}",
            "source": source,
            "sink": {"type": "table", "path": str(self._directory / f"lake-{self._serial}"), **sink},
            "trigger": "available_now",
        }
        if from_segments:
            source["manifest"] = str(self.manifest)
            document["engine"] = "segments"
        seen: list[Any] = []
        spec = load_document(document)
        run_pipeline(
            Run(self._spark, spec, self._broker.bootstrap, str(self._directory / "state")), seen.append
        )
        activate(self._spark)
        whole = [each for each in seen[1:] if each.records > self._per_batch // 2]
        assert whole, "the topic is too small for several micro-batches"
        spent_ms = sum(each.batch_ms for each in whole)
        return spent_ms / 1_000, sum(each.records for each in whole), sum(each.records for each in seen)

    def plain(self) -> tuple[float, int, int]:
        from pyspark.sql import functions as F  # noqa: N812

        self._serial += 1
        rows = (
            self._spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", self._broker.bootstrap)
            .option("subscribe", TOPIC)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", self._per_batch)
            .load()
            .select(F.from_json(F.col("value").cast("string"), SCHEMA).alias("row"))
            .select("row.*")
        )
        query = (
            rows.writeStream.format("parquet")
            .option("path", str(self._directory / f"plain-{self._serial}"))
            .option("checkpointLocation", str(self._directory / f"plain-checkpoint-{self._serial}"))
            .option("compression", "zstd")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        batches = [each for each in query.recentProgress if each["numInputRows"]]
        whole = [each for each in batches[1:] if each["numInputRows"] > self._per_batch // 2]
        spent_ms = sum(each["durationMs"]["triggerExecution"] for each in whole)
        return spent_ms / 1_000, _rows(whole), _rows(batches)

    @property
    def _per_batch(self) -> int:
        return self._records // BATCHES


def _rows(batches: list[Any]) -> int:
    return sum(each["numInputRows"] for each in batches)


def cpu_s() -> float:
    """CPU of this process and its children so far, those that ended included."""
    total = 0.0
    own = psutil.Process()
    for process in (own, *own.children(recursive=True)):
        with suppress(psutil.Error):
            used = process.cpu_times()
            total += used.user + used.system + used.children_user + used.children_system
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--works", default="plain,delta,iceberg,upsert,segments")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-tables-") as directory:
        path = Path(directory)
        opened = spark_session(path, spark_driver_extraJavaOptions="-XX:+UseG1GC")
        with running(BarnabasBroker(path / "data")) as broker, opened as spark:
            write_checkpoints_quickly(spark, directory)
            bench = Bench(spark, broker, path, arguments.records)
            bench.fill()
            works: dict[str, Callable[[], tuple[float, int, int]]] = {
                "plain": bench.plain,
                "delta": lambda: bench.pipeline({"format": "delta"}),
                "iceberg": lambda: bench.pipeline({"format": "iceberg"}),
                "upsert": lambda: bench.pipeline({"format": "delta", "mode": "upsert", "key": ["id"]}),
                "segments": lambda: bench.pipeline({"format": "delta"}, from_segments=True),
            }
            works = {name: works[name] for name in arguments.works.split(",")}
            rates: dict[str, list[float]] = {name: [] for name in works}
            costs: dict[str, list[float]] = {name: [] for name in works}
            for number in range(1 + arguments.rounds):
                for name, work in works.items():
                    before = cpu_s()
                    seconds, records, all_records = work()
                    cost = (cpu_s() - before) / all_records * 1e6
                    print(
                        f"  {name:10} {records / seconds:12,.0f} rows/s {cost:8.1f} µs CPU a row",
                        file=sys.stderr,
                    )
                    if number:
                        rates[name].append(records / seconds)
                        costs[name].append(cost)
    print(f"{arguments.records:,} JSON records of 1 KB, local[2], median of {arguments.rounds} round(s)\n")
    print("| work | rows/s | beside plain | µs of CPU a row |\n|---|---|---|---|")
    plain = statistics.median(rates["plain"])
    for name, found in rates.items():
        rate = statistics.median(found)
        print(f"| {name} | {rate:,.0f} | {rate / plain:.2f} | {statistics.median(costs[name]):.1f} |")


if __name__ == "__main__":
    main()
