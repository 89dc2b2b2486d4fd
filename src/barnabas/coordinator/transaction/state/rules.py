"""Valid requests in each transaction state. Pure functions; errors are raised.

Three questions come up everywhere. Is this the producer that owns the transactional id (else
INVALID_PRODUCER_ID_MAPPING)? Does it have the newest epoch (else PRODUCER_FENCED)? Is the previous
transaction still being completed (then CONCURRENT_TRANSACTIONS: retry)?

A lost response makes a producer repeat its request, and a repetition must not be taken for the next
transaction. Before transaction version 2 the state alone tells: ending a transaction again in the same way is
a repetition. From version 2 on the epoch tells, since each end consumes one. The epoch just before the
current one is a repetition. The current one is a transaction without writes yet, which may only be aborted.
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.coordinator.producer import NO_PRODUCER, ProducerIdAndEpoch
from barnabas.coordinator.transaction.state.metadata import (
    EPOCH_MAX,
    LAST_EPOCH_FOR_PRODUCERS,
    TransactionMetadata,
    fenced,
    initialized,
    prepared,
)
from barnabas.coordinator.transaction.state.settings import EPOCH_BUMP_VERSION
from barnabas.coordinator.transaction.state.states import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    ONGOING,
    PREPARE_COMMIT,
    PREPARED,
)
from barnabas.core.errors import (
    ConcurrentTransactions,
    InvalidProducerIdMapping,
    InvalidTxnState,
    ProducerFenced,
)
from barnabas.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

TakeProducerId = Callable[[], int]
"""Returns an unused producer id; raises when none is available at once."""


def check_owner(metadata: TransactionMetadata | None, producer: ProducerIdAndEpoch) -> TransactionMetadata:
    """The metadata, if this producer may add to its transaction now."""
    if metadata is None:
        raise InvalidProducerIdMapping("no producer has initialized this transactional id")
    if metadata.state in PREPARED and producer == (metadata.next_producer_id, 0):
        # The id is promised to the producer for the time after the completion.
        raise ConcurrentTransactions("the previous transaction is still being completed")
    _check_newest(metadata, producer)
    if metadata.state in PREPARED:
        raise ConcurrentTransactions("the previous transaction is still being completed")
    if metadata.producer_epoch == EPOCH_MAX:
        raise ProducerFenced(f"producer {producer.producer_id} has used up its epochs")
    return metadata


# --- InitProducerId ---


def initialize(
    metadata: TransactionMetadata | None,
    transactional_id: str,
    timeout_ms: int,
    expected: ProducerIdAndEpoch,
    take_producer_id: TakeProducerId,
    now_ms: int,
) -> TransactionMetadata:
    """Metadata after InitProducerId: ready for the producer, or an open transaction being aborted."""
    if metadata is None:
        return initialized(
            None, transactional_id, take_producer_id(), 0, timeout_ms, now_ms, NO_PRODUCER_EPOCH
        )
    if expected != NO_PRODUCER:
        _check_expected(metadata, expected)
    if metadata.state in PREPARED:
        raise ConcurrentTransactions("the previous transaction is still being completed")
    if metadata.state is ONGOING:
        return fenced(metadata, now_ms)
    epoch, last_epoch = _next_epochs(metadata, expected)
    if epoch > LAST_EPOCH_FOR_PRODUCERS:
        # The producer, under the epoch of its request, may still repeat the request for its new id.
        return initialized(
            metadata, transactional_id, take_producer_id(), 0, timeout_ms, now_ms, expected.producer_epoch
        )
    return initialized(
        metadata, transactional_id, metadata.producer_id, epoch, timeout_ms, now_ms, last_epoch
    )


def _check_expected(metadata: TransactionMetadata, expected: ProducerIdAndEpoch) -> None:
    """Check the producer id of a request. It must be the current one, or the one before, whose epochs were
    used up and whose response with the new id was lost."""
    if expected.producer_id == metadata.producer_id:
        return
    if (
        expected.producer_id == metadata.previous_producer_id
        and expected.producer_epoch >= LAST_EPOCH_FOR_PRODUCERS
        and metadata.producer_epoch == 0
    ):
        return
    raise ProducerFenced(f"the transactional id belongs to producer {metadata.producer_id} now")


def _next_epochs(metadata: TransactionMetadata, expected: ProducerIdAndEpoch) -> tuple[int, int]:
    """The next epoch, and the one before it that may still repeat its request."""
    if expected == NO_PRODUCER:
        return metadata.producer_epoch + 1, NO_PRODUCER_EPOCH
    if expected.producer_epoch == metadata.producer_epoch:
        return metadata.producer_epoch + 1, metadata.producer_epoch
    if expected.producer_epoch == metadata.last_producer_epoch:
        return metadata.producer_epoch, metadata.last_producer_epoch
    raise ProducerFenced(
        f"producer {metadata.producer_id} is at epoch {metadata.producer_epoch}, "
        f"not {expected.producer_epoch}"
    )


# --- EndTxn ---


def end(
    metadata: TransactionMetadata | None,
    producer: ProducerIdAndEpoch,
    *,
    is_commit: bool,
    client_transaction_version: int,
    take_producer_id: TakeProducerId,
    now_ms: int,
) -> TransactionMetadata | None:
    """Metadata after EndTxn; None when the transaction has ended this way already."""
    if metadata is None:
        raise InvalidProducerIdMapping("no producer has initialized this transactional id")
    bumps_epoch = client_transaction_version >= EPOCH_BUMP_VERSION
    if bumps_epoch:
        is_repeated = _is_repeated_end(metadata, producer)
        if not is_repeated:
            check_owner(metadata, producer)
    else:
        _check_newest(metadata, producer)
        is_repeated = metadata.state in (COMPLETE_COMMIT, COMPLETE_ABORT)
    if metadata.state in PREPARED:
        if (metadata.state is PREPARE_COMMIT) != is_commit:
            raise _wrong_end(metadata, is_commit=is_commit)
        raise ConcurrentTransactions("the transaction is still being completed")
    if is_repeated:
        if (metadata.state is COMPLETE_COMMIT) == is_commit:
            return None
        raise _wrong_end(metadata, is_commit=is_commit)
    if metadata.state is not ONGOING and (is_commit or not bumps_epoch):
        raise _wrong_end(metadata, is_commit=is_commit)
    return prepared(
        metadata,
        is_commit=is_commit,
        now_ms=now_ms,
        client_transaction_version=client_transaction_version,
        next_producer_id=(
            take_producer_id() if bumps_epoch and metadata.is_epoch_exhausted else NO_PRODUCER_ID
        ),
    )


def _is_repeated_end(metadata: TransactionMetadata, producer: ProducerIdAndEpoch) -> bool:
    """Whether the producer repeats the EndTxn that ended the transaction (version 2)."""
    if not metadata.bumps_epoch or metadata.state not in (*PREPARED, COMPLETE_COMMIT, COMPLETE_ABORT):
        return False
    producer_id, epoch = producer
    if producer_id == metadata.producer_id:
        is_fenced_for_good = metadata.producer_epoch == EPOCH_MAX and metadata.next_producer_id < 0
        return epoch == metadata.producer_epoch - 1 and not is_fenced_for_good
    return (
        producer_id == metadata.previous_producer_id
        and epoch == LAST_EPOCH_FOR_PRODUCERS
        and metadata.producer_epoch == 0
    )


def _check_newest(metadata: TransactionMetadata, producer: ProducerIdAndEpoch) -> None:
    """Check that the producer owns the transactional id and has the newest epoch."""
    if metadata.producer_id != producer.producer_id:
        raise InvalidProducerIdMapping(
            f"the transactional id belongs to producer {metadata.producer_id}, not {producer.producer_id}"
        )
    if metadata.producer_epoch != producer.producer_epoch:
        raise ProducerFenced(
            f"producer {producer.producer_id} is at epoch {metadata.producer_epoch}, "
            f"not {producer.producer_epoch}"
        )


def _wrong_end(metadata: TransactionMetadata, *, is_commit: bool) -> InvalidTxnState:
    wish = "commit" if is_commit else "abort"
    return InvalidTxnState(f"the transaction is {metadata.state.shown_as}: there is nothing to {wish}")
