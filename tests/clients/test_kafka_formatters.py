"""Kafka's console consumer with the formatters that show the records of internal topics: groups, offsets and
transactions as Kafka's own code reads them. `--broker kafka` shows what it says of Kafka's."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.clients.matrix import TOOLS
from tests.clients.test_confluent_transactions import TIMEOUT_S, produce, transactional
from tests.clients.tools import CONSOLE_CONSUMER
from tests.peers.kafka import require_kafka, run_kafka_tool

FORMATTERS = "org.apache.kafka.tools.consumer"
QUIET_MS = "8000"

pytestmark = [
    pytest.mark.client(TOOLS),
    pytest.mark.java,
    pytest.mark.slow,
    pytest.mark.compatibility,
    pytest.mark.feature("kafka-console-consumer"),
    pytest.mark.xdist_group("kafka-tools"),
]


@pytest.fixture(autouse=True)
def _kafka() -> None:
    require_kafka()


def records_of(bootstrap: str, topic: str, formatter: str) -> list[dict[str, Any]]:
    """Every record of an internal topic that the formatter shows."""
    done = run_kafka_tool(
        CONSOLE_CONSUMER,
        *("--bootstrap-server", bootstrap, "--topic", topic, "--from-beginning", "--timeout-ms", QUIET_MS),
        *("--formatter", f"{FORMATTERS}.{formatter}"),
    )
    found, text = [], done.stdout
    while (start := text.find('{"key"')) >= 0:
        record, end = json.JSONDecoder().raw_decode(text[start:])
        found.append(record)
        text = text[start + end :]
    return found


def test_groups_and_their_offsets_are_read(bootstrap: str, topic: str) -> None:
    group = f"formatted-{uuid.uuid4()}"
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "client.id": "shown", "enable.auto.commit": False}
    )
    try:
        consumer.subscribe([topic])
        while not consumer.assignment():
            consumer.poll(0.1)
        consumer.commit(offsets=[TopicPartition(topic, 0, 42, metadata="noted")], asynchronous=False)
    finally:
        consumer.close()
    offsets = records_of(bootstrap, "__consumer_offsets", "OffsetsMessageFormatter")
    (shown,) = [each for each in offsets if each["key"]["data"]["group"] == group]
    assert shown["key"]["data"] == {"group": group, "topic": topic, "partition": 0}
    assert shown["value"]["data"]["offset"] == 42
    assert shown["value"]["data"]["metadata"].rstrip("\0") == "noted"  # librdkafka's binding adds a NUL
    groups = records_of(bootstrap, "__consumer_offsets", "GroupMetadataMessageFormatter")
    values = [each["value"]["data"] for each in groups if each["key"]["data"]["group"] == group]
    stable = [each for each in values if each["members"]]
    assert stable, values
    assert stable[-1]["protocolType"] == "consumer"
    assert stable[-1]["members"][0]["clientId"] == "shown"
    assert values[-1]["members"] == []


def test_transactions_are_read(bootstrap: str, topic: str) -> None:
    transactional_id = f"formatted-{uuid.uuid4()}"
    producer = transactional(bootstrap, transactional_id)
    producer.begin_transaction()
    produce(producer, topic, ["x"])
    producer.commit_transaction(TIMEOUT_S)
    records = records_of(bootstrap, "__transaction_state", "TransactionLogMessageFormatter")
    mine = [
        each["value"]["data"]
        for each in records
        if each["key"]["data"]["transactionalId"] == transactional_id
    ]
    statuses = [each["transactionStatus"] for each in mine]
    empty, ongoing, prepare_commit, complete_commit = 0, 1, 2, 4
    assert statuses == [empty, ongoing, prepare_commit, complete_commit]
    assert mine[1]["transactionPartitions"] == [{"topic": topic, "partitionIds": [0]}]
    assert {each["producerId"] for each in mine} == {mine[0]["producerId"]}
