"""Checks of an append by a known producer: epoch, sequence, transaction. Pure.

These are the rules of Kafka's ProducerAppendInfo."""

from __future__ import annotations

from enum import Enum

from barnabas.core.errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    OutOfOrderSequenceNumber,
    TransactionCoordinatorFenced,
)
from barnabas.records.batch import CONTROL_FLAG, NO_PRODUCER_EPOCH, TRANSACTIONAL_FLAG, RecordBatch
from barnabas.records.record import EndTransactionMarker, end_transaction_marker, iterate_records
from barnabas.storage.producers.producer_entry import SEQUENCE_MAX, BatchMetadata, ProducerEntry


class AppendOrigin(Enum):
    """Source of an append, which decides the checks."""

    CLIENT = "client"
    """A producer: epoch and sequence are checked."""
    COORDINATOR = "coordinator"
    """A group or transaction coordinator, whose batches have no sequence: only the epoch is checked."""
    REPLICATION = "replication"
    """A follower or recovery: the leader has checked."""


def check_next(batch: RecordBatch, entry: ProducerEntry, origin: AppendOrigin) -> BatchMetadata | None:
    """Raise the error for the producer; or return the earlier batch that this one repeats."""
    attributes = batch.attributes
    if (
        batch.producer_epoch == entry.producer_epoch
        and not attributes & CONTROL_FLAG
        and entry.batches
        and batch.base_sequence == entry.batches[-1][0] + 1
        and (attributes & TRANSACTIONAL_FLAG or entry.current_txn_first_offset < 0)
    ):
        return None  # the next in order: the most common case
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
    # An unknown producer may begin anywhere: retention may have removed all of its batches.
    if base_sequence == last_sequence + 1 or (base_sequence == 0 and last_sequence == SEQUENCE_MAX):
        return
    raise OutOfOrderSequenceNumber(
        f"Out of order sequence number for producer {batch.producer_id}: {base_sequence} "
        f"(incoming seq. number), {last_sequence} (current end sequence number)"
    )


def _check_coordinator_epoch(batch: RecordBatch, entry: ProducerEntry) -> None:
    marker = marker_of(batch)
    if marker is not None and entry.coordinator_epoch > marker.coordinator_epoch:
        raise TransactionCoordinatorFenced(
            f"Invalid coordinator epoch for producer {batch.producer_id}: {marker.coordinator_epoch} "
            f"(zombie), {entry.coordinator_epoch} (current)"
        )


def marker_of(batch: RecordBatch) -> EndTransactionMarker | None:
    """Marker in a control batch; None if compaction has emptied it, or if it ends no transaction."""
    if batch.record_count <= 0:
        return None
    return end_transaction_marker(next(iterate_records(batch)))
