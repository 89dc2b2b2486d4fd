"""Recovery of one segment after a crash, and verification of a transaction index.

After a crash each batch must be whole and have a valid CRC. The segment ends before the first that is not.
The same pass derives the indexes, the transaction index, the producer state and the leader epochs again.
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas.core.ids import NO_OFFSET
from barnabas.records.batch import MAGIC, RecordBatch
from barnabas.storage.files.failures import GarbledLog
from barnabas.storage.log.parts.leader_epoch_cache import LeaderEpochCache
from barnabas.storage.log.producer_recovery import record_aborted
from barnabas.storage.producers.append_checks import marker_of
from barnabas.storage.producers.producer_state import ProducerState
from barnabas.storage.segment.batch_scan import find_batch, iterate_valid_batches
from barnabas.storage.segment.offset_index import RELATIVE_OFFSET_MAX
from barnabas.storage.segment.segment import Segment
from barnabas.storage.segment.sparse_index import CorruptIndex
from barnabas.storage.segment.transaction_index import AbortedTransactionEntry


class Derived(NamedTuple):
    """Verified end of a segment."""

    end_offset: int
    last_batch: tuple[int, int] | None
    """Its last offset and its position."""


def derive(segment: Segment, producers: ProducerState, epochs: LeaderEpochCache) -> Derived:
    """Verify the batches of a segment, truncate it at the first invalid one, derive its indexes."""
    segment.offset_index.restart()
    segment.time_index.restart()
    segment.transaction_index.reset()
    segment.forget_timestamps()
    producers.skip_to(segment.base_offset)
    end_offset = segment.base_offset
    largest_offset = segment.base_offset + RELATIVE_OFFSET_MAX
    valid_bytes = last_indexed = 0
    last_batch: tuple[int, int] | None = None
    for position, batch in iterate_valid_batches(segment.file, segment.size_bytes):
        last_offset = batch.last_offset
        # Offsets only grow: a lower one belongs to earlier content of this file.
        if batch.base_offset < end_offset or last_offset > largest_offset:
            break
        segment.note_timestamp(batch.max_timestamp, last_offset)
        if position - last_indexed > segment.index_interval_bytes:
            segment.offset_index.append(last_offset, position)
            segment.time_index.maybe_append(segment.max_timestamp, segment.offset_of_max_timestamp)
            last_indexed = position
        end_offset = last_offset + 1
        last_batch = last_offset, position
        valid_bytes = position + batch.size_bytes
        if isinstance(batch, RecordBatch):
            if batch.leader_epoch > epochs.latest_epoch:
                epochs.assign(batch.leader_epoch, batch.base_offset)
            completed = producers.apply(batch, batch.base_offset)
            if completed is not None:
                record_aborted(segment, producers, completed)
                producers.complete(completed)
    if valid_bytes < segment.size_bytes:
        timestamp, offset = segment.max_timestamp, segment.offset_of_max_timestamp
        segment.cut(valid_bytes)
        # The recovery point may be here already, so no flush would sync this. After a power cut the torn
        # bytes could come back behind the next append.
        segment.file.sync()
        if valid_bytes:
            segment.note_timestamp(timestamp, offset)
    if last_batch is not None:
        segment.note_last_batch(*last_batch)
    segment.indexed_up_to(last_indexed)
    segment.release()
    return Derived(end_offset, last_batch)


def compare_with_markers(segment: Segment) -> None:
    """Raise CorruptIndex unless each entry of the transaction index has its abort marker in the log.

    This is for an index without a checksum. An entry that leads to a damaged batch is skipped: readers of
    that batch report the damage."""
    for entry in segment.transaction_index.entries:
        try:
            is_there = _has_abort_marker(segment, entry)
        except GarbledLog:
            continue
        if not is_there:
            raise CorruptIndex(f"{segment.transaction_index.path}: the log has no marker for {entry}")


def _has_abort_marker(segment: Segment, entry: AbortedTransactionEntry) -> bool:
    offset = entry.last_offset
    try:
        indexed_offset, position = segment.offset_index.entry_before(offset)
    except CorruptIndex:
        indexed_offset, position = NO_OFFSET, 0
    found = find_batch(segment.file, position, segment.size_bytes, offset, indexed_offset)
    if found is None or found.magic != MAGIC or found.base_offset != offset:
        return False
    batch = RecordBatch(segment.file.read_at(found.position, found.size_bytes))
    if not batch.is_valid_crc:
        raise GarbledLog(f"the batch at offset {offset} does not match its checksum")
    if not batch.is_control or batch.producer_id != entry.producer_id:
        return False
    marker = marker_of(batch)
    return marker is None or not marker.is_commit
