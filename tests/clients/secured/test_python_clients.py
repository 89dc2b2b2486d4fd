"""Python's clients over TLS, with a certificate and with each mechanism: administer, write, read in a group,
commit a transaction; and authenticate again."""

from __future__ import annotations

import time
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider as AioTokenProvider
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewTopic as AioNewTopic
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.admin import NewTopic as PythonNewTopic
from kafka.net.sasl.oauth import AbstractTokenProvider

from tests.clients.secured.broker import BEARER, LOGINS, PLAIN, PREFIX, SESSION_MS, TIMEOUT_S, Secured

VALUES = [b"%d" % number for number in range(20)]
with_each_login = pytest.mark.parametrize("login", LOGINS)


def name_for(client: str, login: str) -> str:
    return f"{PREFIX}-{client}-{login.lower()}"


def make_topic(properties: dict[str, Any], name: str) -> None:
    admin = AdminClient(properties)  # which lives until the answer is there
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(TIMEOUT_S)


@with_each_login
def test_confluent(secured: Secured, login: str) -> None:
    properties, name = secured.confluent(login), name_for("confluent", login)
    make_topic(properties, name)
    producer = Producer({**properties, "transactional.id": name})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    for value in VALUES:
        producer.produce(name, value)
    producer.commit_transaction(TIMEOUT_S)
    consumer = Consumer({**properties, "group.id": name, "auto.offset.reset": "earliest"})
    consumer.subscribe([name])
    read = consumer.consume(len(VALUES), TIMEOUT_S)
    consumer.commit(asynchronous=False)
    consumer.close()
    assert [message.value() for message in read] == VALUES


@with_each_login
def test_confluent_is_denied_what_no_rule_allows(secured: Secured, login: str) -> None:
    admin = AdminClient(secured.confluent(login))
    with pytest.raises(KafkaException) as raised:
        admin.create_topics([NewTopic("elsewhere", 1, 1)])["elsewhere"].result(TIMEOUT_S)
    assert raised.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


@with_each_login
def test_kafka_python(secured: Secured, login: str) -> None:
    class Tokens(AbstractTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            return secured.token()[0]

    arguments, name = secured.python(login), name_for("python", login)
    if login == BEARER:
        arguments["sasl_oauth_token_provider"] = Tokens()
    admin = KafkaAdminClient(**arguments)
    admin.create_topics([PythonNewTopic(name, 1, 1)])
    admin.close()
    producer = KafkaProducer(**arguments, transactional_id=name)
    producer.init_transactions()
    producer.begin_transaction()
    for value in VALUES:
        producer.send(name, value)
    producer.commit_transaction()
    producer.close()
    consumer = KafkaConsumer(name, **arguments, group_id=name, auto_offset_reset="earliest")
    assert [next(consumer).value for _ in VALUES] == VALUES
    consumer.commit()
    consumer.close()


@with_each_login
async def test_aiokafka(secured: Secured, login: str) -> None:
    class Tokens(AioTokenProvider):  # type: ignore[misc]
        async def token(self) -> str:
            return secured.token()[0]

    arguments, name = secured.python(login), name_for("aiokafka", login)
    if login == BEARER:
        arguments["sasl_oauth_token_provider"] = Tokens()
    admin = AIOKafkaAdminClient(**arguments)
    await admin.start()
    await admin.create_topics([AioNewTopic(name, 1, 1)])
    await admin.close()
    async with (
        AIOKafkaProducer(**arguments, transactional_id=name) as producer,
        producer.transaction(),
    ):
        for value in VALUES:
            await producer.send(name, value)
    consumer = AIOKafkaConsumer(name, **arguments, group_id=name, auto_offset_reset="earliest")
    async with consumer:
        assert [(await consumer.getone()).value for _ in VALUES] == VALUES
        await consumer.commit()


def test_sessions_are_prolonged_with_each_mechanism(secured: Secured) -> None:
    """KIP-368: librdkafka authenticates again before a session ends, and no message fails."""
    name = f"{PREFIX}-sessions"
    make_topic(secured.confluent(PLAIN), name)
    before = counted(secured, "kafka_successful_reauthentication_total")
    expired = counted(secured, "kafka_expired_connections_killed_total")
    failed: list[Any] = []
    producers = [Producer(secured.confluent(login) | {"linger.ms": 1}) for login in LOGINS[1:]]
    until_s = time.monotonic() + TIMEOUT_S
    while counted(secured, "kafka_successful_reauthentication_total") < before + 3 * len(producers):
        assert time.monotonic() < until_s, "nobody authenticates again"
        for producer in producers:
            producer.produce(name, b"x", on_delivery=lambda error, _: failed.append(error) if error else None)
            producer.poll(SESSION_MS / 100_000)
    for producer in producers:
        assert producer.flush(TIMEOUT_S) == 0
    assert failed == []
    assert counted(secured, "kafka_expired_connections_killed_total") == expired


def counted(secured: Secured, metric: str) -> float:
    lines = secured.running.metrics_text().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(metric))
