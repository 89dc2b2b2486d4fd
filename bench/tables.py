"""Rows a second from a topic into tables, files and topics, beside plain Spark; and from closed segments.

    make bench-tables           # writes the section of tables in bench/RESULTS.md, and tables.json

    PYTHONPATH=src:. python bench/tables.py --data /tmp/filled --fill-only      # the slow part, beforehand
    PYTHONPATH=src:. python bench/tables.py --data /tmp/filled --print

Topics of two partitions hold JSON records, `orders` of about 1 KB and `clicks` of about 100 B. `lines` has
one partition, of 1 KB: what one task reads from the broker, a task on each core reads from files. The works
take turns on one Spark, `local[2]`. Plain Spark is its own Kafka connector in the JVM, `from_json`, and its
sink of Parquet or of topics (at least once), as one would write it by hand. Ours are pipelines:

- `delta`, `iceberg`: a `table` sink, from the broker; `upsert`: the same into Delta by key, every key new.
- `segments`: the same as `delta` from closed segment files. It stands beside `delta`, not beside Spark.
- `files`: a `files` sink of Parquet. `topic`: decoded, encoded and written to a topic, exactly once.

The rate counts all micro-batches but the first, whose start is not throughput. CPU is that of this process,
its JVM, its workers and the broker, a row. Each work runs once over a small topic beforehand, which warms the
JVM up. What readers find of each work is counted, outside the measured time.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import psutil
import report
from confluent_kafka import Consumer, Producer, TopicPartition
from spark_start import run_once
from tests.peers.spark_kafka import CONNECTOR_VERSION
from tests.support.broker import REPOSITORY, BarnabasBroker, running
from tests.support.fixtures import create_topic
from tests.support.spark import activate, spark_session
from tests.support.topics import produce

from barnabas.pipelines.spark.context.run_context import Run
from barnabas.pipelines.spark.runner import run_pipeline
from barnabas.pipelines.spark.state.checkpoint_manager import write_checkpoints_quickly
from barnabas.pipelines.spec.validation import load_document

HERE = Path(__file__).parent
SCHEMA = "id BIGINT, customer STRING, cents BIGINT, at TIMESTAMP"
PARTITIONS = 2
BATCHES = 5
WARM_RECORDS = 20_000
NOTES = 64
"""Different texts, so that a record compresses as little as real ones."""
NOTE_BYTES = 440


class Source(NamedTuple):
    topic: str
    records: int
    has_note: bool
    partitions: int = PARTITIONS

    @property
    def schema(self) -> str:
        return f"{SCHEMA}, note STRING" if self.has_note else SCHEMA

    @property
    def per_batch(self) -> int:
        return max(self.records // BATCHES, 1)


class Took(NamedTuple):
    seconds: float
    records: int
    """Of the micro-batches in this time."""
    all_records: int


class Work(NamedTuple):
    figure: str
    subject: str
    run: Callable[[Source], Took]


class Bench:
    def __init__(self, spark: Any, broker: BarnabasBroker, directory: Path) -> None:
        self._spark, self._broker, self._directory = spark, broker, directory
        self._serial = 0
        self.works = {
            "plain": self.plain_files,
            "delta": lambda source: self.table(source, {"format": "delta"}),
            "iceberg": lambda source: self.table(source, {"format": "iceberg"}),
            "upsert": lambda source: self.table(source, {"format": "delta", "mode": "upsert", "key": ["id"]}),
            "segments": lambda source: self.table(source, {"format": "delta"}, from_segments=True),
            "files": self.files,
            "plain topic": self.plain_topic,
            "topic": self.topic,
        }

    def table(self, source: Source, sink: dict[str, Any], *, from_segments: bool = False) -> Took:
        path = self._next("lake")
        took = self._pipeline(
            source, {"type": "table", "path": str(path), **sink}, from_segments=from_segments
        )
        files = [str(each) for each in path.rglob("*.parquet") if "_delta_log" not in each.parts]
        found = self._spark.read.parquet(*files).count()
        assert found == took.all_records, f"{path} has {found:,} rows of {took.all_records:,}"
        return took

    def files(self, source: Source) -> Took:
        path = self._next("files")
        took = self._pipeline(source, {"type": "files", "path": str(path), "compression": "zstd"})
        assert self._spark.read.parquet(str(path)).count() == took.all_records
        return took

    def topic(self, source: Source) -> Took:
        name = self._output()
        took = self._pipeline(source, {"type": "topic", "topic": name})
        # Markers of transactions have offsets too.
        assert source.records <= end_of(self._broker, name) <= source.records + 8 * BATCHES * PARTITIONS
        return took

    def plain_files(self, source: Source) -> Took:
        writer = self._plain_rows(source).writeStream.format("parquet").option("compression", "zstd")
        return self._plain(source, writer.option("path", str(self._next("plain"))))

    def plain_topic(self, source: Source) -> Took:
        name = self._output()
        values = self._plain_rows(source).selectExpr("to_json(struct(*)) AS value").writeStream
        writer = values.format("kafka").option("kafka.bootstrap.servers", self._broker.bootstrap)
        took = self._plain(source, writer.option("topic", name))
        assert end_of(self._broker, name) == source.records
        return took

    def _pipeline(self, source: Source, sink: dict[str, Any], *, from_segments: bool = False) -> Took:
        part: dict[str, Any] = {"type": "topic", "topics": source.topic, "schema": source.schema}
        part["max_offsets_per_trigger"] = source.per_batch
        # The broker's directory may be kept, so pipelines and their groups have names of this run.
        name = f"{self._directory.name}-{self._next('bench').name}"
        document = {"name": name, "source": part, "sink": sink}
        if from_segments:
            part["manifest"] = str(self._manifest(source.topic))
            document["engine"] = "segments"
        seen: list[Any] = []
        spec = load_document({**document, "trigger": "available_now"})
        run_pipeline(
            Run(self._spark, spec, self._broker.bootstrap, str(self._directory / "state")), seen.append
        )
        activate(self._spark)
        return took(source, [(each.records, each.batch_ms) for each in seen])

    def _plain_rows(self, source: Source) -> Any:
        from pyspark.sql import functions as F  # noqa: N812

        options = {"subscribe": source.topic, "startingOffsets": "earliest"}
        return (
            self._spark.readStream.format("kafka")
            .options(**options)
            .option("kafka.bootstrap.servers", self._broker.bootstrap)
            .option("maxOffsetsPerTrigger", source.per_batch)
            .load()
            .select(F.from_json(F.col("value").cast("string"), source.schema).alias("row"))
            .select("row.*")
        )

    def _plain(self, source: Source, writer: Any) -> Took:
        query = (
            writer.option("checkpointLocation", str(self._next("plain-checkpoint")))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return took(
            source,
            [(each["numInputRows"], each["durationMs"]["triggerExecution"]) for each in query.recentProgress],
        )

    def _manifest(self, topic: str) -> Path:
        path = self._directory / f"{topic}-manifest.json"
        command = [sys.executable, "-m", "barnabas", "log", "manifest", str(self._broker.data_directory)]
        command += ["--topic", topic, "--out", str(path), "--bootstrap", self._broker.bootstrap]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
        return path

    def _output(self) -> str:
        # The broker's directory may be kept, so its topics have names of this run.
        name = f"{self._directory.name}-{self._next('output').name}"
        create_topic(self._broker, name, PARTITIONS, {})
        return name

    def _next(self, word: str) -> Path:
        self._serial += 1
        return self._directory / f"{word}-{self._serial}"


def took(source: Source, batches: list[tuple[int, float]]) -> Took:
    """Of records and milliseconds of each micro-batch."""
    # The share of each partition is rounded, so a micro-batch of a few records may come at the end.
    whole = [each for each in batches[1:] if each[0] > source.per_batch // 2]
    assert whole, "the topic is too small for several micro-batches"
    all_records = sum(records for records, _ in batches)
    return Took(sum(ms for _, ms in whole) / 1_000, sum(records for records, _ in whole), all_records)


def fill(broker: BarnabasBroker, source: Source) -> None:
    """Write the topic, unless an earlier run has done so."""
    if end_of(broker, source.topic) == source.records:
        return
    create_topic(
        broker, source.topic, source.partitions, {"segment.bytes": str(16 << 20), "retention.ms": "-1"}
    )
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 20, "compression.type": "lz4"})
    random = Random(1)
    notes = [random.randbytes(NOTE_BYTES).hex() for _ in range(NOTES)]
    for at in range(source.records):
        note = f', "note": "{at}{notes[at % NOTES]}"' if source.has_note else ""
        value = (
            f'{{"id": {at}, "customer": "customer-{at % 1_000}", "cents": {at % 10_000},'
            f' "at": "2026-05-{at % 28 + 1:02}T10:00:00Z"{note}}}'
        )
        while True:
            try:
                producer.produce(source.topic, value, partition=at % source.partitions)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(300) == 0


def end_of(broker: BarnabasBroker, topic: str) -> int:
    """Sum of the end offsets; 0 without the topic."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "bench"})
    try:
        partitions = (consumer.list_topics(topic, timeout=60).topics[topic].partitions or {}).keys()
        return sum(consumer.get_watermark_offsets(TopicPartition(topic, each), 60)[1] for each in partitions)
    finally:
        consumer.close()


