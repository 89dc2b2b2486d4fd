"""Verification of the transactional writes of one produce request, before they are appended.

A late write, from a fenced producer or after the end of its transaction, would open a transaction that never
ends. It would hold up all read_committed consumers of the partition. So the first write of a transaction to a
partition is verified with the coordinator (KIP-890). Once the log has the transaction open under this epoch,
no further check is needed. `verification_guard` ensures that the transaction does not end before the append.
Newer producers send no AddPartitionsToTxn any more: for them the verification adds the partition.

The log knows producer ids and no transactional ids. A client must not write into the open transaction of
another under its own transactional id. So the coordinator is also asked for the first write of each
connection (`ProvenProducers`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from barnabas.coordinator.producer import ProducerIdAndEpoch
from barnabas.coordinator.transaction.state.errors import as_produce_error, not_in_transaction
from barnabas.coordinator.transaction.state.settings import EPOCH_BUMP_VERSION
from barnabas.coordinator.transaction.verification.add_partitions_to_txn_manager import (
    AddPartitionsToTxnManager,
)
from barnabas.coordinator.transaction.verification.verification_guard import VerificationGuards
from barnabas.core.errors import InvalidProducerIdMapping, KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.records.batch import (
    ATTRIBUTES_AT,
    HEADER_BYTES,
    MAGIC,
    MAGIC_AT,
    PRODUCER_ID_AT,
    TRANSACTIONAL_FLAG,
)
from barnabas.replication.partition.partition import Partition
from barnabas.replication.replica_manager import ReplicaManager

_PRODUCER = struct.Struct(">qhi")
"""Producer id, epoch, and the sequence of the first record."""

Refused = Mapping[TopicPartition, KafkaError]
NONE_REFUSED: Refused = {}


class VerifiedWrites:
    """Partitions of the request that may be written to, checked again at the append."""

    __slots__ = ("_guards", "_refused")

    def __init__(self, refused: Refused, guards: VerificationGuards | None) -> None:
        self._refused = refused
        self._guards = guards

    def check(self, topic_partition: TopicPartition, records: memoryview) -> None:
        error = self._refused.get(topic_partition)
        if error is not None:
            raise error
        if self._guards is not None and is_transactional(records):
            self._guards.check(topic_partition)


class TransactionalWrite(NamedTuple):
    """Write of a request to a partition that is led here."""

    partition: TopicPartition
    producer: ProducerIdAndEpoch
    sequence: int
    is_ongoing: bool
    is_in_line: bool
    """The append waits behind a write in progress and happens in a later turn of the loop."""

    @classmethod
    def of(cls, partition: Partition, records: memoryview) -> TransactionalWrite:
        producer_id, epoch, sequence = _PRODUCER.unpack_from(records, PRODUCER_ID_AT)
        producer = ProducerIdAndEpoch(producer_id, epoch)
        log = partition.log
        is_ongoing = log.producers.has_ongoing_transaction(*producer)
        return cls(partition.topic_partition, producer, sequence, is_ongoing, log.is_being_written)


class TransactionSupportedOperation(NamedTuple):
    """Behaviour that depends on the producer's API version."""

    adds_partitions: bool
    """A write adds its partition to the transaction."""
    is_verified: bool
    knows_abortable: bool

    def outside(self) -> KafkaError:
        return not_in_transaction(knows_abortable=self.knows_abortable)


class TransactionVerification:
    """Verification of the writes of one request."""

    def __init__(
        self,
        replicas: ReplicaManager,
        manager: AddPartitionsToTxnManager,
        transactional_id: str,
        operation: TransactionSupportedOperation,
        proven: Callable[[ProducerIdAndEpoch], None],
    ) -> None:
        """`proven` is called with each producer that the coordinator knows under the transactional id."""
        self._proven = proven
        self._replicas = replicas
        self._manager = manager
        self._transactional_id = transactional_id
        self._operation = operation

    def verify(
        self,
        writes: Sequence[TransactionalWrite],
        admit: Callable[[VerifiedWrites | None], None],
        wait: Callable[[], None],
        *,
        is_one_turn: bool,
    ) -> None:
        """Call `admit` now or, after `wait`, later. It gets None if every write is known to be part of its
        transaction, and all are appended in one turn of the loop."""
        unchecked = [each for each in writes if not each.is_ongoing]
        if not unchecked:
            # Several partitions may be appended in several turns of the loop, and so are writes that wait in
            # line: a marker may come in between.
            is_one_turn = is_one_turn and not any(each.is_in_line for each in writes)
            admit(None if is_one_turn else VerifiedWrites(NONE_REFUSED, self._guarded(writes)))
            return
        partitions = [each.partition for each in unchecked]
        producer, *others = {each.producer for each in unchecked}
        if others:
            error = InvalidProducerIdMapping("the records of one request come from several producers")
            admit(VerifiedWrites(dict.fromkeys(partitions, error), None))
            return
        guards = self._guarded(writes)

        def answered(refused: Refused) -> None:
            if not refused:
                self._proven(producer)
            admit(VerifiedWrites(refused, guards))

        answer = _Answer(answered)
        self._ask(partitions, producer, answer)
        if not answer.is_given:
            wait()
        answer.may_pass()

    def _guarded(self, writes: Sequence[TransactionalWrite]) -> VerificationGuards | None:
        if not self._operation.is_verified:
            return None
        guards = VerificationGuards(self._replicas, self._operation.outside())
        # If each transaction has an epoch of its own, its first write to a partition has the sequence 0.
        is_from_zero = self._operation.adds_partitions
        for each in writes:
            guards.begin(each.partition, each.producer, 0 if is_from_zero else each.sequence)
        return guards

    def _ask(
        self, partitions: Sequence[TopicPartition], producer: ProducerIdAndEpoch, answer: _Answer
    ) -> None:
        def refuse(error: KafkaError) -> None:
            answer.give(dict.fromkeys(partitions, as_produce_error(error)))

        def added(error: KafkaError | None) -> None:
            refuse(error) if error is not None else answer.give(NONE_REFUSED)

        def verified(missing: frozenset[TopicPartition]) -> None:
            answer.give(dict.fromkeys(missing, self._operation.outside()))

        if self._operation.adds_partitions:
            self._manager.add_partitions(
                self._transactional_id,
                producer,
                partitions,
                added,
                client_transaction_version=EPOCH_BUMP_VERSION,
            )
        elif self._operation.is_verified:
            self._manager.verify(self._transactional_id, producer, partitions, verified, refuse)
        else:
            answer.give(NONE_REFUSED)


class _Answer:
    """Answer of the coordinator, handed on when it has arrived and the records are safe."""

    __slots__ = ("_admit", "_is_passing", "_refused")

    def __init__(self, admit: Callable[[Refused], None]) -> None:
        self._admit = admit
        self._refused: Refused | None = None
        self._is_passing = False

    @property
    def is_given(self) -> bool:
        return self._refused is not None

    def give(self, refused: Refused) -> None:
        self._refused = refused
        if self._is_passing:
            self._admit(refused)

    def may_pass(self) -> None:
        self._is_passing = True
        if self._refused is not None:
            self._admit(self._refused)


def is_transactional(records: memoryview) -> bool:
    return (
        len(records) >= HEADER_BYTES
        and records[MAGIC_AT] == MAGIC
        and bool(records[ATTRIBUTES_AT + 1] & TRANSACTIONAL_FLAG)
    )
