"""The well-known table behind "two million writes a second on three cheap machines", for three brokers here.

    make bench-headline                                   # beside Apache Kafka's, writes bench/RESULTS.md
    python bench/headline.py --quick --subjects barnabas  # small, to see that it runs

One producer without replication; with three replicas, asynchronous (acks=1) and synchronous (acks=all); three
producers; one consumer and three; a producer and a consumer at once; sizes of records from 10 B to 100 KB;
end-to-end latency; and a log of twice the machine's memory, written and then read from its beginning, which
is no longer in memory. Records have 100 bytes and six partitions, as there. Clients are processes of
librdkafka.

A run may come in pieces: with `--keep`, what `--only` does not name stays as the last run left it.

All brokers, clients and ZooKeeper share one machine here, where the original had one for each: so beside
rates stands what a megabyte cost the brokers in CPU, which is what a machine of their own would be asked for.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import report
from cluster import SESSION_TIMEOUT_MS, SUBJECTS, started
from cluster_works import FULL, QUICK, percentile, spending, warm_up
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from run import collect, compile_sources
from tests.support.broker import REPOSITORY
from tests.support.clusters import AnyCluster
from works import MEGABYTE, UNHINDERED, Figures, Spent, pour

PARTITIONS = 6
RECORD_BYTES = 100
SIZES = (10, 100, 1_000, 10_000, 100_000)
TIMEOUT_S = 600.0
HERE = Path(__file__).parent
DESCRIBED = (
    "The well-known table, for three brokers that share two cores with their clients: so the CPU of a"
    " megabyte counts more than the rate. {rounds} round(s) of 5,000,000 records of 100 B, six partitions,"
    " librdkafka; sizes with acks=1 and three replicas, up to 1,000 MB each."
)


class Scale:
    def __init__(self, *, is_quick: bool) -> None:
        self.records = 60_000 if is_quick else 5_000_000
        self.bytes_of_a_size = 6 * MEGABYTE if is_quick else 1_000 * MEGABYTE
        memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        self.bytes_beyond_memory = 6 * MEGABYTE if is_quick else 2 * memory_bytes
        self.paced_records_s = 100  # what three nodes of Apache Kafka hold on two cores, with room to spare
        self.paced_s = 2.0 if is_quick else 30.0


def produce(bootstrap: str, topic: str, acks: str, size: int, count: int) -> None:
    sender = Producer({"bootstrap.servers": bootstrap, "acks": acks, "linger.ms": 5})
    pour(sender, topic, bytes(size), count, partitions=PARTITIONS, timeout_s=TIMEOUT_S)


def consume(bootstrap: str, topic: str, count: int) -> None:
    """So many records of all partitions, from the beginning."""
    receiver = Consumer({"bootstrap.servers": bootstrap, "group.id": f"headline-{os.getpid()}", **UNHINDERED})
    receiver.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(PARTITIONS)])
    deadline = time.monotonic() + TIMEOUT_S
    while count > 0:
        assert time.monotonic() < deadline, f"{count} records are missing"
        count -= sum(1 for message in receiver.consume(10_000, 1.0) if message.error() is None)
    receiver.close()


def at_once(*works: tuple[Callable[..., None], tuple[object, ...]]) -> None:
    """Each in a process of its own, all done on return."""
    processes = [multiprocessing.Process(target=work, args=arguments) for work, arguments in works]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0, "a client gave up"


def figures(name: str, subject: str, records: int, moved_bytes: int, spent: Spent) -> Figures:
    megabytes = moved_bytes / MEGABYTE
    found = {
        f"{name}, records/s": records / spent.wall_s,
        f"{name}, MB/s": megabytes / spent.wall_s,
        f"{name}, CPU": 1e3 * spent.cpu_s / megabytes,
    }
    print(f"  {subject}: " + "; ".join(f"{what} {value:,.2f}" for what, value in found.items()), flush=True)
    return found


def throughput(cluster: AnyCluster, scale: Scale) -> Figures:
    found: Figures = {}
    count, bootstrap = scale.records, cluster.bootstrap
    producers = (
        ("one producer, no replication", "alone", 1, "1", 1),
        ("one producer, three replicas, asynchronous", "asynchronous", 3, "1", 1),
        ("one producer, three replicas, synchronous", "synchronous", 3, "all", 1),
        ("three producers, three replicas, asynchronous", "three", 3, "1", 3),
    )
    for name, topic, replicas, acks, times in producers:
        cluster.create_topic(topic, PARTITIONS, replication_factor=replicas)
        moved = times * count * RECORD_BYTES
        with spending(cluster, written_bytes=moved, replicas=replicas) as spent:
            at_once(*[(produce, (bootstrap, topic, acks, RECORD_BYTES, count))] * times)
        found |= figures(name, cluster.name, times * count, moved, spent)
    for name, times in (("one consumer", 1), ("three consumers", 3)):
        with spending(cluster) as spent:
            at_once(*[(consume, (bootstrap, "asynchronous", count))] * times)
        found |= figures(name, cluster.name, times * count, times * count * RECORD_BYTES, spent)
    cluster.create_topic("both", PARTITIONS)
    with spending(cluster, written_bytes=count * RECORD_BYTES) as spent:
        at_once(
            (produce, (bootstrap, "both", "1", RECORD_BYTES, count)), (consume, (bootstrap, "both", count))
        )
    return found | figures(
        "a producer and a consumer at once", cluster.name, count, count * RECORD_BYTES, spent
    )


def sizes(cluster: AnyCluster, scale: Scale) -> Figures:
    found: Figures = {}
    for size in SIZES:
        count = min(scale.bytes_of_a_size // size, scale.records)
        cluster.create_topic(f"size-{size}", PARTITIONS)
        with spending(cluster, written_bytes=count * size) as spent:
            at_once((produce, (cluster.bootstrap, f"size-{size}", "1", size, count)))
        found |= figures(f"records of {size:,} B", cluster.name, count, count * size, spent)
    return found


def latency(cluster: AnyCluster, scale: Scale) -> Figures:
    """From `produce` to `poll` in another process, with acks=all; the clock is the machine's."""
    cluster.create_topic("latency", PARTITIONS)
    count = int(scale.paced_records_s * scale.paced_s)
    ours, theirs = multiprocessing.Pipe()
    receiver = multiprocessing.Process(target=_receive, args=(cluster.bootstrap, count, theirs))
    receiver.start()
    assert ours.recv() == "ready"
    sender = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 0})
    begun = time.perf_counter()
    for number in range(count):
        while time.perf_counter() < begun + number / scale.paced_records_s:
            sender.poll(0.0005)
        sender.produce("latency", str(time.time()).encode(), partition=number % PARTITIONS)
    assert sender.flush(TIMEOUT_S) == 0
    latencies_ms: list[float] = sorted(ours.recv())
    receiver.join()
    found = {f"end to end, p{percent:g}": percentile(latencies_ms, percent) for percent in (50, 99, 99.9)}
    print(f"  {cluster.name}: " + "; ".join(f"{what} {ms:,.2f} ms" for what, ms in found.items()), flush=True)
    return found


