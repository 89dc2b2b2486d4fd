"""Batch filter of compaction: it decides which records of a batch stay.

A batch that keeps all of its records stays byte for byte. One that loses some keeps its base offset, its last
offset and its base timestamp. So the other records are copied unchanged, and only the codec runs again. An
empty batch is dropped, with two exceptions. It may hold the last sequence of a producer that the log still
has, or end the cleaned range. Then its header stays.

Tombstones and disposable markers must be readable for `delete.retention.ms` after the run that first found no
earlier record for them. That run stores their delete horizon in the batch, as its base timestamp (KIP-534).
Only there are a batch's records encoded again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from barnabas.core.ids import NO_OFFSET
from barnabas.records.batch import RecordBatch
from barnabas.records.builder import BatchBuilder, reassemble_batch, rebuild_batch
from barnabas.records.compression import compress
from barnabas.records.legacy import LegacyMessage, iterate_message_records
from barnabas.records.record import Record, inflate_payload, iterate_records
from barnabas.records.varint import wrap_int64
from barnabas.storage.cleaner.offset_map import OffsetMap
from barnabas.storage.cleaner.record_scan import Kept, keep_latest
from barnabas.storage.cleaner.transactions import CleanedTransactions

Remainder = memoryview | bytearray | None
"""Bytes of the unchanged batch, a new batch, or None for a dropped one."""


class LastRecord(NamedTuple):
    """Last record of a producer in the log."""

    last_data_offset: int
    """NO_OFFSET for a producer with markers only."""
    producer_epoch: int


class BatchFilter:
    """Filter of one run, which passes every batch of the log in order."""

    def __init__(
        self,
        offsets: OffsetMap,
        transactions: CleanedTransactions,
        *,
        now_ms: int,
        delete_retention_ms: int,
        end_offset: int,
        breathe: Callable[[], None],
    ) -> None:
        self.last_records: Mapping[int, LastRecord] = {}
        """Last records of the producers of the log, by id."""
        self.without_key = 0
        self._offsets = offsets
        self._transactions = transactions
        self._now_ms = now_ms
        self._horizon_ms = now_ms + delete_retention_ms
        self._end_offset = end_offset
        self._breathe = breathe

    def remainder(self, batch: RecordBatch) -> Remainder:
        """Bytes to write instead of the batch."""
        is_disposable = self._transactions.is_disposable(batch)
        if batch.is_control:
            return self._marker_remainder(batch, is_disposable=is_disposable)
        if is_disposable or not batch.record_count:
            return self._nothing_of(batch)
        payload = bytes(inflate_payload(batch))
        kept = keep_latest(
            payload,
            batch.record_count,
            batch.base_offset,
            self._offsets,
            self._breathe,
            drop_tombstones=batch.has_delete_horizon and self._now_ms >= batch.base_timestamp,
        )
        self.without_key += kept.without_key
        if not kept.record_count:
            return self._nothing_of(batch)
        if kept.has_tombstone and not batch.has_delete_horizon:
            return self._with_horizon(batch, kept, payload)
        if kept.record_count == batch.record_count:
            return batch.view()
        return _shrunk(batch, payload, kept)

    def _marker_remainder(self, batch: RecordBatch, *, is_disposable: bool) -> Remainder:
        if not batch.record_count:
            return self._nothing_of(batch)
        if not is_disposable:
            return batch.view()
        if not batch.has_delete_horizon:
            return rebuild_batch(batch, iterate_records(batch), delete_horizon_ms=self._horizon_ms)
        return self._nothing_of(batch) if batch.base_timestamp <= self._now_ms else batch.view()

    def _nothing_of(self, batch: RecordBatch) -> Remainder:
        if not (self._ends_a_history(batch) or batch.next_offset == self._end_offset):
            return None
        return rebuild_batch(batch, ()) if batch.record_count else batch.view()

    def _ends_a_history(self, batch: RecordBatch) -> bool:
        """Whether only this batch holds the producer's last sequence or epoch."""
        last = self.last_records.get(batch.producer_id) if batch.has_producer_id else None
        if last is None:
            return False
        if last.last_data_offset == NO_OFFSET:
            return batch.is_control and batch.producer_epoch == last.producer_epoch
        return batch.last_offset == last.last_data_offset

    def _with_horizon(self, batch: RecordBatch, kept: Kept, payload: bytes) -> bytearray:
        if kept.record_count < batch.record_count:
            batch = RecordBatch(_shrunk(batch, payload, kept))
        return rebuild_batch(batch, self._breathing(batch), delete_horizon_ms=self._horizon_ms)

    def _breathing(self, batch: RecordBatch) -> Iterator[Record]:
        for record in iterate_records(batch):
            self._breathe()
            yield record

    # --- formats 0 and 1 ---

    def message_remainder(self, message: LegacyMessage) -> Remainder:
        """Bytes to write instead of a message of an old format.

        Old formats cannot hold a delete horizon. A message that needs one, and a wrapper that loses some of
        its messages, becomes a batch of format 2."""
        self._breathe()
        records = list(iterate_message_records(message))
        kept = [record for record in records if self._is_latest(record)]
        if not kept:
            return None
        latest_offset = self._offsets.latest_offset
        has_tombstone = any(record.value is None and record.offset <= latest_offset for record in kept)
        if len(kept) == len(records) and not has_tombstone:
            return memoryview(message.buffer)[message.position : message.position + message.size_bytes]
        builder = BatchBuilder(
            base_offset=kept[0].offset,
            codec=message.codec,
            log_append_time=message.timestamp if message.is_log_append_time else None,
            delete_horizon_ms=self._horizon_ms if has_tombstone else None,
        )
        for offset, timestamp, key, value, headers in kept:
            builder.append(key, value, headers, timestamp, offset)
        return builder.build()

    def _is_latest(self, record: Record) -> bool:
        if record.offset > self._offsets.latest_offset:
            return True
        return record.key is not None and self._offsets.get(record.key) <= record.offset


def _shrunk(batch: RecordBatch, payload: bytes, kept: Kept) -> bytearray:
    """Build the batch with only these records, byte for byte unchanged."""
    remaining = b"".join([payload[start:end] for start, end in kept.runs])
    max_timestamp = batch.max_timestamp
    if not batch.is_log_append_time:
        max_timestamp = wrap_int64(batch.base_timestamp + kept.max_timestamp_delta)
    codec = batch.codec
    return reassemble_batch(
        batch,
        compress(codec, remaining) if codec else remaining,
        attributes=batch.attributes,
        max_timestamp=max_timestamp,
        record_count=kept.record_count,
    )
