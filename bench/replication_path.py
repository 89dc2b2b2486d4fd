"""Cost of replication for each broker: user and system CPU of the leader and of both followers.

Starts three brokers of this working tree on one ZooKeeper. One partition with replication factor 3 is
led by the first broker, so the leader's and the followers' shares can be told apart. Rows: one-record
produce requests (acks=all) at two depths, librdkafka with its defaults, and a cluster that holds many
partitions while one of them is busy, or none.

    python bench/replication_path.py --seconds 3 --partitions 2000
    python bench/replication_path.py --rows raw --profile /tmp/profile   # py-spy on leader and follower

The same of a compiled wheel that is unpacked somewhere: `PYTHONPATH=there python bench/replication_path.py`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]
if "PYTHONPATH" not in os.environ:
    sys.path.insert(2, str(Path(__file__).parents[1] / "src"))

from bench.raw_load import run_load
from confluent_kafka import Producer
from tests.support.clusters import AnyCluster, any_cluster
from works import pour, produce_frame

SESSION_TIMEOUT_MS = 6_000
IDS = [1, 2, 3]
NAMES = ("leader", "follower", "follower")


@contextmanager
def costing(cluster: AnyCluster, name: str) -> Iterator[list[float]]:
    """Prints what the block cost each broker, for each of the things whose number the block puts in."""
    counted: list[float] = []
    processes = [psutil.Process(broker.pid) for broker in cluster.brokers]
    before = [process.cpu_times() for process in processes]
    begun = time.perf_counter()
    yield counted
    wall_s = time.perf_counter() - begun
    (done,) = counted
    shares = []
    for role, process, past in zip(NAMES, processes, before, strict=True):
        now = process.cpu_times()
        user_us = (now.user - past.user) * 1e6 / done
        system_us = (now.system - past.system) * 1e6 / done
        shares.append(f"{role} {user_us:7.1f} + {system_us:5.1f}")
    print(f"{name:34} {done / wall_s:9,.0f}/s  us each: {', '.join(shares)}", flush=True)


def raw(cluster: AnyCluster, seconds: float) -> None:
    cluster.create_topic("raw", assignment={0: IDS})
    leader = cluster.broker(1)
    for value_bytes in (100, 1_000):
        frame = produce_frame("raw", [bytes(value_bytes)])
        for depth in (1, 32):
            run_load(leader.port, frame, depth=depth, seconds=0.5)
            with costing(cluster, f"{value_bytes} B, depth {depth}") as counted:
                result = run_load(leader.port, frame, depth=depth, seconds=seconds)
                counted.append(result.requests)
            print(f"    {result}", flush=True)


def batches(cluster: AnyCluster, seconds: float) -> None:
    cluster.create_topic("batches", assignment={0: IDS})
    for value_bytes in (100, 1_000):
        sender = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
        records = int(seconds * 30_000_000 / (value_bytes + 200))
        with costing(cluster, f"librdkafka, {value_bytes} B, records") as counted:
            counted.append(records)
            pour(sender, "batches", bytes(value_bytes), records, timeout_s=120)


def many(cluster: AnyCluster, seconds: float, partitions: int) -> None:
    """All of them led by the first broker: the worst case for it and for its followers' sessions."""
    cluster.create_topic("many", assignment=dict.fromkeys(range(partitions), IDS))
    time.sleep(3)
    with costing(cluster, f"{partitions} partitions, idle, seconds") as counted:
        counted.append(seconds)
        time.sleep(seconds)
    frame = produce_frame("many", [bytes(100)])
    for depth in (1, 32):
        with costing(cluster, f"{partitions} partitions, one busy, depth {depth}") as counted:
            result = run_load(cluster.broker(1).port, frame, depth=depth, seconds=seconds)
            counted.append(result.requests)
        print(f"    {result}", flush=True)


@contextmanager
def profiled(cluster: AnyCluster, directory: Path | None) -> Iterator[None]:
    if directory is None:
        yield
        return
    directory.mkdir(parents=True, exist_ok=True)
    command = [
        str(Path(sys.executable).with_name("py-spy")),
        "record",
        "-r",
        "250",
        "-f",
        "raw",
        "-d",
        "3600",
    ]
    spies = [
        subprocess.Popen(
            [*command, "-o", str(directory / f"{name}.txt"), "-p", str(cluster.broker(broker_id).pid)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for name, broker_id in (("leader", 1), ("follower", 2))
    ]
    try:
        yield
    finally:
        for spy in spies:
            spy.send_signal(2)
        for spy in spies:
            spy.wait(30)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--partitions", type=int, default=2_000)
    parser.add_argument("--rows", default="raw,batches,many")
    parser.add_argument("--profile", type=Path)
    options = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="replication-path-"))
    rows = options.rows.split(",")
    try:
        with (
            any_cluster("barnabas", directory, session_timeout_ms=SESSION_TIMEOUT_MS) as cluster,
            profiled(cluster, options.profile),
        ):
            if "raw" in rows:
                raw(cluster, options.seconds)
            if "batches" in rows:
                batches(cluster, options.seconds)
            if "many" in rows:
                many(cluster, options.seconds, options.partitions)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
