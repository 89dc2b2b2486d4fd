"""Transaction errors under the names that a client of an older version knows.

- PRODUCER_FENCED came with KIP-588; older versions get INVALID_PRODUCER_EPOCH. A refused write gets
  INVALID_PRODUCER_EPOCH in any version.
- TRANSACTION_ABORTABLE came with KIP-890; older versions get INVALID_TXN_STATE for a write outside of a
  transaction.
- An unavailable coordinator must not make a producer give up: it gets NOT_ENOUGH_REPLICAS, which every
  version retries without asking for metadata first.
"""

from __future__ import annotations

from barnabas.core.errors import (
    ConcurrentTransactions,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InvalidProducerEpoch,
    InvalidTxnState,
    KafkaError,
    NotCoordinator,
    NotEnoughReplicas,
    ProducerFenced,
    TransactionAbortable,
)


def fenced_code(code: int, api_version: int, first_version_with_fenced: int) -> int:
    """`code`, in a version that may not know PRODUCER_FENCED."""
    if code == ProducerFenced.code and api_version < first_version_with_fenced:
        return InvalidProducerEpoch.code
    return code


def not_in_transaction(*, knows_abortable: bool) -> KafkaError:
    message = "the partition is not part of the producer's transaction"
    return TransactionAbortable(message) if knows_abortable else InvalidTxnState(message)


def as_write_error(error: KafkaError) -> KafkaError:
    """Error of a produce whose verification the coordinator refuses."""
    if isinstance(error, ProducerFenced):
        return InvalidProducerEpoch(error.message)
    return error


def as_produce_error(error: KafkaError) -> KafkaError:
    if isinstance(
        error, ConcurrentTransactions | CoordinatorLoadInProgress | CoordinatorNotAvailable | NotCoordinator
    ):
        return NotEnoughReplicas(error.message)
    return as_write_error(error)
