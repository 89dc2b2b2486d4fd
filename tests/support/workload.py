"""Records of every kind into one partition, and a reader that checks them all.

Every codec, plain and idempotent producers, keys, headers, tombstones, and enough of it that segments of one
megabyte roll. The log must hold exactly the acknowledged records.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SEGMENT_BYTES = 1 << 20
TIMEOUT_S = 60.0
BEGUN_MS = time.time_ns() // 1_000_000 - 60_000
"""Recent, or brokers would forget the producers (producer.id.expiration.ms)."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A record at the offset at which it was acknowledged, or read."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int

    @classmethod
    def of(cls, message: Message) -> Stored:
        given: Any = message.headers() or ()  # declared as wider than what was sent
        offset, stamp = message.offset(), message.timestamp()[1]
        assert offset is not None
        return cls(
            offset, message.key(), message.value(), tuple((name, value) for name, value in given), stamp
        )


def write_mixture(
    bootstrap: str,
    topic: str,
    *,
    rounds: int = 2,
    seed: int = 1,
    idempotence: Sequence[bool] = (False, True),
) -> list[Stored]:
    """About 2 MB a round, in offset order."""
    chance = random.Random(seed)
    stored: list[Stored] = []
    for number in range(rounds):
        for codec in CODECS:
            for idempotent in idempotence:
                stored += _write_some(bootstrap, topic, codec, idempotent, number, chance)
    return sorted(stored, key=lambda record: record.offset)


def _write_some(
    bootstrap: str, topic: str, codec: str, idempotent: bool, number: int, chance: random.Random
) -> list[Stored]:
    settings = {"compression.type": codec, "enable.idempotence": idempotent, "batch.num.messages": 40}
    sender = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, **settings})
    stored: list[Stored] = []
    headers_of = {b"%s-%d-%d" % (codec.encode(), number, i): _headers(i) for i in range(200)}

    def delivered(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        key, offset = message.key(), message.offset()
        assert key is not None
        assert offset is not None
        stored.append(Stored(offset, key, message.value(), headers_of[key], message.timestamp()[1]))

    for i, (key, headers) in enumerate(headers_of.items()):
        value = None if i % 50 == 49 else chance.randbytes(chance.randrange(1, 2_000))
        stamp = BEGUN_MS + 1_000 * number + i
        sender.produce(
            topic, value, key, partition=0, on_delivery=delivered, timestamp=stamp, headers=list(headers)
        )
        sender.poll(0)
    assert sender.flush(TIMEOUT_S) == 0
    return stored


def _headers(i: int) -> tuple[tuple[str, bytes | None], ...]:
    return (("index", b"%d" % i), ("nothing", None)) if i % 3 == 0 else ()


def read_all(bootstrap: str, topic: str, partition: int = 0, **settings: Any) -> list[Stored]:
    """The whole partition, CRCs checked by the client."""
    receiver = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reads-all",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "check.crcs": True,
            "fetch.wait.max.ms": 50,
            **settings,
        }
    )
    read: list[Stored] = []
    try:
        receiver.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
        while True:
            message = receiver.poll(TIMEOUT_S)
            assert message is not None, f"neither a record nor the end after {len(read)} records"
            error = message.error()
            if error is None:
                read.append(Stored.of(message))
            elif error.code() == KafkaError._PARTITION_EOF:
                return read
            else:
                raise KafkaException(message.error())
    finally:
        receiver.close()


def assert_same(read: Sequence[Stored], written: Sequence[Stored]) -> None:
    """Equality whose failure names the first difference rather than printing megabytes."""
    for mine, theirs in zip(read, written, strict=False):
        assert mine.offset == theirs.offset, f"offset {mine.offset} where {theirs.offset} was acknowledged"
        assert mine == theirs, f"the record at offset {mine.offset} differs"
    assert len(read) == len(written)
