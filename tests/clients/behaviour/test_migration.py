"""The migration tables of docs/CLIENT.md: every name in them exists, on both sides.

What the names do is compared by `test_behaviour`.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import barnabas.client
from barnabas.client import Consumer, Producer, RebalanceListener, sync
from barnabas.client.config.consumer_keys import CONSUMER_KEYS
from barnabas.client.producer.delivery import Delivery

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "CLIENT.md").read_text(encoding="utf-8")
OURS = (
    barnabas.client,
    sync,
    Consumer,
    Producer,
    sync.Consumer,
    sync.Producer,
    RebalanceListener,
    Delivery,
    {each.replace(".", "_"): None for each in CONSUMER_KEYS},
)
WORDS = {"async", "await", "with", "for", "in", "f", "record", "message", "Consumer", "Producer", "sync"}


def rows(client: str) -> list[tuple[str, str]]:
    table = PAGE.split(f"| {client} | here |\n|---|---|\n")[1].split("\n\n")[0]
    found = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table.splitlines()]
    return [(left, right) for left, right in found]


def names(cell: str) -> list[str]:
    """Names of calls and classes in the code of a cell."""
    code = " ".join(re.findall(r"`([^`]+)`", cell))
    called = re.findall(r"\b(?:[a-zA-Z_]+\.)?([a-zA-Z_]+)\(", code)
    bare = re.findall(r"^\w+$", "\n".join(re.findall(r"`([^`]+)`", cell)), re.MULTILINE)
    return [each for each in (*called, *bare) if each not in WORDS]


def exists(name: str, places: tuple[object, ...]) -> bool:
    return any(name in place if isinstance(place, dict) else hasattr(place, name) for place in places)


def theirs(client: str) -> tuple[object, ...]:
    if client == "aiokafka":
        import aiokafka
        import aiokafka.errors

        return (
            aiokafka,
            aiokafka.errors,
            aiokafka.AIOKafkaConsumer,
            aiokafka.AIOKafkaProducer,
            aiokafka.ConsumerRebalanceListener,
        )
    if client == "kafka-python":
        import kafka
        from kafka.producer.future import FutureRecordMetadata

        consumer = dict.fromkeys(kafka.KafkaConsumer.DEFAULT_CONFIG)
        return kafka, kafka.KafkaConsumer, kafka.KafkaProducer, FutureRecordMetadata, consumer
    import confluent_kafka
    import confluent_kafka.aio

    parts = (confluent_kafka.Consumer, confluent_kafka.Producer, confluent_kafka.Message)
    return confluent_kafka, confluent_kafka.aio, *parts


@pytest.mark.parametrize("client", ["aiokafka", "confluent-kafka", "kafka-python"])
def test_every_name_of_a_row_exists(client: str) -> None:
    places = theirs(client)
    for left, right in rows(client):
        for name in names(left):
            assert exists(name, places), f"{client} has no {name}: {left}"
        for name in names(right):
            assert exists(name, OURS), f"there is no {name}: {right}"
