"""One fetch of one partition, decoded in a thread: a large or compressed batch must not hold the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final, NamedTuple

from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.core.aborted_transactions import AbortedFilter
from barnabas.client.core.steps import Steps, ask, raise_for
from barnabas.client.extensions.records import Record as ConsumedRecord
from barnabas.console.records.masking import Mask
from barnabas.core.errors import KafkaError, OffsetOutOfRange
from barnabas.core.ids import TopicPartition
from barnabas.core.regions import FileRegion
from barnabas.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from barnabas.protocol.offset_numbers import EARLIEST, READ_COMMITTED, READ_UNCOMMITTED
from barnabas.records.batch import MAGIC, RecordBatch, read_header
from barnabas.records.legacy import LegacyMessage, iterate_message_records, magic_of
from barnabas.records.record import Record, iterate_records
from barnabas.records.varint import Buffer

INFLATED_BYTES_MAX: Final = 64 * 1024 * 1024
"""Of one batch."""
DECODED_BYTES_MAX: Final = 32 * 1024 * 1024
"""Memory of the records of one fetch: a few kilobytes may inflate to a whole batch of zeros, or of records
without a key and a value. The next fetch goes on inside the batch."""
RECORD_BYTES: Final = 256
HEADER_BYTES: Final = 160
HEADERS_MAX: Final = 100_000
"""Of one record. A compressed batch of some kilobytes has room for millions of empty headers."""
FETCH_BY_NAME: Final = 12
UNREADABLE_MAX: Final = 5


class Fetched(NamedTuple):
    records: list[Record]
    next_offset: int
    """Where to go on. Not beyond what was fetched, even if no record was in it."""
    size_bytes: int
    unreadable: tuple[str, ...] = ()
    """Batches that cannot be decoded, with the reason."""
    first_unreadable: int | None = None
    """Last offset of the first of these batches."""


async def fetch(
    cluster: ClusterClient,
    at: TopicPartition,
    offset: int,
    max_bytes: int,
    mask: Mask | None,
    *,
    committed_only: bool = False,
) -> Fetched:
    """Records from an offset on, masked. The first batch comes whole, however large it is."""
    isolation = READ_COMMITTED if committed_only else READ_UNCOMMITTED

    def attempt() -> Steps[PartitionData]:
        leader_id = yield from cluster.state.leader(at)
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=max_bytes,
            isolation_level=isolation,
            topics=[
                FetchTopic(
                    topic=at.topic,
                    partitions=[
                        FetchPartition(
                            partition=at.partition, fetch_offset=offset, partition_max_bytes=max_bytes
                        )
                    ],
                )
            ],
        )
        answer = yield from ask(leader_id, request, FetchResponse, FETCH_BY_NAME)
        raise_for(answer.error_code, None, f"reading {at}")
        row: PartitionData = answer.responses[0].partitions[0]
        raise_for(row.error_code, None, f"reading {at} at offset {offset}")
        return row

    row = await cluster.run_with_retries(attempt)
    assert not isinstance(row.records, FileRegion), "an answer has bytes"
    aborted = [(each.first_offset, each.producer_id) for each in row.aborted_transactions or ()]
    data, left_out = row.records or b"", aborted if committed_only else []
    return await asyncio.to_thread(_decoded_and_masked, data, offset, left_out, mask)


async def fetch_in_log(
    cluster: ClusterClient,
    at: TopicPartition,
    offset: int,
    max_bytes: int,
    mask: Mask | None,
    *,
    committed_only: bool,
) -> Fetched:
    """`fetch`; nothing, up to the first offset of the log, where retention has removed the wanted one."""
    try:
        return await fetch(cluster, at, offset, max_bytes, mask, committed_only=committed_only)
    except OffsetOutOfRange:
        first = await cluster.run_with_retries(lambda: cluster.state.list_offsets({at: EARLIEST}))
        return Fetched([], max(first[at], offset), 0)


def _decoded_and_masked(
    data: Buffer, offset: int, aborted: list[tuple[int, int]], mask: Mask | None
) -> Fetched:
    found = _decoded(data, offset, aborted)
    if mask is None:
        return found
    return found._replace(records=[_masked(each, mask) for each in found.records])


def _masked(record: Record, mask: Mask) -> Record:
    return record._replace(
        key=mask.of_key(record.key),
        value=mask.of_value(record.value),
        headers=mask.of_headers(record.headers),
    )


def _decoded(data: Buffer, offset: int, aborted: list[tuple[int, int]]) -> Fetched:
    keeps = AbortedFilter(aborted)
    records: list[Record] = []
    unreadable: list[str] = []
    first_unreadable = None
    next_offset, kept_bytes = offset, 0
    for each in _batches(data):
        if isinstance(each, RecordBatch) and (not keeps.keeps(each) or each.is_control):
            next_offset = max(next_offset, each.next_offset)
            continue
        whole = len(records)
        try:
            found = (
                iterate_records(each, INFLATED_BYTES_MAX, HEADERS_MAX)
                if isinstance(each, RecordBatch)
                else iterate_message_records(each, INFLATED_BYTES_MAX)
            )
            for record in found:
                if record.offset < offset:
                    continue
                if kept_bytes >= DECODED_BYTES_MAX:
                    return Fetched(records, record.offset, len(data), tuple(unreadable), first_unreadable)
                records.append(record)
                kept_bytes += memory_of(record)
        except (KafkaError, ValueError, IndexError) as error:
            del records[whole:]
            first_unreadable = each.last_offset if first_unreadable is None else first_unreadable
            if len(unreadable) < UNREADABLE_MAX:
                unreadable.append(f"the batch up to offset {each.last_offset} cannot be decoded: {error}")
        next_offset = max(next_offset, each.next_offset)
    return Fetched(records, next_offset, len(data), tuple(unreadable), first_unreadable)


def memory_of(record: Record | ConsumedRecord[bytes | None, bytes | None]) -> int:
    """Bytes that the record takes, its headers included: empty ones too."""
    headers = sum(HEADER_BYTES + len(name) + len(value or b"") for name, value in record.headers)
    return RECORD_BYTES + len(record.key or b"") + len(record.value or b"") + headers


def _batches(data: Buffer) -> Iterator[RecordBatch | LegacyMessage]:
    """Whole batches; the answer may end inside one."""
    position = 0
    while position < len(data):
        try:
            each: RecordBatch | LegacyMessage = (
                read_header(data, position)
                if magic_of(data, position) >= MAGIC
                else LegacyMessage(data, position)
            )
        except KafkaError:
            return
        if position + each.size_bytes > len(data):
            return
        yield each
        position += each.size_bytes
