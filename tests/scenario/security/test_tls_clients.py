"""Clients of three makes over TLS with certificates of their own, and what clients are refused for."""

from __future__ import annotations

import asyncio
import datetime as dt
import ssl
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trustme
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer, KafkaProducer

from barnabas.testing.broker import run_broker
from tests.support.broker import BarnabasBroker
from tests.support.waiting import ATTEMPT_S, PATIENCE_S, eventually

MESSAGES = [b"%05d" % number + b"x" * 20_000 for number in range(300)]


class TlsBroker(BarnabasBroker):
    @property
    def command(self) -> list[str]:
        command = [sys.executable, "-m", "barnabas", "start", "--data-dir", str(self.data_directory)]
        settings = {"listeners": f"SSL://{self.bootstrap}", **self._settings}
        return command + [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]


@dataclass
class Cluster:
    broker: TlsBroker
    authority: trustme.CA
    directory: Path

    @property
    def ca(self) -> str:
        return str(self.directory / "ca.pem")

    def issue(self, name: str, **options: Any) -> str:
        """A key and its chain in one file."""
        path = self.directory / f"{name}.pem"
        issued = self.authority.issue_cert("127.0.0.1", common_name=name, **options)
        issued.private_key_and_cert_chain_pem.write_to_path(str(path))
        return str(path)

    def confluent(self, certificate: str | None, **options: Any) -> dict[str, Any]:
        own = ("ssl.certificate.location", "ssl.key.location")
        shown = {} if certificate is None else dict.fromkeys(own, certificate)
        return {
            "bootstrap.servers": self.broker.bootstrap,
            "security.protocol": "SSL",
            "ssl.ca.location": self.ca,
            "log_level": 0,
            **shown,
            **options,
        }


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(directory / "ca.pem"))
    broker = TlsBroker(
        directory / "data",
        settings={
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": directory / "broker.pem",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": directory / "ca.pem",
            "ssl.client.auth": "required",
        },
    )
    made = Cluster(broker, authority, directory)
    made.issue("broker")
    try:
        broker.start()
        yield made
    finally:
        broker.stop()


def send_by_confluent(cluster: Cluster, topic: str) -> None:
    failed: list[object] = []

    def note(error: object, _: object) -> None:
        if error is not None:
            failed.append(error)

    producer = Producer(cluster.confluent(cluster.issue("alice")))
    for message in MESSAGES:
        producer.produce(topic, message, partition=0, on_delivery=note)
    assert producer.flush(PATIENCE_S) == 0
    assert failed == []


def test_librdkafka(cluster: Cluster) -> None:
    send_by_confluent(cluster, "confluent")
    consumer = Consumer(
        cluster.confluent(cluster.issue("alice"), **{"group.id": "g", "auto.offset.reset": "earliest"})
    )
    consumer.subscribe(["confluent"])
    seen: list[bytes | None] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(seen) < len(MESSAGES) and time.monotonic() < deadline:
        seen += [message.value() for message in consumer.consume(500, 1.0)]
    consumer.close()
    assert seen == MESSAGES


def test_kafka_python(cluster: Cluster) -> None:
    certificate = cluster.issue("bob")
    secured = {
        "bootstrap_servers": cluster.broker.bootstrap,
        "security_protocol": "SSL",
        "ssl_cafile": cluster.ca,
        "ssl_certfile": certificate,
        "ssl_keyfile": certificate,
    }
    producer = KafkaProducer(**secured)
    for sent in [producer.send("kafka-python", message, partition=0) for message in MESSAGES]:
        sent.get(PATIENCE_S)
    producer.close()
    consumer = KafkaConsumer(
        "kafka-python", auto_offset_reset="earliest", consumer_timeout_ms=int(PATIENCE_S * 1_000), **secured
    )
    seen = [next(consumer).value for _ in MESSAGES]
    consumer.close()
    assert seen == MESSAGES


