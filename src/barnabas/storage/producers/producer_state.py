"""What the log remembers of each idempotent or transactional producer.

For every producer id: its epoch, its last five batches (a retry of one of them is answered
with the offsets that it got the first time), and where its open transaction started. From the
open transactions follows the first unstable offset, and from that the last stable offset.

The first write of a transaction waits until the coordinator has answered for it. `VerificationGuard` tells
whether a marker came meanwhile: then the answer is about a transaction that is over. A write of a producer of
whom nothing is known may begin with any sequence, but not with one behind a write that waited and was sent
back to come again: it would take its place.

The rules are those of Kafka's ProducerAppendInfo, split in two: `check` decides and changes
nothing, `apply` records what has been written. Between them lies the write itself, so a
failed write leaves no trace here.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import NamedTuple
from weakref import WeakValueDictionary

from barnabas.core.errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    OutOfOrderSequenceNumber,
    TransactionCoordinatorFenced,
)
from barnabas.core.ids import NO_OFFSET
from barnabas.records.batch import (
    CONTROL_FLAG,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL_FLAG,
    RecordBatch,
)
from barnabas.records.record import EndTransactionMarker, end_transaction_marker, iterate_records

BATCHES_REMEMBERED = 5
SEQUENCE_MAX = (1 << 31) - 1

_log = logging.getLogger(__name__)


class AppendOrigin(Enum):
    """Who appends, and therefore what is checked."""

    CLIENT = "client"
    """A producer: epoch and sequence."""
    COORDINATOR = "coordinator"
    """A group or transaction coordinator, whose batches have no sequence: epoch only."""
    REPLICATION = "replication"
    """A follower, or recovery: the leader has checked."""


class BatchMetadata(NamedTuple):
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        return (self.last_sequence - self.offset_delta) & SEQUENCE_MAX

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


class CompletedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    """Of the marker."""
    is_aborted: bool


class ProducerEntry:
    """One producer."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "current_txn_first_offset",
        "last_timestamp",
        "producer_epoch",
        "producer_id",
    )

    def __init__(
        self,
        producer_id: int,
        *,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        coordinator_epoch: int = -1,
        last_timestamp: int = NO_TIMESTAMP,
        current_txn_first_offset: int = NO_OFFSET,
        batches: Iterable[BatchMetadata] = (),
    ) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.coordinator_epoch = coordinator_epoch
        self.last_timestamp = last_timestamp
        self.current_txn_first_offset = current_txn_first_offset
        self.batches = list(batches)

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_data_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else NO_OFFSET

    def copy(self) -> ProducerEntry:
        return ProducerEntry(
            self.producer_id,
            producer_epoch=self.producer_epoch,
            coordinator_epoch=self.coordinator_epoch,
            last_timestamp=self.last_timestamp,
            current_txn_first_offset=self.current_txn_first_offset,
            batches=self.batches,
        )

    def find_duplicate(self, batch: RecordBatch) -> BatchMetadata | None:
        """The remembered batch with the same sequences, which `batch` is a retry of."""
        if batch.producer_epoch != self.producer_epoch:
            return None
        base_sequence, last_sequence = batch.base_sequence, batch.last_sequence
        for known in self.batches:
            if known.last_sequence == last_sequence and known.first_sequence == base_sequence:
                return known
        return None

    def add_batch(self, batch: RecordBatch, base_offset: int) -> None:
        if self.producer_epoch != batch.producer_epoch:
            self.batches.clear()
            self.producer_epoch = batch.producer_epoch
        batches = self.batches
        if len(batches) >= BATCHES_REMEMBERED:
            del batches[0]
        delta = batch.last_offset_delta
        timestamp = batch.max_timestamp
        batches.append(BatchMetadata(batch.last_sequence, base_offset + delta, delta, timestamp))
        self.last_timestamp = timestamp

    def end_transaction(self, marker: EndTransactionMarker, producer_epoch: int, timestamp: int) -> None:
        if self.producer_epoch != producer_epoch:
            self.batches.clear()
            self.producer_epoch = producer_epoch
        self.coordinator_epoch = marker.coordinator_epoch
        self.current_txn_first_offset = NO_OFFSET
        self.last_timestamp = timestamp

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ProducerEntry) and self._facts() == other._facts()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"ProducerEntry{self._facts()}"

    def _facts(self) -> tuple[object, ...]:
        return (
            self.producer_id,
            self.producer_epoch,
            self.coordinator_epoch,
            self.last_timestamp,
            self.current_txn_first_offset,
            tuple(self.batches),
        )