def cpu_s() -> float:
    """CPU of this process and its children so far, those that ended included."""
    total = 0.0
    own = psutil.Process()
    for process in (own, *own.children(recursive=True)):
        with suppress(psutil.Error):
            used = process.cpu_times()
            total += used.user + used.system + used.children_user + used.children_system
    return total


def first_batch_s(broker: BarnabasBroker, directory: Path, rounds: int) -> list[float]:
    """Seconds from `pipeline run` to the end of its first micro-batch; a first run warms up."""
    topic = f"{directory.name}-start"
    create_topic(broker, topic, 1)
    produce(broker.bootstrap, topic, [{"id": at} for at in range(100)])
    spec = directory / "start.yaml"
    spec.write_text(
        f"name: {topic}\nsource: {{type: topic, topics: {topic}, schema: id BIGINT}}\n"
        f"sink: {{type: table, path: {directory}/start-lake}}\ntrigger: available_now\n"
    )
    spent = []
    for number in range(1 + rounds):
        state = directory / f"start-state-{number}"
        _, seconds, _ = run_once(spec, broker.bootstrap, state, is_sparks_own=False, is_verbose=False)
        print(f"  start {seconds:24.1f} s", file=sys.stderr, flush=True)
        spent.append(seconds)
    return spent[1:]