async def test_aiokafka(cluster: Cluster) -> None:
    context = ssl.create_default_context(cafile=cluster.ca)
    context.load_cert_chain(cluster.issue("carol"))
    secured = {
        "bootstrap_servers": cluster.broker.bootstrap,
        "security_protocol": "SSL",
        "ssl_context": context,
    }
    async with AIOKafkaProducer(**secured) as producer:
        for message in MESSAGES:
            await producer.send("aiokafka", message, partition=0)
    async with AIOKafkaConsumer("aiokafka", auto_offset_reset="earliest", **secured) as consumer:
        async with asyncio.timeout(PATIENCE_S):
            seen = [(await consumer.getone()).value for _ in MESSAGES]
    assert seen == MESSAGES


def assert_refused(cluster: Cluster, settings: dict[str, Any], reason: str) -> None:
    """A client does not get in, and the log of the broker says why."""
    before = cluster.broker.output_text().count(reason)
    client = AdminClient(settings)
    with pytest.raises(KafkaException):
        client.list_topics(timeout=1)
    # The client connects again and again, also after its call has timed out.
    eventually(
        lambda: cluster.broker.output_text().count(reason) > before, reason, report=cluster.broker.output_text
    )
    with pytest.raises(KafkaException):
        client.list_topics(timeout=1)


def test_a_listener_with_a_name_is_told_by_its_name(tmp_path: Path) -> None:
    """Clients compare the broker's certificate with the configured address, and this one has none."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    own = authority.issue_cert("localhost")
    own.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "broker.pem"))
    settings = {"listeners": "SSL://localhost:0", "ssl.keystore.location": str(tmp_path / "broker.pem")}
    with run_broker(settings) as broker:
        assert broker.bootstrap.startswith("localhost:")
        producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "security.protocol": "SSL",
                "ssl.ca.location": str(tmp_path / "ca.pem"),
                "ssl.endpoint.identification.algorithm": "https",
                "log_level": 0,
            }
        )
        producer.produce("named", b"x")
        assert producer.flush(PATIENCE_S) == 0


def test_who_shows_no_certificate_is_refused(cluster: Cluster) -> None:
    assert_refused(cluster, cluster.confluent(None), "the client sent no certificate")


def test_a_certificate_of_another_authority_is_refused(cluster: Cluster) -> None:
    path = cluster.directory / "mallory.pem"
    stranger = trustme.CA().issue_cert("127.0.0.1", common_name="mallory")
    stranger.private_key_and_cert_chain_pem.write_to_path(str(path))
    assert_refused(cluster, cluster.confluent(str(path)), "the client's certificate is not accepted")


def test_a_certificate_that_has_expired_is_refused(cluster: Cluster) -> None:
    yesterday = dt.datetime.now(dt.UTC) - dt.timedelta(days=1)
    expired = cluster.issue("late", not_after=yesterday)
    assert_refused(cluster, cluster.confluent(expired), "certificate has expired")


def test_a_client_that_does_not_know_the_authority_refuses(cluster: Cluster) -> None:
    other = cluster.directory / "other-ca.pem"
    trustme.CA().cert_pem.write_to_path(str(other))
    settings = cluster.confluent(cluster.issue("alice")) | {"ssl.ca.location": str(other)}
    assert_refused(cluster, settings, "the client refused the handshake")


def test_certificates_change_under_load_without_a_failed_produce(cluster: Cluster) -> None:
    """One connection writes before, while and after the listener changes; new connections get in, too."""
    failed: list[object] = []
    sent, delivered = 0, 0

    def note(error: object, _: object) -> None:
        nonlocal delivered
        if error is not None:
            failed.append(error)
        delivered += 1

    def renewals() -> int:
        return cluster.broker.output_text().count("the listener SSL has new certificates")

    settings = cluster.confluent(cluster.issue("alice"))
    producer = Producer(settings | {"retries": 0, "linger.ms": 0})

    def write_until(holds: Callable[[], bool]) -> None:
        def writes() -> bool:
            nonlocal sent
            producer.produce("renewal", b"x", on_delivery=note)
            producer.poll(0)
            sent += 1
            return holds()

        eventually(writes, report=cluster.broker.output_text)

    before = renewals()
    write_until(lambda: delivered > 10)
    cluster.issue("broker")
    write_until(lambda: renewals() > before)
    sent_before = sent
    write_until(lambda: delivered > sent_before + 10)
    eventually(lambda: AdminClient(settings).list_topics(timeout=ATTEMPT_S))
    assert producer.flush(PATIENCE_S) == 0
    assert renewals() == before + 1
    assert failed == []
