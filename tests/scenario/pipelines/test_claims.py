"""A claim has four steps; two attempts may come to them in any order, and never own a partition both."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")

from barnabas.client.core import transaction_steps as txn
from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.ids import TopicPartition
from pyspark_barnabas.shared.cluster import Cluster
from pyspark_barnabas.shared.cluster_config import ClusterConfig
from pyspark_barnabas.writers.attempts.claims import Claims
from tests.support.topics import produce

STEPS = ("begin", "open_partitions", "add_partitions", "is_current")
TOPIC_PARTITION = TopicPartition("claimed", 0)


class Turns:
    """Threads that run one step each when it is their turn."""

    def __init__(self, names: str) -> None:
        self._mine = threading.local()
        self._turn = {name: threading.Semaphore(0) for name in names}
        self._parked = threading.Semaphore(0)
        self._ended: set[str] = set()
        self._threads: list[threading.Thread] = []

    def stepping(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def step(*arguments: Any) -> Any:
            if hasattr(self._mine, "name"):
                self._parked.release()
                self._turn[self._mine.name].acquire()
            return function(*arguments)

        return step

    def start(self, name: str, work: Callable[[], None]) -> None:
        def run() -> None:
            self._mine.name = name
            try:
                work()
            finally:
                self._ended.add(name)
                self._parked.release()

        thread = threading.Thread(target=run)
        self._threads.append(thread)
        thread.start()
        self._parked.acquire()

    def give(self, name: str) -> None:
        if name not in self._ended:
            self._turn[name].release()
            self._parked.acquire()

    def join(self) -> None:
        for thread in self._threads:
            thread.join()


def interleavings() -> list[str]:
    chosen = itertools.combinations(range(2 * len(STEPS)), len(STEPS))
    return ["".join("a" if n in steps else "b" for n in range(2 * len(STEPS))) for steps in chosen]


def test_a_partition_is_never_given_to_two(pipelines_broker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    produce(pipelines_broker, TOPIC_PARTITION.topic, [b"so that it exists"])
    host, _, port = pipelines_broker.rpartition(":")
    config = ClusterConfig((Endpoint(host, int(port)),))
    plain = {name: getattr(txn, name) for name in STEPS}
    for number, order in enumerate(interleavings()):
        with Cluster(config) as cluster:
            transaction = cluster.run(plain["begin"](cluster.state, f"interleaved-{number}", 60_000))
        turns = Turns("ab")
        for name in STEPS:
            monkeypatch.setattr(txn, name, turns.stepping(plain[name]))
        granted: list[str] = []

        def claim(name: str, transaction: txn.Transaction, granted: list[str]) -> None:
            with Cluster(config) as cluster:
                if Claims(cluster, transaction, task=0, attempt=0).claim([TOPIC_PARTITION]):
                    granted.append(name)

        for name in "ab":
            turns.start(name, lambda name=name, txn=transaction, to=granted: claim(name, txn, to))  # type: ignore[misc]
        for name in order + "ab" * len(STEPS):
            turns.give(name)
        turns.join()
        assert len(granted) <= 1, f"both were let through: {order}"
        if order in {"aaaabbbb", "bbbbaaaa"}:
            assert granted == [order[0]], "one that was alone was not let through"


def test_only_a_first_attempt_may_claim(pipelines_broker: str) -> None:
    produce(pipelines_broker, TOPIC_PARTITION.topic, [b"so that it exists"])
    host, _, port = pipelines_broker.rpartition(":")
    with Cluster(ClusterConfig((Endpoint(host, int(port)),))) as cluster:
        transaction = cluster.run(txn.begin(cluster.state, "attempts", 60_000))
        assert not Claims(cluster, transaction, task=0, attempt=1).claim([TOPIC_PARTITION])
        assert Claims(cluster, transaction, task=0, attempt=0).claim([TOPIC_PARTITION])
        assert not Claims(cluster, transaction, task=1, attempt=0).claim([TOPIC_PARTITION])
