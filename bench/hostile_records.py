"""Records that make a broker work: many partitions, many batches, old formats, what inflates."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

from barnabas.protocol.messages import produce
from barnabas.protocol.schema.headers import encode_request
from barnabas.records.builder import build_batch
from barnabas.records.compression import Codec, compress

MEGABYTE = 1 << 20


def framed(version: int, partitions: dict[int, bytes], topic: str) -> bytes:
    data = produce.TopicProduceData(
        name=topic,
        partition_data=[
            produce.PartitionProduceData(index=index, records=records)
            for index, records in partitions.items()
        ],
    )
    request = produce.ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[data])
    body = b"".join(bytes(part) for part in encode_request(0, version, 1, "bench", request))  # type: ignore[arg-type]
    return struct.pack(">i", len(body)) + body


def old_message(value: bytes, codec: int = 0) -> bytes:
    body = bytes((0, codec)) + struct.pack(">ii", -1, len(value)) + value
    return struct.pack(">qiI", 0, 4 + len(body), zlib.crc32(body)) + body


def record_frames(topic: str) -> Iterator[tuple[int, str, bytes]]:
    one = bytes(build_batch([(None, b"v", (), 1_700_000_000_000)]))
    large = bytes(build_batch([(None, b"v" * (MEGABYTE // 10), (), 1_700_000_000_000)]))
    yield 9, "1,000 partitions, a record each", framed(9, dict.fromkeys(range(1_000), one), topic)
    yield 9, "950 partitions, 100 KB each", framed(9, dict.fromkeys(range(950), large), topic)
    yield (
        9,
        "one batch of 90 MB",
        framed(9, {0: bytes(build_batch([(None, bytes(90 * MEGABYTE), (), 0)]))}, topic),
    )
    yield 9, "1,000,000 batches in one partition", framed(9, {0: one * 1_000_000}, topic)
    small = old_message(b"v")
    yield 2, "30,000 old messages", framed(2, {0: small * 30_000}, topic)
    yield 2, "3,000,000 old messages", framed(2, {0: small * 3_000_000}, topic)
    zeros = old_message(bytes(200 * MEGABYTE))
    yield 2, "an old wrapper of 200 MB", framed(2, {0: old_message(compress(Codec.GZIP, zeros), 1)}, topic)
    inner = b"".join([small] * 100_000)
    yield 2, "an old wrapper of 100,000", framed(2, {0: old_message(compress(Codec.GZIP, inner), 1)}, topic)
