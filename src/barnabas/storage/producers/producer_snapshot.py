"""`.snapshot`: the producer state at an offset, so that a start need not read the whole log.

Kafka's version 1 holds one batch per producer, the last. A retry of an older one would then
be refused after a restart, although it was written. So the other remembered batches follow
behind the entries, where Kafka's reader does not look and which its checksum covers all the
same: a snapshot written here opens there, and one written there opens here with one batch
per producer.

    version i16 = 1 | CRC-32C u32 of the rest | count i32 | entries | "BRNB" | earlier batches

`earlier batches` has, for each producer in order, a count (u8) and the batches, oldest first.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from barnabas.records.checksum import crc32c
from barnabas.storage.producers.producer_entry import BATCHES_REMEMBERED, BatchMetadata, ProducerEntry

VERSION = 1
EARLIER = b"BRNB"

_HEAD = struct.Struct(">hIi")
_ENTRIES_AT = 6
_ENTRY = struct.Struct(">qhiqiqiq")
_BATCH = struct.Struct(">iqiq")


class CorruptSnapshot(Exception):
    """The file is not a producer snapshot, or not a whole one."""


def render_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    producers = list(entries)
    content = bytearray(_HEAD.pack(VERSION, 0, len(producers)))
    for entry in producers:
        last = entry.batches[-1] if entry.batches else None
        content += _ENTRY.pack(
            entry.producer_id,
            entry.producer_epoch,
            entry.last_sequence,
            entry.last_data_offset,
            last.offset_delta if last else 0,
            entry.last_timestamp,
            entry.coordinator_epoch,
            entry.current_txn_first_offset,
        )
    if producers:
        content += EARLIER
    for entry in producers:
        earlier = entry.batches[:-1]
        # The last batch's own timestamp can differ from the entry's, which a marker moves on.
        last_timestamp = entry.batches[-1:]
        content.append(len(earlier) + len(last_timestamp))
        for batch in (*earlier, *last_timestamp):
            content += _BATCH.pack(*batch)
    struct.pack_into(">I", content, 2, crc32c(memoryview(content)[_ENTRIES_AT:]))
    return bytes(content)


def parse_snapshot(content: bytes) -> list[ProducerEntry]:
    try:
        version, crc, count = _HEAD.unpack_from(content, 0)
        if version != VERSION:
            raise CorruptSnapshot(f"version {version} is unknown")
        if crc != crc32c(memoryview(content)[_ENTRIES_AT:]):
            raise CorruptSnapshot("the checksum does not fit")
        position = _HEAD.size
        producers = []
        for _ in range(count):
            producers.append(_entry(_ENTRY.unpack_from(content, position)))
            position += _ENTRY.size
        if content[position : position + len(EARLIER)] == EARLIER:
            _add_earlier_batches(content, position + len(EARLIER), producers)
    except (struct.error, IndexError):
        raise CorruptSnapshot("it ends early") from None
    return producers


def _entry(fields: tuple[int, ...]) -> ProducerEntry:
    producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, txn_first_offset = fields
    return ProducerEntry(
        producer_id,
        producer_epoch=epoch,
        coordinator_epoch=coordinator_epoch,
        last_timestamp=timestamp,
        current_txn_first_offset=txn_first_offset,
        batches=[BatchMetadata(sequence, offset, delta, timestamp)] if offset >= 0 else [],
    )


def _add_earlier_batches(content: bytes, position: int, producers: list[ProducerEntry]) -> None:
    for entry in producers:
        count = content[position]
        position += 1
        if count > BATCHES_REMEMBERED:
            raise CorruptSnapshot(f"{count} batches of one producer")
        batches = []
        for _ in range(count):
            batches.append(BatchMetadata(*_BATCH.unpack_from(content, position)))
            position += _BATCH.size
        entry.batches = batches
