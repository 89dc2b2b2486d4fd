"""Up-conversion for old producers: messages of formats 0 and 1 (Produce v0-2) become one batch.

Conversion costs work per message. A few messages are converted on the loop. Many messages, or compressed
ones, whose count is not known, are converted in a thread while the connection waits. A megabyte of small
messages takes a second.
"""

from __future__ import annotations

import asyncio

from barnabas.core.errors import (
    CorruptMessage,
    InvalidRecord,
    KafkaError,
    MessageTooLarge,
    UnsupportedCompressionType,
)
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest
from barnabas.records.batch import ATTRIBUTES_AT, CODEC_MASK, MAGIC, MAGIC_AT
from barnabas.records.compression import Codec
from barnabas.records.legacy import convert_up
from barnabas.replication.partition.partition import Partition
from barnabas.requests.context import RequestContext

VERSION_WITH_BATCHES = 3
VERSION_WITH_ZSTD = 7
CONVERTED_INLINE_BYTES_MAX = 16 * 1024
OLD_ATTRIBUTES_AT = MAGIC_AT + 1
INFLATES_AT_MOST = 32
"""Compressed messages may inflate to this multiple of the maximum batch size: they are copied one by one."""
SHRINKS_AT_MOST = 4
"""The smallest message has 26 bytes, the smallest record of a batch has seven."""


def from_old_producer(
    data: PartitionProduceData, records: memoryview, context: RequestContext, partition: Partition
) -> memoryview:
    """Records of a producer before Produce v7. Consumers of its age may not know zstd; before v3 it knows no
    batches."""
    if not records:
        return records
    if len(records) <= MAGIC_AT:
        raise CorruptMessage("the records are truncated")
    if records[MAGIC_AT] < MAGIC:
        if context.api_version >= VERSION_WITH_BATCHES:
            raise InvalidRecord(f"Produce version {context.api_version} takes record batches of magic 2 only")
        partition.metrics.produce_conversions.value += 1
        return converted(data, context)
    if len(records) > ATTRIBUTES_AT + 1 and records[ATTRIBUTES_AT + 1] & CODEC_MASK == Codec.ZSTD:
        raise UnsupportedCompressionType("zstd needs Produce version 7 or later")
    return records


def is_long_conversion(request: ProduceRequest) -> bool:
    return any(_is_long(data.records) for topic in request.topic_data for data in topic.partition_data)


async def convert_in_a_thread(request: ProduceRequest, context: RequestContext) -> None:
    """Convert in a thread, and leave the records or the error where `converted` finds them.

    The records are already copied: this begins after the turn in which they arrived. The client's request
    quota is charged for the thread's time, like time on the loop.
    """
    context.converted = {}
    now_ms = context.broker.clock.monotonic_ms

    def convert(records: memoryview, bytes_max: int) -> tuple[memoryview | KafkaError, float]:
        begun_ms = now_ms()
        return _convert(records, bytes_max), now_ms() - begun_ms

    for topic in request.topic_data:
        bytes_max = context.broker.configs.topic_config(topic.name).max_message_bytes
        for data in topic.partition_data:
            if isinstance(data.records, memoryview) and _is_old(data.records):
                made, took_ms = await asyncio.to_thread(convert, data.records, bytes_max)
                context.converted[id(data)] = made
                context.spent_ms += took_ms


def batch_of(data: PartitionProduceData, context: RequestContext) -> memoryview:
    """The records as a batch, as far as they are one already: as they were sent, or as a thread made it."""
    assert isinstance(data.records, memoryview)
    known = (context.converted or {}).get(id(data))
    return known if isinstance(known, memoryview) else data.records


def converted(data: PartitionProduceData, context: RequestContext) -> memoryview:
    """The records of `data` as one batch."""
    assert isinstance(data.records, memoryview)
    known: memoryview | KafkaError | None = (context.converted or {}).get(id(data))
    if known is None:
        return memoryview(convert_up(data.records))
    if isinstance(known, KafkaError):
        raise known
    return known


def _convert(records: memoryview, bytes_max: int) -> memoryview | KafkaError:
    try:
        if len(records) > SHRINKS_AT_MOST * bytes_max:
            raise MessageTooLarge(f"{len(records)} bytes of messages exceed the maximum of {bytes_max}")
        return memoryview(convert_up(records, limit_bytes=INFLATES_AT_MOST * bytes_max))
    except KafkaError as error:
        return error
    except Exception as error:  # noqa: BLE001 - answered like any other fault of these bytes
        return CorruptMessage(f"the messages cannot be read: {type(error).__name__}")


def _is_long(records: object) -> bool:
    if not isinstance(records, memoryview) or not _is_old(records):
        return False
    return len(records) > CONVERTED_INLINE_BYTES_MAX or bool(records[OLD_ATTRIBUTES_AT] & CODEC_MASK)


def _is_old(records: memoryview) -> bool:
    return len(records) > OLD_ATTRIBUTES_AT and records[MAGIC_AT] < MAGIC
