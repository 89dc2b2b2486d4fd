"""Records into and out of topics, by a third-party client."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.support.waiting import PATIENCE_S


class Seen(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: dict[str, bytes]

    @property
    def json(self) -> Any:
        return json.loads(self.value or b"null")


def produce(
    bootstrap: str,
    topic: str,
    values: Iterable[Any],
    *,
    key: bytes | None = None,
    headers: Sequence[tuple[str, bytes]] = (),
) -> None:
    """Values that are not bytes are written as JSON."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for value in values:
        raw = value if isinstance(value, bytes) or value is None else json.dumps(value).encode()
        producer.produce(topic, raw, key=key, headers=list(headers))
    assert producer.flush(PATIENCE_S) == 0


def consume(bootstrap: str, topic: str) -> list[Seen]:
    """Everything that is committed in partition 0 of a topic now."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        found: list[Seen] = []
        while True:
            message = consumer.poll(PATIENCE_S)
            assert message is not None, f"{topic} neither ends nor goes on"
            if message.error() is not None:
                return found
            headers: Any = message.headers() or []  # declared as wider than what was sent
            found.append(Seen(message.key(), message.value(), dict(headers)))
    finally:
        consumer.close()
