"""The same failure under the name that a client of this version knows.

- PRODUCER_FENCED came with KIP-588; before that a fenced producer hears INVALID_PRODUCER_EPOCH. A producer
  whose write is refused hears INVALID_PRODUCER_EPOCH in any version.
- TRANSACTION_ABORTABLE came with KIP-890; before that a write outside of a transaction is INVALID_TXN_STATE.
- A coordinator that cannot say yet is no reason for a producer to give up: it hears NOT_ENOUGH_REPLICAS,
  which every version tries again without asking for metadata first.
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
    """What a coordinator's refusal means to a producer that writes."""
    if isinstance(error, ProducerFenced):
        return InvalidProducerEpoch(error.message)
    return error


def as_produce_error(error: KafkaError) -> KafkaError:
    if isinstance(
        error, ConcurrentTransactions | CoordinatorLoadInProgress | CoordinatorNotAvailable | NotCoordinator
    ):
        return NotEnoughReplicas(error.message)
    return as_write_error(error)
