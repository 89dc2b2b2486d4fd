"""A cluster that loses brokers: time without acknowledged writes, and the clients' view of it.

Times run from the SIGKILL to the first acknowledged write, nothing subtracted: the session's timeout is
in them. Views come from brokers that live; a leader counts when it is one of those.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterable
from contextlib import suppress

from cluster_works import PARTITIONS, ClusterScale, Sender, percentile
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from tests.support import wire
from tests.support.broker import cpu_seconds, resident_bytes
from tests.support.clusters import AnyCluster
from works import MEGABYTE, Figures

FAULT_TIMEOUT_S = 180.0
POLL_S = 0.005
MANY_POLL_S = 0.1
"""Between questions about thousands of partitions: the answer itself is work."""
SAMPLE = 40
IDLE_SETTLE_S = 10.0
THROUGH = 100


def leader_kills(cluster: AnyCluster, scale: ClusterScale) -> Figures:
    """SIGKILL of a partition's leader, again and again; the worst stands for p99 of so few."""
    ids = [broker.id for broker in cluster.brokers]
    cluster.create_topic("kills", assignment={0: ids})
    _await_writes(cluster, {("kills", 0)})
    outages_s = []
    for _ in range(scale.leader_kills):
        victim = cluster.broker(cluster.leader("kills"))
        begun = time.perf_counter()
        victim.kill()
        _await_writes(cluster, {("kills", 0)})
        outages_s.append(time.perf_counter() - begun)
        victim.start()
        cluster.wait_in_sync(["kills"])
    outages_s.sort()
    return {"leader_kill_p50_s": percentile(outages_s, 50), "leader_kill_worst_s": outages_s[-1]}


