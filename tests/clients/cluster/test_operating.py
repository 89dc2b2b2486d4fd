"""kafka-configs, kafka-log-dirs, kafka-get-offsets, groups, transactions and a measure on three brokers."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer

from tests.clients.cluster.conftest import ClusterTopic
from tests.clients.matrix import TOOLS
from tests.clients.tools import (
    CONFIGS,
    CONSUMER_GROUPS,
    GET_OFFSETS,
    LOG_DIRS,
    PRODUCER_PERFORMANCE,
    TRANSACTIONS,
    tool,
)
from tests.support import topology
from tests.support.clusters import AnyCluster

pytestmark = [
    pytest.mark.client(TOOLS),
    pytest.mark.java,
    pytest.mark.slow,
    pytest.mark.compatibility,
    pytest.mark.xdist_group("cluster-tools"),
]
SPREAD = {0: [1, 2, 3], 1: [2, 3, 1], 2: [3, 1, 2]}
TIMEOUT_S = 60.0


def fill(three: AnyCluster, topic: str, each: int = 5) -> None:
    sender = Producer({"bootstrap.servers": three.bootstrap, "acks": "all"})
    for partition in SPREAD:
        for number in range(each):
            sender.produce(topic, f"{partition}/{number}".encode(), partition=partition)
    assert sender.flush(TIMEOUT_S) == 0


@pytest.mark.feature("kafka-configs (cluster)")
def test_one_broker_and_all_brokers_are_configured_while_they_run(three: AnyCluster) -> None:
    def configs(*arguments: str) -> str:
        return tool(CONFIGS, "--bootstrap-server", three.bootstrap, "--entity-type", "brokers", *arguments)

    one, everyone = ("--entity-name", "2"), ("--entity-default",)
    configs(*everyone, "--alter", "--add-config", "log.retention.ms=7000000")
    configs(*one, "--alter", "--add-config", "log.retention.ms=8000000")
    assert "log.retention.ms=7000000" in configs(*everyone, "--describe")
    described = configs(*one, "--describe")
    assert "log.retention.ms=8000000" in described
    assert "DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=7000000" in described
    assert "log.retention.ms=7000000" in configs("--entity-name", "3", "--describe", "--all")
    configs(*one, "--alter", "--delete-config", "log.retention.ms")
    assert "log.retention.ms=8000000" not in configs(*one, "--describe")
    configs(*everyone, "--alter", "--delete-config", "log.retention.ms")
    assert "log.retention.ms=7000000" not in configs(*everyone, "--describe")


@pytest.mark.feature("kafka-configs (cluster)")
def test_a_topics_configs_reach_every_broker(three: AnyCluster, new_topic: ClusterTopic) -> None:
    topic = new_topic(SPREAD)
    of = ("--entity-type", "topics", "--entity-name", topic)
    tool(CONFIGS, "--bootstrap-server", three.bootstrap, *of, "--alter", "--add-config", "retention.ms=4242")
    for broker in three.brokers:
        assert "retention.ms=4242" in tool(CONFIGS, "--bootstrap-server", broker.bootstrap, *of, "--describe")


@pytest.mark.feature("kafka-log-dirs (cluster)")
def test_every_replica_has_its_log_directory(three: AnyCluster, new_topic: ClusterTopic) -> None:
    topic = new_topic(SPREAD)
    fill(three, topic)
    said = tool(LOG_DIRS, "--bootstrap-server", three.bootstrap, "--describe", "--topic-list", topic)
    (line,) = [line for line in said.splitlines() if line.startswith("{")]
    sizes: dict[int, dict[str, int]] = {}
    for broker in json.loads(line)["brokers"]:
        (directory,) = broker["logDirs"]
        assert directory["error"] is None
        rows = directory["partitions"]
        assert all(row["offsetLag"] == 0 and not row["isFuture"] for row in rows)
        sizes[broker["broker"]] = {row["partition"]: row["size"] for row in rows}
    assert sizes.keys() == {1, 2, 3}
    assert sizes[1] == sizes[2] == sizes[3], "replicas are the same bytes"
    assert sizes[1].keys() == {f"{topic}-{number}" for number in SPREAD}


@pytest.mark.feature("kafka-get-offsets (cluster)")
def test_offsets_come_from_the_leaders_of_all_partitions(three: AnyCluster, new_topic: ClusterTopic) -> None:
    topic = new_topic(SPREAD)
    fill(three, topic)
    at = ("--bootstrap-server", three.bootstrap, "--topic", topic)
    assert tool(GET_OFFSETS, *at).split() == [f"{topic}:{number}:5" for number in SPREAD]
    assert tool(GET_OFFSETS, *at, "--time", "earliest").split() == [f"{topic}:{n}:0" for n in SPREAD]


@pytest.mark.feature("kafka-consumer-groups (cluster)")
def test_a_group_survives_the_shutdown_of_its_coordinator(three: AnyCluster, new_topic: ClusterTopic) -> None:
    topic = new_topic(SPREAD)
    fill(three, topic)
    reader = Consumer(
        {"bootstrap.servers": three.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    reader.subscribe([topic])
    read = 0
    while read < 15:
        message = reader.poll(TIMEOUT_S)
        assert message is not None
        read += message.error() is None
    reader.commit(asynchronous=False)
    reader.close()

    def rows() -> list[tuple[str, ...]]:
        said = tool(CONSUMER_GROUPS, "--bootstrap-server", three.bootstrap, "--describe", "--group", topic)
        return sorted(
            re.findall(rf"{re.escape(topic)}\s+{re.escape(topic)}\s+(\d)\s+(\d+)\s+(\d+)\s+(\d+)", said)
        )

    caught_up = [(str(number), "5", "5", "0") for number in SPREAD]
    assert rows() == caught_up
    broker = three.brokers[0]
    error, coordinator = topology.coordinator(broker.host, broker.port, topic)
    assert error == 0
    three.broker(coordinator).terminate()
    assert rows() == caught_up
    reset = ("--group", topic, "--topic", topic, "--reset-offsets", "--to-earliest", "--execute")
    tool(CONSUMER_GROUPS, "--bootstrap-server", three.bootstrap, *reset)
    assert rows() == [(str(number), "0", "5", "5") for number in SPREAD]


@pytest.fixture
def open_transaction(three: AnyCluster, new_topic: ClusterTopic) -> Iterator[str]:
    """A topic, and a transactional id of the same name that wrote one record to each partition of it."""
    topic = new_topic(SPREAD)
    sender = Producer({"bootstrap.servers": three.bootstrap, "transactional.id": topic})
    sender.init_transactions(TIMEOUT_S)
    sender.begin_transaction()
    for partition in SPREAD:
        sender.produce(topic, b"open", partition=partition)
    assert sender.flush(TIMEOUT_S) == 0
    yield topic
    sender.abort_transaction(TIMEOUT_S)


@pytest.mark.feature("kafka-transactions (cluster)")
def test_an_open_transaction_is_listed_and_described(three: AnyCluster, open_transaction: str) -> None:
    topic = open_transaction
    at = ("--bootstrap-server", three.bootstrap)
    listed = tool(TRANSACTIONS, *at, "list")
    assert re.search(rf"{re.escape(topic)}\s+\d+\s+\d+\s+Ongoing", listed), listed
    described = tool(TRANSACTIONS, *at, "describe", "--transactional-id", topic)
    assert "Ongoing" in described
    assert all(f"{topic}-{number}" in described for number in SPREAD)
    producers = tool(TRANSACTIONS, *at, "describe-producers", "--topic", topic, "--partition", "1")
    assert re.search(r"\d+\s+\d+\s+-?\d+\s+0\s+\d+\s+0\s*$", producers.strip()), producers
    hanging = tool(TRANSACTIONS, *at, "find-hanging", "--topic", topic)
    assert topic not in hanging


@pytest.mark.feature("kafka-producer-perf-test (cluster)")
def test_a_rolling_restart_costs_a_measuring_producer_nothing(
    three: AnyCluster, new_topic: ClusterTopic
) -> None:
    topic = new_topic(SPREAD, min_insync_replicas=2)
    said: list[str] = []
    work = ("--topic", topic, "--num-records", "30000", "--record-size", "200", "--throughput", "1000")
    properties = f"bootstrap.servers={three.bootstrap}"
    measure = (PRODUCER_PERFORMANCE, *work, "--producer-props", properties, "acks=all")
    thread = threading.Thread(target=lambda: said.append(tool(*measure)))
    thread.start()
    for broker in three.brokers:
        broker.terminate()
        broker.start()
        three.wait_in_sync([topic], len(SPREAD))
    thread.join(TIMEOUT_S * 3)
    assert said, "the measure did not end"
    assert "30000 records sent" in said[0]
    assert "Exception" not in said[0]
    total = tool(GET_OFFSETS, "--bootstrap-server", three.bootstrap, "--topic", topic).split()
    assert sum(int(row.rsplit(":", 1)[1]) for row in total) == 30_000
