"""Metadata of one transactional id, and the steps from one state to the next.

`TransactionMetadata` is immutable and equals one record of the log, so replaying is replacing. Each step is a
pure function that checks the transition and returns the metadata after it.

`last_producer_epoch` alone is not in Kafka's record. It lets a producer repeat an InitProducerId whose
response was lost, and is forgotten when the coordinator moves, here as there.

Epochs: InitProducerId hands one out, which fences all before it. A producer gets at most the highest epoch
but one. The highest remains for fencing that producer, after which the next one gets a new producer id.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from barnabas.coordinator.transaction.state.settings import EPOCH_BUMP_VERSION
from barnabas.coordinator.transaction.state.states import (
    AT_REST,
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    TRANSITIONS,
    TransactionState,
)
from barnabas.core.ids import TopicPartition
from barnabas.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP

EPOCH_MAX: Final = (1 << 15) - 1
LAST_EPOCH_FOR_PRODUCERS: Final = EPOCH_MAX - 1

NO_PARTITIONS: Final[frozenset[TopicPartition]] = frozenset()


@dataclass(frozen=True, slots=True)
class TransactionMetadata:
    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    partitions: frozenset[TopicPartition] = NO_PARTITIONS
    start_timestamp_ms: int = NO_TIMESTAMP
    last_update_timestamp_ms: int = NO_TIMESTAMP
    previous_producer_id: int = NO_PRODUCER_ID
    """Producer id of the last transaction before this one."""
    next_producer_id: int = NO_PRODUCER_ID
    """Producer id after the prepared transaction is complete, when the epochs are used up."""
    client_transaction_version: int = 0
    last_producer_epoch: int = NO_PRODUCER_EPOCH

    @property
    def is_epoch_exhausted(self) -> bool:
        return self.producer_epoch >= LAST_EPOCH_FOR_PRODUCERS

    @property
    def bumps_epoch(self) -> bool:
        """Whether each of its transactions has an epoch of its own."""
        return self.client_transaction_version >= EPOCH_BUMP_VERSION

    def is_timed_out(self, now_ms: int) -> bool:
        return self.state is ONGOING and self.start_timestamp_ms + self.timeout_ms < now_ms

    def is_expired(self, now_ms: int, expiration_ms: int) -> bool:
        return self.state in AT_REST and self.last_update_timestamp_ms + expiration_ms <= now_ms


def initialized(
    previous: TransactionMetadata | None,
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    timeout_ms: int,
    now_ms: int,
    last_producer_epoch: int,
) -> TransactionMetadata:
    """Metadata after InitProducerId: the producer may write under the transactional id."""
    if previous is not None:
        TRANSITIONS.check(previous.state, EMPTY)
    return TransactionMetadata(
        transactional_id,
        producer_id,
        producer_epoch,
        timeout_ms,
        EMPTY,
        last_update_timestamp_ms=now_ms,
        previous_producer_id=NO_PRODUCER_ID if previous is None else previous.producer_id,
        last_producer_epoch=last_producer_epoch,
        client_transaction_version=0 if previous is None else previous.client_transaction_version,
    )


def with_partitions(
    metadata: TransactionMetadata,
    added: frozenset[TopicPartition],
    now_ms: int,
    client_transaction_version: int,
) -> TransactionMetadata:
    """Metadata after the transaction begins, or grows."""
    TRANSITIONS.check(metadata.state, ONGOING)
    begins = metadata.state is not ONGOING
    return replace(
        metadata,
        state=ONGOING,
        partitions=metadata.partitions | added,
        start_timestamp_ms=now_ms if begins else metadata.start_timestamp_ms,
        last_update_timestamp_ms=now_ms,
        client_transaction_version=client_transaction_version,
    )


def prepared(
    metadata: TransactionMetadata,
    *,
    is_commit: bool,
    now_ms: int,
    client_transaction_version: int,
    next_producer_id: int = NO_PRODUCER_ID,
) -> TransactionMetadata:
    """Metadata after EndTxn; from version 2 on the epoch ends with the transaction."""
    state = PREPARE_COMMIT if is_commit else PREPARE_ABORT
    TRANSITIONS.check(metadata.state, state)
    bump = client_transaction_version >= EPOCH_BUMP_VERSION
    return replace(
        metadata,
        state=state,
        producer_epoch=metadata.producer_epoch + 1 if bump else metadata.producer_epoch,
        last_producer_epoch=metadata.producer_epoch if bump else metadata.last_producer_epoch,
        next_producer_id=next_producer_id,
        start_timestamp_ms=now_ms if metadata.state is not ONGOING else metadata.start_timestamp_ms,
        last_update_timestamp_ms=now_ms,
        client_transaction_version=client_transaction_version,
    )


def fenced(metadata: TransactionMetadata, now_ms: int) -> TransactionMetadata:
    """Metadata after the coordinator aborts the transaction, under an epoch that no producer has.

    A producer that comes back with the epoch before gets this one (KIP-360, KIP-588). It lost a transaction,
    not its transactional id, as long as no other producer came in between.
    """
    TRANSITIONS.check(metadata.state, PREPARE_ABORT)
    if metadata.producer_epoch == EPOCH_MAX:
        # No producer is given the highest epoch, but a log may contain it. Nothing is above it, so the marker
        # has the epoch of its transaction, as markers before version 2 have.
        return replace(
            metadata, state=PREPARE_ABORT, last_update_timestamp_ms=now_ms, client_transaction_version=0
        )
    return replace(
        metadata,
        state=PREPARE_ABORT,
        producer_epoch=metadata.producer_epoch + 1,
        last_producer_epoch=metadata.producer_epoch,
        last_update_timestamp_ms=now_ms,
    )


def completed(metadata: TransactionMetadata, now_ms: int) -> TransactionMetadata:
    """Metadata after every partition has its marker."""
    state = COMPLETE_COMMIT if metadata.state is PREPARE_COMMIT else COMPLETE_ABORT
    TRANSITIONS.check(metadata.state, state)
    after = replace(metadata, state=state, partitions=NO_PARTITIONS, last_update_timestamp_ms=now_ms)
    if metadata.next_producer_id == NO_PRODUCER_ID:
        return after
    return replace(
        after,
        producer_id=metadata.next_producer_id,
        producer_epoch=0,
        previous_producer_id=metadata.producer_id,
        next_producer_id=NO_PRODUCER_ID,
    )
