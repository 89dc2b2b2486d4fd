"""Clients that push their metrics (KIP-714): librdkafka and Java, and Kafka's tool for subscriptions."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from barnabas.client.admin.admin import Admin
from barnabas.protocol.config_numbers import ResourceType
from barnabas.testing.broker import RunningBroker, run_broker
from tests.clients.matrix import TOOLS
from tests.clients.tools import CLIENT_METRICS, PRODUCER_PERFORMANCE, tool
from tests.peers.kafka import require_kafka
from tests.support.waiting import eventually

INTERVAL_MS = 200


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with run_broker() as running:
        yield running


def reported(broker: RunningBroker, client_id: str) -> str:
    """Lines of the metrics page with what the client says of itself."""
    shown = f'client_id="{client_id}"'
    lines = broker.metrics_text().splitlines()
    return "\n".join(each for each in lines if each.startswith("barnabas_client_rep") and shown in each)


@pytest.mark.client("confluent-kafka")
async def test_librdkafka_pushes_what_is_asked_for(broker: RunningBroker) -> None:
    settings: dict[str, str | None] = {
        "metrics": "org.apache.kafka.producer.",
        "interval.ms": str(INTERVAL_MS),
        "match": "client_id=asked.*,client_software_name=confluent-kafka-python",
    }
    async with Admin(broker.bootstrap) as admin:
        await admin.alter_configs({(ResourceType.CLIENT_METRICS, "rdkafka"): settings})
    clients = [
        Producer({"bootstrap.servers": broker.bootstrap, "client.id": name}) for name in ("asked-1", "other")
    ]

    def is_reported() -> bool:
        for client in clients:
            client.produce("measured", b"x")
            client.poll(0.05)
        return "org.apache.kafka.producer.node.request.latency" in reported(broker, "asked-1")

    eventually(is_reported)
    assert 'client_software="confluent-kafka-python' in reported(broker, "asked-1")
    assert not reported(broker, "other")
    for client in clients:
        client.flush()


@pytest.mark.client(TOOLS)
@pytest.mark.java
@pytest.mark.slow
def test_kafkas_tool_subscribes_and_java_pushes(broker: RunningBroker, tmp_path: Path) -> None:
    require_kafka()
    server = ("--bootstrap-server", broker.bootstrap)
    interval = ("--interval", str(INTERVAL_MS), "--metrics", "*", "--match", "client_id=java.*")
    tool(CLIENT_METRICS, *server, "--alter", "--name", "java", *interval)
    assert "java" in tool(CLIENT_METRICS, *server, "--list").split()
    described = tool(CLIENT_METRICS, *server, "--describe", "--name", "java")
    assert f"interval.ms={INTERVAL_MS}" in described
    assert "match=client_id=java.*" in described
    throughput = ("--throughput", "20", "--num-records", "200", "--record-size", "10")
    properties = tmp_path / "producer.properties"
    properties.write_text(f"bootstrap.servers={broker.bootstrap}\nclient.id=java-1\n")
    errors: list[BaseException] = []

    def produce() -> None:
        try:
            tool(
                PRODUCER_PERFORMANCE, "--topic", "measured", *throughput, "--producer.config", str(properties)
            )
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        eventually(
            lambda: (
                "org.apache.kafka.producer.record.queue.time.avg" in reported(broker, "java-1")
                or bool(errors)
            )
        )
    finally:
        thread.join()
    assert not errors
    tool(CLIENT_METRICS, *server, "--delete", "--name", "java")
    assert "java" not in tool(CLIENT_METRICS, *server, "--list").split()
