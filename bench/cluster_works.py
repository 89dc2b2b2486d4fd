"""Loads on a cluster that stays whole: throughput and latency of replicated writes.

librdkafka's records are spread over six partitions, so every broker leads and follows. The prebuilt frames go
to one partition's leader; they show the way of one record through a follower and back.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from confluent_kafka import KafkaError, Message, Producer
from raw_load import run_load
from tests.support import wire
from tests.support.broker import cpu_seconds
from tests.support.clusters import AnyCluster, Member
from warm_memory import warm_memory
from works import GIGABYTE, MEGABYTE, Figures, Spent, pour, produce_frame

PARTITIONS = 6
TIMEOUT_S = 120.0
RECORD_BYTES = 1_000
REPLICAS = 3


@dataclass(frozen=True, slots=True)
class ClusterScale:
    """Amount of each work in one round."""

    produce_bytes: int
    seconds: float
    warm_up_seconds: float
    paced_seconds: float
    paced_records_s: int
    rolling_records_s: int
    leader_kills: int
    controller_kills: int
    failover_partitions: int
    held_topics: int
    held_partitions: int


FULL = ClusterScale(GIGABYTE // 2, 5.0, 10.0, 10.0, 2_000, 500, 3, 2, 2_000, 5, 10_000)
QUICK = ClusterScale(GIGABYTE // 10, 2.0, 4.0, 4.0, 1_000, 200, 2, 1, 500, 2, 1_000)


class Sender:
    """librdkafka with its defaults; keeps how long each record took from when it was due, and errors."""

    def __init__(self, cluster: AnyCluster) -> None:
        self.latencies_ms: list[float] = []
        self.errors: list[str] = []
        self._producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})

    def send(self, topic: str, value: bytes, due: float) -> None:
        def acknowledged(error: KafkaError | None, _: Message) -> None:
            if error is None:
                self.latencies_ms.append((time.perf_counter() - due) * 1e3)
            else:
                self.errors.append(str(error))

        self._producer.produce(topic, value, on_delivery=acknowledged)

    def wait_until(self, due: float) -> None:
        """Serves callbacks meanwhile: they must not stand in line until the next record."""
        self._producer.poll(0)
        while (now := time.perf_counter()) < due:
            self._producer.poll(due - now)

    def finish(self) -> None:
        assert self._producer.flush(TIMEOUT_S) == 0, "records left unsent"


@contextmanager
def spending(cluster: AnyCluster, *, written_bytes: int = 0, replicas: int = REPLICAS) -> Iterator[Spent]:
    """With warm memory for what the block is going to write, if that is much."""
    spent = Spent()
    with warm_memory(written_bytes, replicas):
        before_s = sum(cpu_seconds(broker) for broker in cluster.brokers)
        begun = time.perf_counter()
        yield spent
        spent.wall_s = time.perf_counter() - begun
        spent.cpu_s = sum(cpu_seconds(broker) for broker in cluster.brokers) - before_s


def warm_up(cluster: AnyCluster, scale: ClusterScale) -> None:
    """Every broker leads for a while and follows the others meanwhile."""
    assignment = {number: _rotated(cluster, number) for number in range(len(cluster.brokers))}
    cluster.create_topic("warm-up", assignment=assignment)
    for number in assignment:
        leader = leader_of(cluster, "warm-up", number)
        frame = produce_frame("warm-up", [bytes(100)], partition=number)
        run_load(leader.port, frame, depth=8, seconds=scale.warm_up_seconds / len(assignment))


def _rotated(cluster: AnyCluster, number: int) -> list[int]:
    ids = [broker.id for broker in cluster.brokers]
    return ids[number:] + ids[:number]


def leader_of(cluster: AnyCluster, topic: str, partition: int = 0) -> Member:
    return cluster.broker(cluster.leader(topic, partition))


def stored(cluster: AnyCluster, topic: str) -> int:
    """Records in all partitions, as their leaders count them."""
    count = 0
    for partition, seen in cluster.view([topic]).of(topic).items():
        leader = cluster.broker(seen.leader)
        with wire.WireConnection(leader.host, leader.port) as connection:
            error, offset = connection.list_offset(topic, wire.LATEST, partition)
        assert error == 0, f"error {error} asking for the end of {topic}-{partition}"
        count += offset
    return count


def produce(cluster: AnyCluster, scale: ClusterScale) -> Figures:
    cluster.create_topic("produce-warm", PARTITIONS)
    _pour(cluster, "produce-warm", scale.produce_bytes // RECORD_BYTES // 10)
    cluster.create_topic("produce", PARTITIONS)
    count = scale.produce_bytes // RECORD_BYTES
    moved = count * RECORD_BYTES
    with spending(cluster, written_bytes=moved) as spent:
        _pour(cluster, "produce", count)
    assert (found := stored(cluster, "produce")) == count, f"{found} of {count} records were stored"
    return {
        "cluster_produce_mb_s": moved / MEGABYTE / spent.wall_s,
        "cluster_produce_cpu_s_gb": spent.cpu_s / (moved / GIGABYTE),
    }


def _pour(cluster: AnyCluster, topic: str, count: int) -> None:
    sender = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    pour(sender, topic, bytes(RECORD_BYTES), count, partitions=PARTITIONS, timeout_s=TIMEOUT_S)


def paced(cluster: AnyCluster, scale: ClusterScale) -> Figures:
    """From when a record was due until it was acknowledged by all in-sync replicas."""
    cluster.create_topic("paced", PARTITIONS)
    sender = Sender(cluster)
    count = int(scale.paced_records_s * scale.paced_seconds)
    with spending(cluster) as spent:
        begun = time.perf_counter()
        for number in range(count):
            due = begun + number / scale.paced_records_s
            sender.wait_until(due)
            sender.send("paced", bytes(RECORD_BYTES), due)
        sender.finish()
    assert len(sender.latencies_ms) == count, f"{count - len(sender.latencies_ms)} records failed"
    steady = sorted(sender.latencies_ms[count // 4 :])
    return {
        "cluster_paced_p50_ms": percentile(steady, 50),
        "cluster_paced_p99_ms": percentile(steady, 99),
        "cluster_paced_cpu_percent": 100 * spent.cpu_s / spent.wall_s,
    }


def percentile(ordered: list[float], percent: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def requests(cluster: AnyCluster, scale: ClusterScale) -> Figures:
    figures: Figures = {}
    for depth in (1, 32):
        topic = f"requests-{depth}"
        cluster.create_topic(topic)
        leader = leader_of(cluster, topic)
        frame = produce_frame(topic, [bytes(100)])
        run_load(leader.port, frame, depth=depth, seconds=scale.seconds / 2)
        with spending(cluster) as spent:
            load = run_load(leader.port, frame, depth=depth, seconds=scale.seconds)
        assert stored(cluster, topic) >= load.requests, "requests were answered with errors"
        figures[f"cluster_requests_{depth}_s"] = load.requests_per_s
        figures[f"cluster_requests_{depth}_p50_us"] = load.latency.percentile_us(50)
        figures[f"cluster_requests_{depth}_p99_us"] = load.latency.percentile_us(99)
        figures[f"cluster_requests_{depth}_cpu_us"] = spent.cpu_s / load.requests * 1e6
    return figures


def large_batches(cluster: AnyCluster, scale: ClusterScale) -> Figures:
    cluster.create_topic("large")
    leader = leader_of(cluster, "large")
    frame = produce_frame("large", [bytes(960_000)])
    run_load(leader.port, frame, depth=5, requests=50)
    with spending(cluster, written_bytes=scale.produce_bytes) as spent:
        load = run_load(leader.port, frame, depth=5, requests=scale.produce_bytes // len(frame))
    assert stored(cluster, "large") >= load.requests, "requests were answered with errors"
    return {
        "cluster_large_mb_s": load.sent_bytes / MEGABYTE / load.seconds,
        "cluster_large_p99_ms": load.latency.percentile_us(99) / 1e3,
        "cluster_large_cpu_s_gb": spent.cpu_s / (load.sent_bytes / GIGABYTE),
    }