def controller_kills(cluster: AnyCluster, scale: ClusterScale) -> Figures:
    """Until every partition has a living leader and a write to each of a sample succeeds."""
    count = scale.failover_partitions
    begun = time.perf_counter()
    cluster.create_topic("failover", count)
    created_s = time.perf_counter() - begun
    sample = {("failover", number) for number in range(0, count, max(1, count // SAMPLE))}
    _await_writes(cluster, sample)
    written_s = time.perf_counter() - begun
    failovers_s = []
    for _ in range(scale.controller_kills):
        victim = cluster.broker(cluster.controller_id())
        begun = time.perf_counter()
        victim.kill()
        await_leaders(cluster, ["failover"], count)
        _await_writes(cluster, sample)
        failovers_s.append(time.perf_counter() - begun)
        victim.start()
        cluster.wait_in_sync(["failover"], count)
    failovers_s.sort()
    return {
        "failover_create_s": created_s,
        "failover_written_s": written_s,
        "failover_p50_s": statistics.median(failovers_s),
        "failover_worst_s": failovers_s[-1],
    }


def await_leaders(cluster: AnyCluster, topics: list[str], partitions: int) -> None:
    living = {broker.id for broker in cluster.live}
    deadline = time.perf_counter() + FAULT_TIMEOUT_S
    while time.perf_counter() < deadline:
        with suppress(OSError, EOFError):
            seen = cluster.view(topics).partitions
            if len(seen) == partitions and all(
                not each.error and each.leader in living for each in seen.values()
            ):
                return
        time.sleep(MANY_POLL_S)
    raise RuntimeError(f"partitions without a leader after {FAULT_TIMEOUT_S} s:\n{cluster.output_text()}")


def _await_writes(cluster: AnyCluster, partitions: Iterable[tuple[str, int]]) -> None:
    """An impatient client: asks who leads, writes there, and asks again when that failed."""
    left = set(partitions)
    deadline = time.perf_counter() + FAULT_TIMEOUT_S
    while left:
        if time.perf_counter() > deadline:
            raise RuntimeError(f"{left} took no write:\n{cluster.output_text()}")
        with suppress(OSError, EOFError):
            seen = cluster.view(sorted({topic for topic, _ in left})).partitions
            for topic, partition in sorted(left):
                if _is_written(cluster, seen[topic, partition].leader, topic, partition):
                    left.discard((topic, partition))
        time.sleep(POLL_S)


def _is_written(cluster: AnyCluster, leader: int, topic: str, partition: int) -> bool:
    living = {broker.id: broker for broker in cluster.live}
    if leader not in living:
        return False
    body = wire.produce_body(topic, wire.batch([b"written"]), partition=partition)
    with (
        suppress(OSError, EOFError),
        wire.WireConnection(living[leader].host, living[leader].port, timeout_s=15.0) as connection,
    ):
        reader = connection.ask(wire.PRODUCE, wire.PRODUCE_VERSION, body)
        reader.number("i"), reader.string(), reader.unpack("ii")
        return reader.number("h") == 0
    return False


def rolling_restart(cluster: AnyCluster, scale: ClusterScale) -> Figures:
    """One broker after the other is asked to end and comes back, under a producer with default retries."""
    cluster.create_topic("rolling", PARTITIONS)
    sender = Sender(cluster)
    stop = threading.Event()

    def write() -> None:
        begun = time.perf_counter()
        number = 0
        while not stop.is_set():
            due = begun + number / scale.rolling_records_s
            sender.wait_until(due)
            sender.send("rolling", bytes(200), due)
            number += 1
        sender.finish()

    thread = threading.Thread(target=write)
    thread.start()
    begun = time.perf_counter()
    try:
        for broker in cluster.brokers:
            broker.terminate()
            broker.start()
            cluster.wait_in_sync(["rolling"], PARTITIONS)
    finally:
        rolled_s = time.perf_counter() - begun
        stop.set()
        thread.join()
    ordered = sorted(sender.latencies_ms)
    return {
        "rolling_p99_ms": percentile(ordered, 99),
        "rolling_worst_ms": ordered[-1],
        "rolling_errors": len(sender.errors),
        "rolling_s": rolled_s,
    }


def many_partitions(cluster: AnyCluster, scale: ClusterScale) -> Figures:
    """Ten thousand partitions of three replicas: made, held idle, and one broker killed and back in sync."""
    each = scale.held_partitions // scale.held_topics
    topics = [f"held-{number}" for number in range(scale.held_topics)]
    begun = time.perf_counter()
    for topic in topics:
        cluster.create_topic(topic, each, in_sync=False)
    cluster.wait_in_sync(topics, each, FAULT_TIMEOUT_S * 3)
    created_s = time.perf_counter() - begun
    time.sleep(IDLE_SETTLE_S)
    before_s = sum(cpu_seconds(broker) for broker in cluster.brokers)
    time.sleep(scale.seconds * 2)
    spent_s = sum(cpu_seconds(broker) for broker in cluster.brokers) - before_s
    resident = sum(resident_bytes(broker) for broker in cluster.brokers)
    produced_s = _through_some(cluster, topics, each)
    victim = cluster.brokers[-1]
    victim.kill()
    await_leaders(cluster, topics, scale.held_partitions)
    begun = time.perf_counter()
    victim.start()
    cluster.wait_in_sync(topics, each, FAULT_TIMEOUT_S * 3)
    assert _through_some(cluster, topics, each) > 0
    return {
        "held_create_s": created_s,
        "held_idle_percent": 100 * spent_s / (scale.seconds * 2),
        "held_resident_mb": resident / MEGABYTE,
        "held_produce_s": produced_s,
        "held_restart_s": time.perf_counter() - begun,
    }


def _through_some(cluster: AnyCluster, topics: list[str], partitions: int) -> float:
    """Time to write a record to each of a hundred partitions and to read them all back."""
    wanted = [TopicPartition(topic, n) for topic in topics for n in range(0, partitions, partitions // 20)]
    chosen = wanted[:THROUGH]
    begun = time.perf_counter()
    sender = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for each in chosen:
        sender.produce(each.topic, b"held", partition=each.partition)
    assert sender.flush(FAULT_TIMEOUT_S) == 0, "records left unsent"
    reader = Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": "held", "auto.offset.reset": "earliest"}
    )
    try:
        reader.assign([TopicPartition(each.topic, each.partition, OFFSET_BEGINNING) for each in chosen])
        seen: set[tuple[str | None, int | None]] = set()
        while len(seen) < len(chosen):
            assert time.perf_counter() - begun < FAULT_TIMEOUT_S, f"{len(seen)} of {len(chosen)} came back"
            for message in reader.consume(THROUGH, timeout=1.0):
                assert message.error() is None, str(message.error())
                seen.add((message.topic(), message.partition()))
    finally:
        reader.close()
    return time.perf_counter() - begun
