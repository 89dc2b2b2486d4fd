"""States of a transactional producer, and the partitions and groups of its transaction.

The states and their order are those of Apache Kafka's TransactionManager. An error that concerns the
transaction alone is abortable: the application aborts and goes on. An error that concerns the producer, such
as a newer producer of the same id, is fatal: only a new producer helps.

There are two protocols (KIP-890). With version 2 a write adds its partition to the transaction by itself, and
the coordinator raises the epoch with every end. With version 1 the producer adds partitions before it writes,
and raises the epoch itself after an abort that an error caused.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from barnabas.client.core.client_errors import IllegalState
from barnabas.core.errors import (
    ClusterAuthorizationFailed,
    InvalidProducerIdMapping,
    KafkaError,
    ProducerFenced,
    TransactionalIdAuthorizationFailed,
    UnsupportedVersion,
)
from barnabas.core.ids import TopicPartition
from barnabas.core.transitions import Transitions

FATAL_ERRORS: Final = (
    ClusterAuthorizationFailed,
    InvalidProducerIdMapping,
    ProducerFenced,
    TransactionalIdAuthorizationFailed,
    UnsupportedVersion,
)


class TransactionStatus(Enum):
    UNINITIALIZED = "uninitialized"
    READY = "ready"
    IN_TRANSACTION = "in a transaction"
    COMMITTING = "committing"
    ABORTING = "aborting"
    ABORTABLE_ERROR = "in a transaction that failed"
    FATAL_ERROR = "unusable"


S = TransactionStatus

TRANSITIONS: Final = Transitions[TransactionStatus](
    {
        S.UNINITIALIZED: frozenset(),
        S.READY: frozenset({S.UNINITIALIZED, S.COMMITTING, S.ABORTING}),
        S.IN_TRANSACTION: frozenset({S.READY}),
        S.COMMITTING: frozenset({S.IN_TRANSACTION}),
        S.ABORTING: frozenset({S.IN_TRANSACTION, S.ABORTABLE_ERROR}),
        S.ABORTABLE_ERROR: frozenset({S.IN_TRANSACTION, S.COMMITTING, S.ABORTABLE_ERROR}),
        S.FATAL_ERROR: frozenset(S),
    }
)


class TransactionState:
    def __init__(self, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.status = S.UNINITIALIZED
        self.error: Exception | None = None
        """Reason of ABORTABLE_ERROR or FATAL_ERROR."""
        self.version = 1
        """Transaction protocol, 1 or 2. It changes only between transactions."""
        self.partitions: set[TopicPartition] = set()
        """Partitions that the coordinator knows, or with version 2 those that were sent to."""
        self.to_add: dict[TopicPartition, None] = {}
        """Partitions that wait to be added, with version 1."""
        self.has_group = False
        """True when offsets of a group are part of the transaction."""
        self.needs_new_epoch = False
        """True when the epoch must be raised after the abort, with version 1."""

    @property
    def is_fatal(self) -> bool:
        return self.status is S.FATAL_ERROR

    @property
    def is_begun_at_coordinator(self) -> bool:
        """True when the coordinator may have an open transaction, which must be ended there."""
        return bool(self.partitions) or self.has_group

    # --- calls of the application ---

    def initialized(self, version: int) -> None:
        self._go(S.READY)
        self.version = version

    def begin(self) -> None:
        self._check_usable()
        if self.status is not S.READY:
            raise IllegalState(f"begin_transaction: the producer is {self.status.value}")
        self._go(S.IN_TRANSACTION)

    def check_can_send(self) -> None:
        """Raise unless a transaction is open, in which records may be sent."""
        if self.status is S.IN_TRANSACTION:
            return
        if self.status is S.ABORTABLE_ERROR:
            assert self.error is not None
            raise self.error
        self._check_usable()
        raise IllegalState(f"records need an open transaction, and the producer is {self.status.value}")

    def begin_commit(self) -> None:
        """Begin the commit, or try one again that timed out."""
        if self.status is not S.COMMITTING:
            self.check_can_send()
            self._go(S.COMMITTING)

    def begin_abort(self) -> None:
        """Begin the abort, or try one again that timed out."""
        self._check_usable()
        if self.status is S.ABORTING:
            return
        if self.status not in (S.IN_TRANSACTION, S.ABORTABLE_ERROR):
            raise IllegalState(f"abort_transaction: the producer is {self.status.value}")
        self._go(S.ABORTING)

    def ended(self) -> None:
        """The coordinator has ended the transaction, or there was none."""
        self._go(S.READY)
        self.error = None
        self.partitions.clear()
        self.to_add.clear()
        self.has_group = self.needs_new_epoch = False

    # --- partitions ---

    def maybe_add(self, at: TopicPartition) -> bool:
        """Note a partition that is about to be written to; True when it must be added first."""
        if at in self.partitions or at in self.to_add:
            return False
        if self.version >= 2:
            self.partitions.add(at)
            return False
        self.to_add[at] = None
        return True

    def added(self, partitions: set[TopicPartition]) -> None:
        self.partitions |= partitions
        for at in partitions:
            self.to_add.pop(at, None)

    def may_send_to(self, at: TopicPartition) -> bool:
        """True when batches may go to a partition."""
        return self.status is not S.FATAL_ERROR and at in self.partitions

    # --- errors ---

    def batch_failed(self, error: Exception) -> None:
        """A batch of the transaction has failed for good."""
        if self.status is S.ABORTING or self.is_fatal:
            return
        if isinstance(error, FATAL_ERRORS):
            self.fail(error)
        elif self.status in (S.IN_TRANSACTION, S.COMMITTING, S.ABORTABLE_ERROR):
            self.needs_new_epoch = self.version < 2
            self._abortable(error)

    def lost_acknowledgement(self, message: str) -> None:
        if self.status in (S.IN_TRANSACTION, S.COMMITTING, S.ABORTABLE_ERROR):
            self.needs_new_epoch = self.version < 2
            self._abortable(IllegalState(message))

    def request_failed(self, error: Exception, *, is_end: bool = False) -> None:
        """A request to a coordinator has failed for good; `is_end` when it was to end the transaction."""
        if isinstance(error, FATAL_ERRORS) or not isinstance(error, KafkaError):
            self.fail(error)
        elif self.status in (S.IN_TRANSACTION, S.COMMITTING, S.ABORTABLE_ERROR):
            self.needs_new_epoch = self.version < 2
            self._abortable(error)
        elif self.status is not S.ABORTING or is_end:  # the abort takes back what another request has left
            self.fail(error)

    def fail(self, error: Exception) -> None:
        """The producer can no longer be used."""
        self._go(S.FATAL_ERROR)
        self.error = error

    def _abortable(self, error: Exception) -> None:
        if self.status is not S.ABORTABLE_ERROR:
            self.error = error
        self._go(S.ABORTABLE_ERROR)

    def _check_usable(self) -> None:
        if self.is_fatal:
            assert self.error is not None
            raise self.error

    def _go(self, status: TransactionStatus) -> None:
        TRANSITIONS.check(self.status, status)
        self.status = status