def _receive(bootstrap: str, count: int, tell: Connection) -> None:
    receiver = Consumer({"bootstrap.servers": bootstrap, "group.id": "latency", "fetch.min.bytes": 1})
    receiver.assign([TopicPartition("latency", number, OFFSET_BEGINNING) for number in range(PARTITIONS)])
    receiver.poll(1.0)
    tell.send("ready")
    latencies_ms: list[float] = []
    while len(latencies_ms) < count:
        message = receiver.poll(10.0)
        assert message is not None, "records are missing"
        value = message.value()
        if message.error() is None and value is not None:
            latencies_ms.append((time.time() - float(value)) * 1e3)
    tell.send(latencies_ms[count // 10 :])
    receiver.close()


def beyond(cluster: AnyCluster, scale: Scale) -> Figures:
    """Records of 1 KB, without replication: the disk is to hold them all."""
    count = scale.bytes_beyond_memory // 1_000
    cluster.create_topic("beyond", PARTITIONS, replication_factor=1)
    with spending(cluster) as spent:
        at_once((produce, (cluster.bootstrap, "beyond", "1", 1_000, count)))
    found = figures(report.BEYOND_WRITTEN, cluster.name, count, count * 1_000, spent)
    some = count // 10
    with spending(cluster) as spent:
        at_once((consume, (cluster.bootstrap, "beyond", some)))
    return found | figures(report.BEYOND_READ, cluster.name, some, some * 1_000, spent)


Work = Callable[[AnyCluster, Scale], Figures]
WORKS: dict[str, Work] = {"throughput": throughput, "sizes": sizes, "latency": latency, "beyond": beyond}
CLUSTERS = (("throughput", "sizes"), ("latency",), ("beyond",))
"""Which works share a cluster. Followers go on fetching for long what was written with acks=1, and there is
no disk for more than one log beyond memory."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small, one round")
    parser.add_argument("--subjects", default="barnabas,kafka", help=SUBJECTS)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", help=f"comma-separated, of {', '.join(WORKS)}")
    parser.add_argument("--keep", action="store_true", help="leave the figures of other works as they are")
    options = parser.parse_args()
    works = options.only.split(",") if options.only else list(WORKS)
    if unknown := set(works) - set(WORKS):
        parser.error(f"no such work: {', '.join(sorted(unknown))}")
    compile_sources()
    scale = Scale(is_quick=options.quick)
    samples: report.Samples = {}
    for _ in range(options.rounds):
        for subject in options.subjects.split(","):
            for together in CLUSTERS:
                if chosen := [WORKS[title] for title in together if title in works]:
                    with started(subject, SESSION_TIMEOUT_MS) as cluster:
                        warm_up(cluster, QUICK if options.quick else FULL)
                        for work in chosen:
                            collect(samples, subject, work(cluster, scale))
    if options.keep:
        samples = report.with_last(HERE / "headline.json", samples)
    about = report.versions(REPOSITORY)
    print(report.rendered_headline(samples, about, DESCRIBED.format(rounds=options.rounds)))
    if not options.quick:
        report.write_headline(HERE, samples, about, DESCRIBED.format(rounds=options.rounds))


if __name__ == "__main__":
    main()
