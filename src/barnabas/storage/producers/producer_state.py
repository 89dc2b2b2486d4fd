"""Producer state: what a log keeps of each idempotent or transactional producer.

Each producer id has its epoch, its last five batches and the start of its open transaction. A retry of one of
these batches is answered with the offsets of the first attempt. The open transactions determine the first
unstable offset, and that determines the last stable offset.

`check` decides and changes nothing (`append_checks`). `apply` records a batch after its write. So a failed
write leaves no trace here.

A thread may read the entries of one moment (`freeze`). Until it is done, a producer that writes gets a copy
of its entry, and the frozen entry does not change.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from barnabas.records.batch import CONTROL_FLAG, NO_PRODUCER_ID, TRANSACTIONAL_FLAG, RecordBatch
from barnabas.storage.producers.append_checks import AppendOrigin, check_next, marker_of
from barnabas.storage.producers.producer_entry import BatchMetadata, ProducerEntry
from barnabas.storage.producers.waiting_writes import FirstWrite, WaitingWrites


class CompletedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    """Offset of the marker."""
    is_aborted: bool


class FrozenProducers:
    """Entries of one moment, readable in any thread. Created and thawed on the loop."""

    __slots__ = ("_state", "entries")

    def __init__(self, state: ProducerState, entries: list[ProducerEntry]) -> None:
        self._state: ProducerState | None = state
        self.entries = entries

    def thaw(self) -> None:
        """Release the entries: no thread reads them any more."""
        state, self._state = self._state, None
        if state is not None:
            state.thawed()


class ProducerState:
    """Producers of one log, up to `end_offset`."""

    __slots__ = (
        "_frozen",
        "_ongoing",
        "_unreplicated",
        "_unshared",
        "end_offset",
        "first_unstable_offset",
        "producers",
        "waiting",
    )

    def __init__(self, entries: Iterable[ProducerEntry] = (), *, end_offset: int = 0) -> None:
        self.producers = {entry.producer_id: entry for entry in entries}
        self.end_offset = end_offset
        """One past the last applied offset."""
        open_transactions = sorted(
            (entry.current_txn_first_offset, entry.producer_id)
            for entry in self.producers.values()
            if entry.current_txn_first_offset >= 0
        )
        self._ongoing = dict(open_transactions)
        """Producer id by first offset, ascending: transactions start in the order of the log."""
        self._unreplicated: dict[int, int] = {}
        """Offset of the marker by first offset, for markers above the high watermark."""
        self.waiting = WaitingWrites()
        self._frozen = 0
        """Frozen views in use."""
        self._unshared: set[int] | None = None
        """While there are frozen views: producers whose entry is in none of them."""
        self.first_unstable_offset: int | None = None
        """First offset of a transaction that is open, or whose marker is above the high watermark."""
        self._find_first_unstable()

    def has_ongoing_transaction(self, producer_id: int, producer_epoch: int | None = None) -> bool:
        """Whether the producer has an open transaction here, with `producer_epoch` if given."""
        entry = self.producers.get(producer_id)
        return (
            entry is not None
            and entry.current_txn_first_offset >= 0
            and producer_epoch in (None, entry.producer_epoch)
        )

    def ongoing_transactions(self) -> list[tuple[int, int]]:
        """First offset and producer id of each open transaction, ascending."""
        return list(self._ongoing.items())

    def await_first(self, producer_id: int, first: FirstWrite) -> None:
        """Record a write that waits for verification, if it is the first of its producer."""
        if producer_id not in self.producers:
            self.waiting.await_first(producer_id, first)

    # --- checks ---

    def check(self, batches: Sequence[RecordBatch], origin: AppendOrigin) -> BatchMetadata | None:
        """Raise the error for the producer; or return the earlier batch that this one repeats."""
        if origin is AppendOrigin.REPLICATION:
            return None
        if len(batches) == 1:
            batch = batches[0]
            producer_id = batch.producer_id
            if producer_id == NO_PRODUCER_ID:
                return None
            entry = self.producers.get(producer_id)
            if entry is not None:
                return check_next(batch, entry, origin)
            self._check_first(batch, origin)
            return None
        return self._check_several(batches, origin)

    def _check_several(self, batches: Sequence[RecordBatch], origin: AppendOrigin) -> BatchMetadata | None:
        """Check each batch as if the previous ones were written."""
        scratch: dict[int, ProducerEntry] = {}
        for batch in batches:
            producer_id = batch.producer_id
            if producer_id == NO_PRODUCER_ID:
                continue
            entry = scratch.get(producer_id)
            if entry is None and producer_id in self.producers:
                entry = self.producers[producer_id].copy()
            if entry is None:
                self._check_first(batch, origin)
                entry = ProducerEntry(producer_id)
            elif (duplicate := check_next(batch, entry, origin)) is not None:
                return duplicate
            scratch[producer_id] = entry
            if not batch.attributes & CONTROL_FLAG:
                entry.add_batch(batch, batch.base_offset)
        return None

    def _check_first(self, batch: RecordBatch, origin: AppendOrigin) -> None:
        if origin is AppendOrigin.CLIENT:
            self.waiting.check_first(batch)

    # --- recording of batches ---

    def apply(self, batch: RecordBatch, base_offset: int) -> CompletedTransaction | None:
        """Record a batch that is in the log at `base_offset`; returns the transaction that it ends, if any.

        The caller adds that transaction to the transaction index, then calls `complete`."""
        producer_id = batch.producer_id
        self.end_offset = base_offset + batch.last_offset_delta + 1
        if producer_id == NO_PRODUCER_ID:
            return None
        attributes = batch.attributes
        if attributes & CONTROL_FLAG:
            return self._apply_marker(batch, base_offset)
        entry = self.producers.get(producer_id)
        if entry is None:
            entry = self.producers[producer_id] = ProducerEntry(producer_id)
            self.waiting.first_came(producer_id)
        elif self._unshared is not None:
            entry = self._own(entry)
        entry.add_batch(batch, base_offset)
        if attributes & TRANSACTIONAL_FLAG and entry.current_txn_first_offset < 0:
            entry.current_txn_first_offset = base_offset
            self._ongoing[base_offset] = producer_id
            if self.first_unstable_offset is None:
                self.first_unstable_offset = base_offset
        return None

    def _apply_marker(self, batch: RecordBatch, offset: int) -> CompletedTransaction | None:
        marker = marker_of(batch)
        if marker is None:
            if not batch.record_count:
                self._apply_emptied_marker(batch)
            return None
        producer_id = batch.producer_id
        self.waiting.marker_came(producer_id)
        entry = self.producers.get(producer_id)
        if entry is None:
            entry = self.producers[producer_id] = ProducerEntry(producer_id)
        elif self._unshared is not None:
            entry = self._own(entry)
        first_offset = entry.current_txn_first_offset
        entry.end_transaction(marker, batch.producer_epoch, batch.max_timestamp)
        if first_offset < 0:
            return None
        return CompletedTransaction(producer_id, first_offset, offset, not marker.is_commit)

    def _apply_emptied_marker(self, batch: RecordBatch) -> None:
        """Compaction keeps the header of a marker that holds the last epoch of its producer. Without that
        epoch a log that is read again, as after a crash, would accept a fenced producer."""
        entry = self.producers.get(batch.producer_id)
        if entry is None:
            entry = self.producers[batch.producer_id] = ProducerEntry(batch.producer_id)
        elif batch.producer_epoch <= entry.producer_epoch or entry.current_txn_first_offset >= 0:
            return
        elif self._unshared is not None:
            entry = self._own(entry)
        entry.fence(batch.producer_epoch, batch.max_timestamp)

    def last_stable_offset_after(self, completed: CompletedTransaction) -> int:
        """Last stable offset once `completed` is replicated."""
        for first_offset, producer_id in self._ongoing.items():
            if producer_id != completed.producer_id:
                return first_offset
        return completed.last_offset + 1

    def complete(self, completed: CompletedTransaction) -> None:
        del self._ongoing[completed.first_offset]
        self._unreplicated[completed.first_offset] = completed.last_offset
        self._find_first_unstable()

    def high_watermark_advanced(self, high_watermark: int) -> None:
        """Drop transactions whose marker is below the high watermark: they bound no consumer any more."""
        if self._unreplicated:
            self._unreplicated = {
                first: last for first, last in self._unreplicated.items() if last >= high_watermark
            }
            self._find_first_unstable()

    # --- views for threads ---

    def freeze(self) -> FrozenProducers:
        """View of all current entries for a thread, until `FrozenProducers.thaw`."""
        self._frozen += 1
        self._unshared = set()
        return FrozenProducers(self, list(self.producers.values()))

    def thawed(self) -> None:
        self._frozen -= 1
        if not self._frozen:
            self._unshared = None

    def _own(self, entry: ProducerEntry) -> ProducerEntry:
        """Entry of this producer that no frozen view shares, so that it may change."""
        assert self._unshared is not None
        producer_id = entry.producer_id
        if producer_id not in self._unshared:
            self._unshared.add(producer_id)
            entry = self.producers[producer_id] = entry.copy()
        return entry

    # --- expiry ---

    def remove_expired(self, now_ms: int, expiration_ms: int) -> None:
        """Drop producers without an open transaction that wrote nothing for `expiration_ms`."""
        self.remove_expired_among(list(self.producers), now_ms, expiration_ms)
        self.waiting.forget_old()

    def remove_expired_among(self, producer_ids: Iterable[int], now_ms: int, expiration_ms: int) -> None:
        """Drop the expired producers among these; some may be dropped already."""
        producers = self.producers
        for producer_id in producer_ids:
            entry = producers.get(producer_id)
            if (
                entry is not None
                and entry.current_txn_first_offset < 0
                and now_ms - entry.last_timestamp >= expiration_ms
            ):
                del producers[producer_id]

    def log_start_offset_advanced(self, log_start_offset: int) -> None:
        self.high_watermark_advanced(log_start_offset)
        self.skip_to(log_start_offset)

    def skip_to(self, offset: int) -> None:
        """Advance the end: no batch below `offset` is left to apply."""
        self.end_offset = max(self.end_offset, offset)

    def _find_first_unstable(self) -> None:
        first = next(iter(self._ongoing), None)
        if self._unreplicated:
            unreplicated = min(self._unreplicated)
            first = unreplicated if first is None else min(first, unreplicated)
        self.first_unstable_offset = first
