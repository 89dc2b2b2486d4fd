"""Transactional batches that a run of compaction may drop.

Consumers with `read_committed` never see the records of an aborted transaction, so the first run drops them.
A marker must stay while a batch of its transaction is in the log: it ends the transaction for readers. So it
is disposable only if the run, which reads from the start of the log, finds no batch of the transaction.

The same holds for the entry in the transaction index. It is written again while its marker has data before
it, and dropped with that data. An entry without its marker would make readers skip the producer's next
transaction.
"""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.records.batch import RecordBatch
from barnabas.records.record import end_transaction_marker, iterate_records
from barnabas.storage.segment.transaction_index import AbortedTransactionEntry


class CleanedTransactions:
    """Transactions of one pass, which passes every batch of the log in order."""

    def __init__(self, aborted: Iterable[AbortedTransactionEntry]) -> None:
        self._to_come = sorted(aborted, key=lambda entry: entry.first_offset, reverse=True)
        self._aborted: dict[int, AbortedTransactionEntry] = {}
        """Current aborted transaction by producer id."""
        self._with_data: set[int] = set()
        """Producers with a batch of their aborted transaction."""
        self._committed: set[int] = set()
        self.retained: list[AbortedTransactionEntry] = []
        """Entries for the transaction index of the segment being written."""

    def is_disposable(self, batch: RecordBatch) -> bool:
        """Whether the batch belongs to an aborted transaction, or is a marker without data."""
        last_offset = batch.base_offset + batch.last_offset_delta
        while self._to_come and self._to_come[-1].first_offset <= last_offset:
            entry = self._to_come.pop()
            self._aborted.setdefault(entry.producer_id, entry)
        if batch.is_control:
            return self._is_marker_disposable(batch)
        if not batch.is_transactional:
            return False
        if batch.producer_id in self._aborted:
            self._with_data.add(batch.producer_id)
            return True
        self._committed.add(batch.producer_id)
        return False

    def _is_marker_disposable(self, batch: RecordBatch) -> bool:
        if not batch.record_count:
            return True
        marker = end_transaction_marker(next(iterate_records(batch)))
        if marker is None:
            return False
        producer_id = batch.producer_id
        if marker.is_commit:
            had_data = producer_id in self._committed
            self._committed.discard(producer_id)
            return not had_data
        entry = self._aborted.pop(producer_id, None)
        if entry is None or producer_id not in self._with_data:
            return True
        self._with_data.discard(producer_id)
        self.retained.append(entry)
        return False
