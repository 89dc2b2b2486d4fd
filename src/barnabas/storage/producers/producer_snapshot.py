"""Producer snapshots (`.snapshot`): the producer state at an offset, so that a start reads less of the log.

Kafka's version 1 holds one batch per producer, the last. After a restart, the retry of an earlier batch would
be refused, although that batch was written. So the earlier batches follow after the entries. Kafka's reader
ignores them, and its checksum covers them. Apache Kafka opens snapshots of this broker, and this broker opens
Apache Kafka's, with one batch per producer.

    version i16 = 1 | CRC-32C u32 of the rest | count i32 | entries | "BRNB" | earlier batches

`earlier batches` has, for each producer in order, a count (u8) and the batches, oldest first.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

from barnabas.core.errors import KafkaStorageError
from barnabas.records.checksum import crc32c
from barnabas.storage.producers.producer_entry import BATCHES_REMEMBERED, BatchMetadata, ProducerEntry

VERSION = 1
EARLIER = b"BRNB"

_HEAD = struct.Struct(">hIi")
_ENTRIES_AT = 6
_ENTRY = struct.Struct(">qhiqiqiq")
_BATCH = struct.Struct(">iqiq")


class CorruptSnapshot(Exception):
    """The file is not a complete producer snapshot."""


PIECE_PRODUCERS = 500
"""Producers in one piece of a snapshot: a millisecond or two of rendering."""


def render_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    pieces = list(render_pieces(list(entries)))
    return head_of(pieces) + b"".join(pieces[1:])


def render_pieces(producers: list[ProducerEntry]) -> Iterator[bytes]:
    """Render the snapshot in pieces of bounded work; the head lacks the checksum (`head_of`)."""
    yield _HEAD.pack(VERSION, 0, len(producers))
    for start in range(0, len(producers), PIECE_PRODUCERS):
        yield _render_entries(producers[start : start + PIECE_PRODUCERS])
    if producers:
        yield EARLIER
    for start in range(0, len(producers), PIECE_PRODUCERS):
        yield _render_earlier_batches(producers[start : start + PIECE_PRODUCERS])


def head_of(pieces: list[bytes]) -> bytes:
    """First piece, with the checksum of all others."""
    crc = crc32c(pieces[0][_ENTRIES_AT:])
    for piece in pieces[1:]:
        crc = crc32c(piece, crc)
    return pieces[0][:2] + crc.to_bytes(4) + pieces[0][_ENTRIES_AT:]


def _render_entries(producers: list[ProducerEntry]) -> bytes:
    content = bytearray()
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
    return bytes(content)


def _render_earlier_batches(producers: list[ProducerEntry]) -> bytes:
    content = bytearray()
    for entry in producers:
        earlier = entry.batches[:-1]
        # A marker changes the entry's timestamp, so that of the last batch can differ.
        last_timestamp = entry.batches[-1:]
        if len(entry.batches) > BATCHES_REMEMBERED:
            raise KafkaStorageError(f"{len(entry.batches)} batches of producer {entry.producer_id}")
        content.append(len(earlier) + len(last_timestamp))
        for batch in (*earlier, *last_timestamp):
            content += _BATCH.pack(*batch)
    return bytes(content)


def parse_snapshot(content: bytes) -> list[ProducerEntry]:
    try:
        version, crc, count = _HEAD.unpack_from(content, 0)
        if version != VERSION:
            raise CorruptSnapshot(f"version {version} is unknown")
        if crc != crc32c(memoryview(content)[_ENTRIES_AT:]):
            raise CorruptSnapshot("the checksum does not match")
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
