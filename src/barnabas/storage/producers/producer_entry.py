"""Entry of one producer in a log: its epoch, its last batches, the start of its open transaction."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from barnabas.core.ids import NO_EPOCH, NO_OFFSET
from barnabas.records.batch import NO_PRODUCER_EPOCH, NO_SEQUENCE, NO_TIMESTAMP, RecordBatch
from barnabas.records.record import EndTransactionMarker

BATCHES_REMEMBERED = 5
SEQUENCE_MAX = (1 << 31) - 1


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


@dataclass(slots=True)
class ProducerEntry:
    producer_id: int
    producer_epoch: int = NO_PRODUCER_EPOCH
    coordinator_epoch: int = NO_EPOCH
    last_timestamp: int = NO_TIMESTAMP
    current_txn_first_offset: int = NO_OFFSET
    batches: list[BatchMetadata] = field(default_factory=list)

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_data_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else NO_OFFSET

    def copy(self) -> ProducerEntry:
        return replace(self, batches=list(self.batches))

    def find_duplicate(self, batch: RecordBatch) -> BatchMetadata | None:
        """Find the earlier batch with the same sequences, which `batch` retries."""
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

    def fence(self, producer_epoch: int, timestamp: int) -> None:
        """A later instance of the producer has this epoch, and no batch yet."""
        self.batches.clear()
        self.producer_epoch = producer_epoch
        self.last_timestamp = max(self.last_timestamp, timestamp)

    def end_transaction(self, marker: EndTransactionMarker, producer_epoch: int, timestamp: int) -> None:
        if self.producer_epoch != producer_epoch:
            self.batches.clear()
            self.producer_epoch = producer_epoch
        self.coordinator_epoch = marker.coordinator_epoch
        self.current_txn_first_offset = NO_OFFSET
        self.last_timestamp = timestamp
