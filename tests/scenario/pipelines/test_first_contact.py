"""The Spark connector without a broker, or without a topic."""

from __future__ import annotations

import logging
import socket
import threading

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")

from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.errors import NetworkException
from barnabas.testing.broker import run_broker
from pyspark_barnabas.readers.batch_reader import BatchReader
from pyspark_barnabas.readers.stream_reader import StreamReader
from pyspark_barnabas.shared.cluster import Cluster, NoBrokerAnswers
from pyspark_barnabas.shared.cluster_config import ClusterConfig
from pyspark_barnabas.shared.options import Options

HOURS_MS = 10_000_000


@pytest.fixture
def nobody() -> str:
    """An address that refuses."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{taken.getsockname()[1]}"


def options(address: str, patience_ms: int = HOURS_MS) -> Options:
    return Options(
        {
            "kafka.bootstrap.servers": address,
            "subscribe": "t",
            "kafka.default.api.timeout.ms": str(patience_ms),
        }
    )


def test_a_batch_without_a_broker_fails_with_the_address(nobody: str) -> None:
    with pytest.raises(NoBrokerAnswers, match=f"no broker answers at {nobody}"):
        BatchReader(options(nobody)).partitions()


def test_a_query_without_a_broker_fails_with_the_address(nobody: str) -> None:
    with pytest.raises(NoBrokerAnswers, match=f"no broker answers at {nobody}"):
        StreamReader(options(nobody)).initialOffset()


def test_a_query_that_runs_waits_and_says_so() -> None:
    with run_broker() as broker:
        reader = StreamReader(options(broker.bootstrap, patience_ms=2_000))
        cluster = reader._opened()
        cluster.writable_partitions("t")
        reader.initialOffset()
    said = threading.Event()

    class Collected(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "trying for another" in record.getMessage():
                said.set()

    collected = Collected()
    logging.getLogger("pyspark_barnabas.shared.cluster").addHandler(collected)
    ended: list[BaseException] = []

    def ask() -> None:
        try:
            reader._ask_latest()
        except BaseException as error:
            ended.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    asking.join()
    logging.getLogger("pyspark_barnabas.shared.cluster").removeHandler(collected)
    assert said.is_set()
    assert isinstance(ended[0], NetworkException), "it did not wait"


def test_patience_is_not_multiplied(nobody: str) -> None:
    """A retry inside a retry would wait for the square of the time."""
    host, _, port = nobody.rpartition(":")
    asked = 0

    class Counting(Cluster):
        def run_with_retries(self, attempt, **named):  # type: ignore[no-untyped-def]
            nonlocal asked
            asked += 1
            return super().run_with_retries(attempt, **named)

    with Counting(ClusterConfig((Endpoint(host, int(port)),), retry_timeout_ms=50)) as cluster:
        with pytest.raises(NetworkException):
            cluster.partitions(["t"])
    assert asked == 1


def test_a_topic_to_write_to_is_created_where_the_broker_may() -> None:
    with run_broker({"num.partitions": "3"}) as broker:
        host, _, port = broker.bootstrap.rpartition(":")
        with Cluster(ClusterConfig((Endpoint(host, int(port)),))) as cluster:
            assert cluster.partitions(["new"]) == {}, "reading creates nothing"
            assert cluster.writable_partitions("new") == 3


def test_a_topic_that_is_not_created_is_named_with_the_command_that_creates_it() -> None:
    with run_broker({"auto.create.topics.enable": "false"}) as broker:
        host, _, port = broker.bootstrap.rpartition(":")
        with Cluster(ClusterConfig((Endpoint(host, int(port)),))) as cluster:
            with pytest.raises(ValueError, match=f"barnabas topic create new --bootstrap {broker.bootstrap}"):
                cluster.writable_partitions("new")
