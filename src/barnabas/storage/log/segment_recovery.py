"""Verifying one segment after a crash.

Each batch must be whole and have the right CRC; the segment ends before the first that is not so. Indexes,
transaction index, producers and epochs are derived again in the same pass.
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas.records.batch import RecordBatch
from barnabas.storage.log.leader_epoch_cache import LeaderEpochCache
from barnabas.storage.producers.producer_recovery import record_aborted
from barnabas.storage.producers.producer_state import ProducerState
from barnabas.storage.segment.batch_scan import iterate_valid_batches
from barnabas.storage.segment.offset_index import RELATIVE_OFFSET_MAX
from barnabas.storage.segment.segment import Segment


class Derived(NamedTuple):
    """What a segment turned out to hold."""

    end_offset: int
    last_batch: tuple[int, int] | None
    """Its last offset, and where it lies."""


def derive(segment: Segment, producers: ProducerState, epochs: LeaderEpochCache) -> Derived:
    """Verify the batches of a segment, cut what is not valid, derive the rest."""
    segment.offset_index.restart()
    segment.time_index.reset()
    segment.transaction_index.reset()
    segment.forget_timestamps()
    producers.skip_to(segment.base_offset)
    end_offset = segment.base_offset
    largest_offset = segment.base_offset + RELATIVE_OFFSET_MAX
    valid_bytes = last_indexed = 0
    last_batch: tuple[int, int] | None = None
    for position, batch in iterate_valid_batches(segment.file, segment.size_bytes):
        last_offset = batch.last_offset
        # Offsets only grow: anything else is bytes of an older life of this file.
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
        # The recovery point may stand here already: nobody else would sync this, and the torn
        # bytes could come back behind what is written next.
        segment.file.sync()
        if valid_bytes:
            segment.note_timestamp(timestamp, offset)
    if last_batch is not None:
        segment.note_last_batch(*last_batch)
    segment.indexed_up_to(last_indexed)
    segment.release()
    return Derived(end_offset, last_batch)