def measure(bench: Bench, sources: dict[str, Source], works: list[str], rounds: int) -> report.Samples:
    """Rates and costs by subject. Works are named `delta 1k`; plain Spark stands beside each."""
    samples: report.Samples = {"barnabas": {}, "kafka": {}}
    warm = {
        size: source._replace(topic=f"warm-{size}", records=WARM_RECORDS) for size, source in sources.items()
    }
    for work in works:
        name, size = work.rsplit(" ", 1)
        if name != "segments":  # a small topic has no closed ones, and `delta` has warmed up the same code
            bench.works[name](warm[size])
    for _ in range(rounds):
        for work in works:
            name, size = work.rsplit(" ", 1)
            before = cpu_s()
            found = bench.works[name](sources[size])
            cost_us = (cpu_s() - before) / found.all_records * 1e6
            rate = found.records / found.seconds
            print(
                f"  {work:16} {rate:12,.0f} rows/s {cost_us:8.1f} µs CPU a row", file=sys.stderr, flush=True
            )
            for subject, figure in report.table_figures(name, size):
                samples[subject].setdefault(f"{figure}_rows_s", []).append(rate)
                samples[subject].setdefault(f"{figure}_cpu_us", []).append(cost_us)
    return samples


def described_run(sources: dict[str, Source], works: list[str], rounds: int, machine: str) -> str:
    sizes = [size for size in sources if any(work.endswith(f" {size}") for work in works)]
    topics = ", ".join(
        f"{sources[size].records:,} of {'100 B' if size == '100b' else '1 KB'} in {sources[size].partitions} "
        "partition(s)"
        for size in sizes
    )
    return (
        f"JSON records of one Barnabas broker: {topics}. Spark `local[2]`, {BATCHES} micro-batches of which "
        f"the first does not count, {rounds} round(s) after a small one that does not count, on {machine}. "
        "Plain Spark is its connector in the JVM, `from_json`, and its own sink: Parquet, or topics at "
        "least once."
    )


