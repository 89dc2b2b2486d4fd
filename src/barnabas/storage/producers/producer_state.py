"""What the log remembers of each idempotent or transactional producer.

For every producer id: its epoch, its last five batches (a retry of one of them is answered
with the offsets that it got the first time), and where its open transaction started. From the
open transactions follows the first unstable offset, and from that the last stable offset.

`check` decides and changes nothing (`append_checks`), `apply` records what has been written. Between them
lies the write itself, so a failed write leaves no trace here.
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
    """Of the marker."""
    is_aborted: bool


class ProducerState:
    """All producers of one log, up to `end_offset`."""

    __slots__ = (
        "_ongoing",
        "_unreplicated",
        "end_offset",
        "first_unstable_offset",
        "producers",
        "waiting",
    )

    def __init__(self, entries: Iterable[ProducerEntry] = (), *, end_offset: int = 0) -> None:
        self.producers = {entry.producer_id: entry for entry in entries}
        self.end_offset = end_offset
        """One past the last offset that has been applied."""
        open_transactions = sorted(
            (entry.current_txn_first_offset, entry.producer_id)
            for entry in self.producers.values()
            if entry.current_txn_first_offset >= 0
        )
        self._ongoing = dict(open_transactions)
        """First offset -> producer id, ascending: transactions start in the order of the log."""
        self._unreplicated: dict[int, int] = {}
        """First offset -> offset of the marker, for markers above the high watermark."""
        self.waiting = WaitingWrites()
        self.first_unstable_offset: int | None = None
        """The first offset whose fate is undecided, or decided above the high watermark only."""
        self._find_first_unstable()

    def has_ongoing_transaction(self, producer_id: int, producer_epoch: int | None = None) -> bool:
        """Whether the producer has a transaction open here, under `producer_epoch` if that is given."""
        entry = self.producers.get(producer_id)
        return (
            entry is not None
            and entry.current_txn_first_offset >= 0
            and producer_epoch in (None, entry.producer_epoch)
        )

    def await_first(self, producer_id: int, first: FirstWrite) -> None:
        """The write waits to be verified, perhaps as the first of its producer."""
        if producer_id not in self.producers:
            self.waiting.await_first(producer_id, first)

    # -- deciding -----------------------------------------------------------------------------

    def check(self, batches: Sequence[RecordBatch], origin: AppendOrigin) -> BatchMetadata | None:
        """Raise what the producer must hear; or the remembered batch that this one repeats."""
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
        """Each as if those before it were written."""
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

    # -- recording ----------------------------------------------------------------------------

    def apply(self, batch: RecordBatch, base_offset: int) -> CompletedTransaction | None:
        """Record a batch that is in the log at `base_offset`; a transaction that it ends, if any.

        `complete` must follow for that, once the transaction index has it."""
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
            return None
        producer_id = batch.producer_id
        self.waiting.marker_came(producer_id)
        entry = self.producers.get(producer_id)
        if entry is None:
            entry = self.producers[producer_id] = ProducerEntry(producer_id)
        first_offset = entry.current_txn_first_offset
        entry.end_transaction(marker, batch.producer_epoch, batch.max_timestamp)
        if first_offset < 0:
            return None
        return CompletedTransaction(producer_id, first_offset, offset, not marker.is_commit)

    def last_stable_offset_after(self, completed: CompletedTransaction) -> int:
        """What the last stable offset will be once `completed` is replicated."""
        for first_offset, producer_id in self._ongoing.items():
            if producer_id != completed.producer_id:
                return first_offset
        return completed.last_offset + 1

    def complete(self, completed: CompletedTransaction) -> None:
        del self._ongoing[completed.first_offset]
        self._unreplicated[completed.first_offset] = completed.last_offset
        self._find_first_unstable()

    def high_watermark_advanced(self, high_watermark: int) -> None:
        """Transactions whose marker is below the high watermark hold nobody back any more."""
        if self._unreplicated:
            self._unreplicated = {
                first: last for first, last in self._unreplicated.items() if last >= high_watermark
            }
            self._find_first_unstable()

    # -- forgetting ---------------------------------------------------------------------------

    def remove_expired(self, now_ms: int, expiration_ms: int) -> None:
        """Forget producers that have been silent for `expiration_ms` and hold no transaction open."""
        expired = [
            producer_id
            for producer_id, entry in self.producers.items()
            if entry.current_txn_first_offset < 0 and now_ms - entry.last_timestamp >= expiration_ms
        ]
        for producer_id in expired:
            del self.producers[producer_id]
        self.waiting.forget_old()

    def log_start_offset_advanced(self, log_start_offset: int) -> None:
        self.high_watermark_advanced(log_start_offset)
        self.skip_to(log_start_offset)

    def skip_to(self, offset: int) -> None:
        """Nothing below `offset` is left to be applied."""
        self.end_offset = max(self.end_offset, offset)

    def _find_first_unstable(self) -> None:
        first = next(iter(self._ongoing), None)
        if self._unreplicated:
            unreplicated = min(self._unreplicated)
            first = unreplicated if first is None else min(first, unreplicated)
        self.first_unstable_offset = first
