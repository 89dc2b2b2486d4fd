"""The topics that cases only read: made once on each side, with the same names and bytes.

- `letters`: three partitions; 0 holds ten records in four batches, 1 one record, 2 nothing.
- `empty`: one partition, nothing in it.
- `trimmed`: ten records, the first four deleted.
- `stamped`: LogAppendTime.
- `packed`: one batch of each codec.
- `many`: 50 batches of about 1 KiB.
"""

from __future__ import annotations

import functools

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from barnabas.records.builder import build_batch
from barnabas.records.compression import Codec
from tests.differential.world import TIMESTAMP_MS, Side, Topic
from tests.support.wire import batch


def prepare(side: Side) -> None:
    side.learn()
    for make in (_letters, _empty, _trimmed, _stamped, _packed, _many):
        topic = make(side)
        side.shared[topic.name] = topic


def _letters(side: Side) -> Topic:
    topic = side.create_topic("letters", 3)
    for number, values in enumerate(([b"a"], [b"b", b"c", b"d"], [b"e", b"f"], [b"g", b"h", b"i", b"j"])):
        side.append(topic, batch(values, timestamp_ms=TIMESTAMP_MS + 1_000 * number))
    side.append(topic, batch([b"k"]), partition=1)
    return topic


def _empty(side: Side) -> Topic:
    return side.create_topic("empty")


def _trimmed(side: Side) -> Topic:
    topic = side.create_topic("trimmed")
    for number in range(5):
        side.append(topic, batch([b"x", b"y"], timestamp_ms=TIMESTAMP_MS + number))
    partition = DeleteRecordsPartition(partition_index=0, offset=4)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=topic.name, partitions=[partition])], timeout_ms=10_000
    )
    answer = side.ask(ApiKey.DELETE_RECORDS, 2, request, DeleteRecordsResponse)
    assert isinstance(answer, DeleteRecordsResponse)
    assert answer.topics[0].partitions[0].error_code == 0
    return topic


def _stamped(side: Side) -> Topic:
    topic = side.create_topic("stamped", configs={"message.timestamp.type": "LogAppendTime"})
    side.append(topic, batch([b"one", b"two"]))
    return topic


def _packed(side: Side) -> Topic:
    topic = side.create_topic("packed")
    for codec in Codec:
        side.append(topic, compressed(codec))
    return topic


def _many(side: Side) -> Topic:
    topic = side.create_topic("many")
    for number in range(50):
        side.append(topic, batch([bytes([number]) * 950], timestamp_ms=TIMESTAMP_MS + number))
    return topic


@functools.cache
def compressed(codec: Codec) -> bytes:
    """A batch of two records. Cached, because a gzip header may hold the time of its making."""
    records = [(b"key", b"value" * 20, (), TIMESTAMP_MS), (None, b"other" * 20, (), TIMESTAMP_MS + 1)]
    return bytes(build_batch(records, codec=codec))
