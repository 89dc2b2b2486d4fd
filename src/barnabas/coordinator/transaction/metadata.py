"""What is known of one transactional id, and the steps from one such fact to the next.

`TransactionMetadata` is immutable and is exactly what one record of the log says, so replaying is replacing.
Each step is a pure function that checks the transition and returns the metadata after it.

`last_producer_epoch` alone is not in Kafka's record: it lets a producer repeat an InitProducerId whose answer
was lost, and is forgotten when the coordinator moves, here as there.

Epochs: one is handed out at InitProducerId and fences all before it. The highest but one is the last that a
producer gets; the highest remains for fencing that producer, after which the next one gets a new producer id.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from barnabas.coordinator.transaction.settings import EPOCH_BUMP_VERSION
from barnabas.coordinator.transaction.states import (
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
    """Whose transaction was the last before this producer id."""
    next_producer_id: int = NO_PRODUCER_ID
    """Who takes over when the prepared transaction is complete: the epochs are used up."""
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
    former: TransactionMetadata | None,
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    timeout_ms: int,
    now_ms: int,
    last_producer_epoch: int,
) -> TransactionMetadata:
    """A producer has (again) the right to write under the transactional id."""
    if former is not None:
        TRANSITIONS.check(former.state, EMPTY)
    return TransactionMetadata(
        transactional_id,
        producer_id,
        producer_epoch,
        timeout_ms,
        EMPTY,
        last_update_timestamp_ms=now_ms,
        previous_producer_id=NO_PRODUCER_ID if former is None else former.producer_id,
        last_producer_epoch=last_producer_epoch,
        client_transaction_version=0 if former is None else former.client_transaction_version,
    )


def with_partitions(
    metadata: TransactionMetadata,
    added: frozenset[TopicPartition],
    now_ms: int,
    client_transaction_version: int,
) -> TransactionMetadata:
    """The transaction begins, or grows."""
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
    """The producer has ended its transaction; from version 2 on its epoch ends with it."""
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
    """The coordinator takes the transaction from its producer: aborted, under an epoch nobody else has.

    A producer that shows the epoch before it when it comes back gets this one (KIP-360, KIP-588): it lost a
    transaction, not its place, as long as no other producer came in between."""
    TRANSITIONS.check(metadata.state, PREPARE_ABORT)
    if metadata.producer_epoch == EPOCH_MAX:
        # No producer is given the highest epoch, but a log may say otherwise. Nothing is above it, so the
        # marker has the epoch of what it ends, as markers before version 2 have.
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
    """Every partition has its marker."""
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
