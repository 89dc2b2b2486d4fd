"""Filter for the batches of aborted transactions, for readers of committed data.

A Fetch response lists the aborted transactions that overlap it: producer id and first offset, in any order.
Walking the batches in offset order, a producer is *aborting* from its first offset until its marker.
Meanwhile its transactional batches are dropped. Markers themselves are always dropped.
"""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.records.batch import RecordBatch
from barnabas.records.record import end_transaction_marker, iterate_records


class AbortedFilter:
    """Filter to ask about every batch, in order. `aborted` holds pairs `(first offset, producer id)`."""

    def __init__(self, aborted: Iterable[tuple[int, int]]) -> None:
        self._coming = sorted(aborted, reverse=True)
        self._aborting: set[int] = set()

    def keeps(self, batch: RecordBatch) -> bool:
        coming, last_offset = self._coming, batch.last_offset
        while coming and coming[-1][0] <= last_offset:
            self._aborting.add(coming.pop()[1])
        if batch.is_control:
            if batch.producer_id in self._aborting and _is_abort(batch):
                self._aborting.discard(batch.producer_id)
            return False
        return not (batch.is_transactional and batch.producer_id in self._aborting)


def _is_abort(batch: RecordBatch) -> bool:
    for record in iterate_records(batch):
        marker = end_transaction_marker(record)
        if marker is not None:
            return not marker.is_commit
    return False
