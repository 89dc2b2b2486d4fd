"""Brokers as shards: gain by a second broker on two cores, and the cost of finding the leader.

    python bench/shards.py --seconds 5               # ours, beside one node of Apache Kafka
    python bench/shards.py --code build/wheel        # the same with the compiled wheel

`barnabas start --brokers N` runs a broker for each core; each partition has one leader, to which clients send
directly, so no record travels from shard to shard. So the question is whether a request costs the same CPU
for any number of shards. If it does, throughput grows with the cores. Clients take their share of the same
two cores here.

The hop is paid once: a client learns from the first broker that another leads its partition, and connects to
that one. It is measured from the first connection to the first acknowledged record, for both cases.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import sys
import time
from multiprocessing.pool import Pool
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "src")]

from raw_load import run_load
from scratch import scratch_directory
from tests.support import wire
from tests.support.broker import cpu_seconds
from tests.support.clusters import AnyCluster, Member, any_cluster
from works import produce_frame

TOPIC = "shards"
DEPTH = 32
WARM_UP_S = 15.0
FINDS = 300


def served(port: int, partition: int, seconds: float) -> tuple[int, float]:
    """Requests of one client, and how long it took."""
    load = run_load(
        port, produce_frame(TOPIC, [bytes(100)], partition=partition), depth=DEPTH, seconds=seconds
    )
    return load.requests, load.seconds


def measure(cluster: AnyCluster, clients: int, seconds: float, pool: Pool) -> None:
    """As many clients as were asked for, each on a partition and with the broker that leads it."""
    cluster.create_topic(TOPIC, clients, replication_factor=1)
    leaders = [cluster.broker(cluster.leader(TOPIC, partition)) for partition in range(clients)]
    jobs = [(leader.port, partition) for partition, leader in enumerate(leaders)]
    pool.starmap(served, [(*job, WARM_UP_S) for job in jobs])
    before_s = sum(cpu_seconds(broker) for broker in cluster.brokers)
    done = pool.starmap(served, [(*job, seconds) for job in jobs])
    cpu_s = sum(cpu_seconds(broker) for broker in cluster.brokers) - before_s
    requests = sum(count for count, _ in done)
    rate = sum(count / spent_s for count, spent_s in done)
    shards = len(cluster.brokers)
    print(
        f"| {cluster.name} | {shards} | {clients} | {rate:,.0f} | {cpu_s / requests * 1e6:.1f} "
        f"| {cpu_s / seconds:.2f} |",
        flush=True,
    )


def hop(cluster: AnyCluster) -> str:
    first, second = cluster.brokers[:2]
    leaders: dict[str, Member] = {"here": first, "there": second}
    for topic, leader in leaders.items():
        cluster.create_topic(topic, assignment={0: [leader.id]})
    times_ms: dict[str, list[float]] = {topic: [] for topic in leaders}
    for _ in range(FINDS):
        for topic, leader in leaders.items():
            times_ms[topic].append(found_ms(first, leader, topic))
    own_ms, other_ms = (statistics.median(taken[FINDS // 10 :]) for taken in times_ms.values())
    return (
        f"\nFirst record of a new client, p50: {own_ms:.2f} ms where the first broker leads the partition,"
        f" {other_ms:.2f} ms where another does."
    )


def found_ms(first: Member, leader: Member, topic: str) -> float:
    """From nothing to an acknowledged record, by way of the first broker."""
    begun = time.perf_counter()
    with wire.WireConnection(first.host, first.port) as connection:
        connection.ask(wire.API_VERSIONS, 0, b"")
        connection.ask(wire.METADATA, wire.METADATA_VERSION, wire.array([wire.string(topic)]))
        if leader is first:
            _write(connection, topic)
        else:
            with wire.WireConnection(leader.host, leader.port) as other:
                other.ask(wire.API_VERSIONS, 0, b"")
                _write(other, topic)
    return (time.perf_counter() - begun) * 1e3


def _write(connection: wire.WireConnection, topic: str) -> None:
    error, _ = connection.produce(topic, wire.batch([b"found"]))
    assert error == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--code", type=Path, help="where a wheel is unpacked, if it is to be measured")
    parser.add_argument("--no-kafka", action="store_true", help="without Apache Kafka")
    options = parser.parse_args()
    print(
        "| | brokers | clients | requests/s | µs of CPU a request | cores of brokers |\n" + "|---" * 6 + "|"
    )
    cases = [("barnabas", 1, 1), ("barnabas", 1, 2), ("barnabas", 2, 2)]
    cases += [] if options.no_kafka else [("kafka", 1, 1), ("kafka", 1, 2)]
    found = ""
    with multiprocessing.Pool(2) as pool:
        for name, nodes, clients in cases:
            with (
                scratch_directory(name) as directory,
                any_cluster(name, directory, nodes=nodes, code=options.code) as cluster,
            ):
                measure(cluster, clients, options.seconds, pool)
                if nodes > 1:
                    found = hop(cluster)
    print(found)


if __name__ == "__main__":
    main()
