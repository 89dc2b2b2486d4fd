"""Three brokers on one machine that share a store: start, failover, a killed store, a killed cluster.

    python bench/local_cluster.py --rounds 5

Times run from the SIGKILL to the event itself, as the cluster's own log and its clients see it.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

POLL_S = 0.002
TIMEOUT_S = 120.0


class LocalCluster:
    """`barnabas start --brokers 3` on a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._process: subprocess.Popen[str]
        self.admin: AdminClient

    def start(self) -> float:
        """Seconds until all brokers are ready."""
        began = time.perf_counter()
        command = [sys.executable, "-m", "barnabas", "start", "--brokers", "3"]
        command += ["--data-dir", str(self._directory), "--listener", "PLAINTEXT://127.0.0.1:0"]
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        took_s = time.perf_counter() - began
        bootstrap = ",".join(re.findall(r"127\.0\.0\.1:\d+", line))
        self.admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        return took_s

    def child(self, word: str) -> int | None:
        for child in psutil.Process(self._process.pid).children():
            if any(word in part for part in child.cmdline()):
                pid: int = child.pid
                return pid
        return None

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def leader(self) -> int:
        partition = self.admin.list_topics("orders", timeout=10).topics["orders"].partitions[0]
        leader: int = partition.leader
        return leader

    def create(self, name: str) -> bool:
        (made,) = self.admin.create_topics([NewTopic(name, 1, 3)]).values()
        try:
            made.result(10)
        except KafkaException:
            return False
        return True


def seconds_until(holds: Callable[[], bool], began: float) -> float:
    while not holds():
        assert time.perf_counter() - began < TIMEOUT_S
        time.sleep(POLL_S)
    return time.perf_counter() - began


def failover(cluster: LocalCluster) -> float:
    """Until clients see another leader."""
    victim = cluster.leader()
    pid = cluster.child(f"broker-{victim}.properties")
    assert pid is not None
    began = time.perf_counter()
    os.kill(pid, signal.SIGKILL)
    return seconds_until(lambda: cluster.leader() not in (victim, -1), began)


def store_outage(cluster: LocalCluster, number: int) -> float:
    """Until a topic can be created."""
    pid = cluster.child("store_process")
    assert pid is not None
    began = time.perf_counter()
    os.kill(pid, signal.SIGKILL)
    return seconds_until(lambda: cluster.create(f"later-{number}"), began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    figures: dict[str, list[float]] = {}
    for number in range(parser.parse_args().rounds):
        with tempfile.TemporaryDirectory() as directory:
            cluster = LocalCluster(Path(directory))
            try:
                figures.setdefault("first start", []).append(cluster.start())
                cluster.create("orders")
                figures.setdefault("kill -9 of the store", []).append(store_outage(cluster, number))
                figures.setdefault("kill -9 of a leader", []).append(failover(cluster))
                cluster.kill()
                figures.setdefault("start after kill -9 of all", []).append(cluster.start())
            finally:
                cluster.kill()
    for name, seconds in figures.items():
        print(f"{name:<28} median {statistics.median(seconds):6.3f} s, worst {max(seconds):6.3f} s")


if __name__ == "__main__":
    main()
