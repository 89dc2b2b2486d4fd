"""Batches of a tail, decoded by a thread and within bounds.

A batch of some kilobytes may inflate to millions of records or headers, of which a tail shows little. The
newest records are kept while a batch is decoded, large ones are cut, and the others are counted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Final, NamedTuple

from barnabas.client.consumer.core.handing_out import BatchesOfPartition
from barnabas.client.extensions.records import Record
from barnabas.console.records.fetching import HEADERS_MAX, INFLATED_BYTES_MAX, memory_of
from barnabas.console.records.masking import Mask
from barnabas.core.errors import KafkaError
from barnabas.records.legacy import iterate_message_records, iterate_messages
from barnabas.records.record import Record as StoredRecord
from barnabas.records.record import iterate_records

RING_RECORDS: Final = 1_000
RING_BYTES: Final = 8 * 1024 * 1024
RECORD_BYTES_MAX: Final = 256 * 1024
"""A larger value is cut in the ring; its own page has all of it."""
HEADERS_KEPT: Final = 20
"""Of a record that is cut."""

AnyRecord = Record[bytes | None, bytes | None]


class Kept(NamedTuple):
    record: AnyRecord
    is_cut: bool


class Newest(NamedTuple):
    kept: list[Kept]
    """The newest records that fit into a ring, the oldest of them first."""
    records: int
    """Number of all records, those that cannot be decoded too."""


def newest_of(taken: BatchesOfPartition, mask: Mask | None) -> Newest:
    found: deque[Kept] = deque()
    size_bytes = count = 0
    for batch in _batches(taken):
        try:
            for record in batch:
                if record.offset < taken.start:
                    continue
                count += 1
                offset, timestamp, key, value, headers = record
                each = _cut(Record(*taken.at, offset, timestamp, key, value, headers))
                found.append(each)
                size_bytes += memory_of(each.record)
                while len(found) > RING_RECORDS or size_bytes > RING_BYTES:
                    size_bytes -= memory_of(found.popleft().record)
        except (KafkaError, ValueError, IndexError):
            count += 1  # at least one; its page says why it cannot be decoded
    return Newest([Kept(_masked(record, mask), is_cut) for record, is_cut in found], count)


def _batches(taken: BatchesOfPartition) -> Iterator[Iterator[StoredRecord]]:
    if taken.legacy is not None:
        for message in iterate_messages(taken.legacy):
            yield iterate_message_records(message, INFLATED_BYTES_MAX)
    for batch in taken.batches:
        yield iterate_records(batch, INFLATED_BYTES_MAX, HEADERS_MAX)


def _cut(record: AnyRecord) -> Kept:
    if memory_of(record) <= RECORD_BYTES_MAX:
        return Kept(record, is_cut=False)
    headers = tuple(islice(record.headers, HEADERS_KEPT))
    cut = record._replace(
        key=None if record.key is None else record.key[:RECORD_BYTES_MAX],
        value=None if record.value is None else record.value[:RECORD_BYTES_MAX],
        headers=headers,
    )
    if memory_of(cut._replace(key=None, value=None)) > RECORD_BYTES_MAX:
        cut = cut._replace(headers=())
    return Kept(cut, is_cut=True)


def _masked(record: AnyRecord, mask: Mask | None) -> AnyRecord:
    """Behind the cut: parsing is bounded, and half a value is masked whole."""
    if mask is None:
        return record
    return record._replace(
        key=mask.of_key(record.key),
        value=mask.of_value(record.value),
        headers=mask.of_headers(record.headers),
    )