class VerificationGuard:
    """Held by writes that wait for the coordinator's word; it stands until their producer's marker comes."""

    __slots__ = ("__weakref__",)


class FirstWrite(NamedTuple):
    """A write that waits for the coordinator's word, of a producer that has written nothing yet."""

    epoch: int
    sequence: int


class ProducerState:
    """All producers of one log, up to `end_offset`."""

    __slots__ = (
        "_awaited",
        "_awaited_before",
        "_guards",
        "_ongoing",
        "_unreplicated",
        "end_offset",
        "first_unstable_offset",
        "producers",
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
        self._guards: WeakValueDictionary[int, VerificationGuard] | None = None
        """By producer id; gone with the last write that waits. A state that is built anew has none, so what
        waits across a truncation is not verified any more. Most logs never have one, and no table either."""
        self._awaited: dict[int, FirstWrite] = {}
        self._awaited_before: dict[int, FirstWrite] = {}
        """By producer id, of producers of whom nothing is known; those from before the last look at what has
        expired apart, so that none is kept for ever."""
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

    def guard(self, producer_id: int) -> VerificationGuard:
        """To be taken before the coordinator is asked; all writes of the producer that wait share one."""
        if self._guards is None:
            self._guards = WeakValueDictionary()
        found = self._guards.get(producer_id)
        if found is None:
            found = self._guards[producer_id] = VerificationGuard()
        return found

    def stands(self, producer_id: int, guard: VerificationGuard) -> bool:
        """Whether no marker of the producer has come since the guard was taken."""
        return self._guards is not None and self._guards.get(producer_id) is guard

    def await_first(self, producer_id: int, first: FirstWrite) -> None:
        """The write waits to be verified. The lowest of them that the newest epoch sent must come first."""
        if producer_id in self.producers:
            return
        known = self._awaited_first(producer_id)
        if known is None or first.epoch > known.epoch:
            self._awaited[producer_id] = first
        elif first.epoch == known.epoch:
            self._awaited[producer_id] = min(first, known)

    def _awaited_first(self, producer_id: int) -> FirstWrite | None:
        return self._awaited.get(producer_id) or self._awaited_before.get(producer_id)

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
            return self._check_batch(batch, self.producers.get(producer_id), origin)
        scratch: dict[int, ProducerEntry] = {}
        for batch in batches:
            producer_id = batch.producer_id
            if producer_id == NO_PRODUCER_ID:
                continue
            entry = scratch.get(producer_id)
            if entry is None and producer_id in self.producers:
                entry = self.producers[producer_id].copy()
            duplicate = self._check_batch(batch, entry, origin)
            if duplicate is not None:
                return duplicate
            entry = scratch.setdefault(producer_id, entry or ProducerEntry(producer_id))
            if not batch.attributes & CONTROL_FLAG:
                entry.add_batch(batch, batch.base_offset)
        return None

    def _check_batch(
        self, batch: RecordBatch, entry: ProducerEntry | None, origin: AppendOrigin
    ) -> BatchMetadata | None:
        if entry is None:
            if origin is AppendOrigin.CLIENT:
                self._check_first(batch)
            return None
        attributes = batch.attributes
        if (
            batch.producer_epoch == entry.producer_epoch
            and not attributes & CONTROL_FLAG
            and entry.batches
            and batch.base_sequence == entry.batches[-1][0] + 1
            and (attributes & TRANSACTIONAL_FLAG or entry.current_txn_first_offset < 0)
        ):
            return None  # the next in order: by far the most
        if origin is AppendOrigin.CLIENT:
            duplicate = entry.find_duplicate(batch)
            if duplicate is not None:
                return duplicate
        if batch.producer_epoch < entry.producer_epoch:
            raise InvalidProducerEpoch(
                f"Epoch of producer {batch.producer_id} is {batch.producer_epoch}, which is smaller than "
                f"the last seen epoch {entry.producer_epoch}"
            )
        if attributes & CONTROL_FLAG:
            _check_coordinator_epoch(batch, entry)
            return None
        if origin is AppendOrigin.CLIENT:
            _check_sequence(batch, entry)
        if entry.current_txn_first_offset >= 0 and not attributes & TRANSACTIONAL_FLAG:
            raise InvalidTxnState(f"Expected transactional write from producer {batch.producer_id}")
        return None

    def _check_first(self, batch: RecordBatch) -> None:
        awaited = self._awaited_first(batch.producer_id)
        if (
            awaited is not None
            and awaited.epoch == batch.producer_epoch
            and batch.base_sequence > awaited.sequence
        ):
            raise OutOfOrderSequenceNumber(
                f"Out of order sequence number for producer {batch.producer_id}: {batch.base_sequence} "
                f"(incoming seq. number), {awaited.sequence} (sequence number that comes first)"
            )

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
            self._awaited.pop(producer_id, None)
        entry.add_batch(batch, base_offset)
        if attributes & TRANSACTIONAL_FLAG and entry.current_txn_first_offset < 0:
            entry.current_txn_first_offset = base_offset
            self._ongoing[base_offset] = producer_id
            if self.first_unstable_offset is None:
                self.first_unstable_offset = base_offset
        return None

    def _apply_marker(self, batch: RecordBatch, offset: int) -> CompletedTransaction | None:
        marker = _marker_of(batch)
        if marker is None:
            return None
        producer_id = batch.producer_id
        if self._guards is not None:
            self._guards.pop(producer_id, None)
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
        self._awaited, self._awaited_before = {}, self._awaited

    def log_start_offset_advanced(self, log_start_offset: int) -> None:
        self.high_watermark_advanced(log_start_offset)
        self.end_offset = max(self.end_offset, log_start_offset)

    def _find_first_unstable(self) -> None:
        first = next(iter(self._ongoing), None)
        if self._unreplicated:
            unreplicated = min(self._unreplicated)
            first = unreplicated if first is None else min(first, unreplicated)
        self.first_unstable_offset = first


def _check_sequence(batch: RecordBatch, entry: ProducerEntry) -> None:
    base_sequence = batch.base_sequence
    if batch.producer_epoch != entry.producer_epoch:
        if base_sequence != 0 and entry.producer_epoch != NO_PRODUCER_EPOCH:
            raise OutOfOrderSequenceNumber(
                f"Invalid sequence number for new epoch of producer {batch.producer_id}: "
                f"{batch.producer_epoch} (request epoch), {base_sequence} (seq. number), "
                f"{entry.producer_epoch} (current producer epoch)"
            )
        return
    last_sequence = entry.last_sequence
    # An unknown producer may begin anywhere: retention may have removed all it ever wrote.
    if base_sequence == last_sequence + 1 or (base_sequence == 0 and last_sequence == SEQUENCE_MAX):
        return
    raise OutOfOrderSequenceNumber(
        f"Out of order sequence number for producer {batch.producer_id}: {base_sequence} "
        f"(incoming seq. number), {last_sequence} (current end sequence number)"
    )


def _check_coordinator_epoch(batch: RecordBatch, entry: ProducerEntry) -> None:
    marker = _marker_of(batch)
    if marker is not None and entry.coordinator_epoch > marker.coordinator_epoch:
        raise TransactionCoordinatorFenced(
            f"Invalid coordinator epoch for producer {batch.producer_id}: {marker.coordinator_epoch} "
            f"(zombie), {entry.coordinator_epoch} (current)"
        )


def _marker_of(batch: RecordBatch) -> EndTransactionMarker | None:
    """What a control batch says; None when compaction has emptied it, or it ends no transaction."""
    if batch.record_count <= 0:
        return None
    return end_transaction_marker(next(iterate_records(batch)))
