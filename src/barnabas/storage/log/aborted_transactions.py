"""Aborted transactions of a fetch with `read_committed`."""

from __future__ import annotations

from barnabas.storage.log.log import Log
from barnabas.storage.log.reading import FetchData
from barnabas.storage.segment.transaction_index import AbortedTransaction


def upper_bound_offset(log: Log, data: FetchData) -> int:
    """Offset above every record in `data`, where the search for aborted transactions ends."""
    if isinstance(data.records, bytes):
        return data.fetch_offset + 1
    segment = log.segments.floor(data.segment_base_offset)
    if segment is None:
        return log.log_end_offset
    end_position = data.records.position + data.records.length
    with log.guarded_read("searching the index"):
        found = segment.offset_after(end_position)
    if found is not None:
        return found
    following = log.segments.following(segment)
    return log.log_end_offset if following is None else following.base_offset


def aborted_transactions(log: Log, fetch_offset: int, upper_offset: int) -> list[AbortedTransaction]:
    """Find the aborted transactions that overlap `[fetch_offset, upper_offset)`."""
    found: list[AbortedTransaction] = []
    with log.guarded_read("reading the transaction index"):
        for segment in log.segments.since(fetch_offset):
            if segment.transaction_index.collect(fetch_offset, upper_offset, found):
                break
    return found
