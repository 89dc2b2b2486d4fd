"""Three brokers that speak SASL inside TLS only, with rules: their certificates change one by one."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from cryptography.x509 import load_der_x509_certificate

from tests.scenario.cluster.conftest import SETTINGS
from tests.support.cluster import Cluster, ClusterBroker
from tests.support.secured_cluster import PROTOCOL, Security
from tests.support.waiting import ATTEMPT_S
from tests.support.zookeeper import ZooKeeper

TOPIC = "steady"
TIMEOUT_S = 120.0


@pytest.fixture
def security(tmp_path: Path) -> Security:
    return Security(tmp_path / "certificates", [ClusterBroker.host])


@pytest.fixture
def secured(security: Security, tmp_path: Path, zookeeper_server: ZooKeeper) -> Iterator[Cluster]:
    zookeeper = zookeeper_server.chroot()
    brokers = [
        ClusterBroker(
            number,
            tmp_path / f"broker-{number}",
            zookeeper,
            {**SETTINGS, **security.settings(number)},
            protocol=PROTOCOL,
        )
        for number in (1, 2, 3)
    ]
    cluster = Cluster(brokers, zookeeper)
    try:
        cluster.start()
        security.let_the_client_do_everything(cluster.bootstrap)
        yield cluster
    finally:
        cluster.kill()


def shown_serial(broker: ClusterBroker) -> int:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with (
        socket.create_connection((broker.host, broker.port), TIMEOUT_S) as sock,
        context.wrap_socket(sock) as tls,
    ):
        certificate = tls.getpeercert(binary_form=True)
    assert certificate is not None
    return load_der_x509_certificate(certificate).serial_number


@pytest.mark.timeout(600)
def test_no_produce_fails_while_certificates_change(secured: Cluster, security: Security) -> None:
    properties = dict(security.reach(secured.bootstrap).properties)
    admin = AdminClient(properties)
    admin.create_topics([NewTopic(TOPIC, 3, 3)])[TOPIC].result(TIMEOUT_S)
    failed: list[KafkaError] = []
    sent = 0

    def note(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failed.append(error)

    producer = Producer({**properties, "enable.idempotence": True, "linger.ms": 0})

    def writes_until_shown(broker: ClusterBroker, serial: int) -> bool:
        nonlocal sent
        for _ in range(20):
            producer.produce(TOPIC, b"x", on_delivery=note)
            producer.poll(0.005)
            sent += 1
        return shown_serial(broker) == serial

    for broker in secured.brokers:
        serial = security.issue(broker.id)
        secured.wait_for(partial(writes_until_shown, broker, serial), TIMEOUT_S)
    # A client that returns connects again, with its own certificate, to brokers that have new certificates.
    secured.brokers[0].restart()
    secured.wait_for(lambda: is_whole(admin), TIMEOUT_S)
    assert producer.flush(TIMEOUT_S) == 0
    assert failed == []
    assert sum(ends(properties)) == sent


def is_whole(admin: AdminClient) -> bool:
    partitions = admin.list_topics(TOPIC, timeout=ATTEMPT_S).topics[TOPIC].partitions.values()
    return all(len(each.isrs) == 3 for each in partitions)


def ends(properties: dict[str, object]) -> list[int]:
    consumer = Consumer({**properties, "group.id": "ends"})
    try:
        return [
            consumer.get_watermark_offsets(TopicPartition(TOPIC, number), timeout=TIMEOUT_S)[1]
            for number in range(3)
        ]
    finally:
        consumer.close()