@contextmanager
def scratch(given: str | None) -> Iterator[Path]:
    """The given directory for the broker's data, kept; or one that goes."""
    if given is not None:
        Path(given).mkdir(parents=True, exist_ok=True)
        yield Path(given)
        return
    with tempfile.TemporaryDirectory(prefix="bench-tables-data-") as made:
        yield Path(made)


WORKS = (
    "plain 1k,delta 1k,iceberg 1k,segments 1k,files 1k,upsert 1k,"
    "delta single,segments single,plain 100b,delta 100b,files 100b,plain topic 100b,topic 100b"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--records", type=int, default=5_000_000, help="of 1 KB")
    parser.add_argument("--small-records", type=int, default=5_000_000, help="of 100 B")
    parser.add_argument("--single-records", type=int, default=1_000_000, help="of 1 KB in one partition")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--starts", type=int, default=3, help="starts of a pipeline")
    parser.add_argument("--works", default=WORKS)
    parser.add_argument("--data", help="directory of the broker, kept; full topics there are used again")
    parser.add_argument("--fill-only", action="store_true")
    parser.add_argument(
        "--keep", action="store_true", help="the other rows stay, so a run may come in pieces"
    )
    parser.add_argument(
        "--machine", default="a machine with other work", help="what the head of the table says"
    )
    parser.add_argument("--print", action="store_true", dest="is_printed", help="write no results")
    given = parser.parse_args()
    sources = {
        "1k": Source("orders", given.records, has_note=True),
        "100b": Source("clicks", given.small_records, has_note=False),
        "single": Source("lines", given.single_records, has_note=True, partitions=1),
    }
    with (
        tempfile.TemporaryDirectory(prefix="bench-tables-") as directory,
        scratch(given.data) as data,
        running(BarnabasBroker(data / "broker")) as broker,
    ):
        for size, source in sources.items():
            fill(broker, source._replace(topic=f"warm-{size}", records=WARM_RECORDS))
            fill(broker, source)
        if given.fill_only:
            return
        opened = spark_session(Path(directory), spark_driver_extraJavaOptions="-XX:+UseG1GC")
        with opened as spark:
            write_checkpoints_quickly(spark, directory)
            bench = Bench(spark, broker, Path(directory))
            works = [each for each in given.works.split(",") if each]
            samples = measure(bench, sources, works, given.rounds)
            about = report.versions(REPOSITORY) | {"Spark": spark.version, "JVM connector": CONNECTOR_VERSION}
        if given.starts:
            samples["barnabas"]["start_s"] = first_batch_s(broker, Path(directory), given.starts)
    for name in ("Apache Kafka", "librdkafka"):
        del about[name]
    described = described_run(sources, works, given.rounds, given.machine)
    if given.keep:
        samples = report.with_last(HERE / "tables.json", samples)
    print(report.rendered_tables(samples, about, described))
    if not given.is_printed:
        report.write_tables(HERE, samples, about, described)


if __name__ == "__main__":
    main()
