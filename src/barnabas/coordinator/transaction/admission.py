"""Before a transactional write: is its partition part of the producer's transaction?

A write that comes too late, from a producer that was fenced or in a transaction that has ended, would open a
transaction that nobody ever ends, and hold up all committed readers of the partition. So the first write of
a producer's transaction to a partition is checked with the coordinator (KIP-890); once the log itself has the
transaction open under this epoch, it knows. That it has not ended before the write is made is the business of
`verification`. Newer producers send no AddPartitionsToTxn any more: for them the check is an addition.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from barnabas.coordinator.transaction.errors import as_produce_error, not_in_transaction
from barnabas.coordinator.transaction.membership import TransactionMembership
from barnabas.coordinator.transaction.rules import ProducerIdAndEpoch
from barnabas.coordinator.transaction.settings import EPOCH_BUMP_VERSION
from barnabas.coordinator.transaction.verification import Verification
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
from barnabas.replication.partition import Partition
from barnabas.replication.replica_manager import ReplicaManager

_PRODUCER = struct.Struct(">qhi")
"""With the sequence of the first record."""

Refused = Mapping[TopicPartition, KafkaError]
NONE_REFUSED: Refused = {}


class Admission:
    """Which of the request's partitions may be written to, asked when that is done."""

    __slots__ = ("_refused", "_verification")

    def __init__(self, refused: Refused, verification: Verification | None) -> None:
        self._refused = refused
        self._verification = verification

    def check(self, topic_partition: TopicPartition, records: memoryview) -> None:
        error = self._refused.get(topic_partition)
        if error is not None:
            raise error
        if self._verification is not None and is_transactional(records):
            self._verification.check(topic_partition)


class TransactionalWrite(NamedTuple):
    """One that a request makes to a partition that is led here."""

    partition: TopicPartition
    producer: ProducerIdAndEpoch
    sequence: int
    is_ongoing: bool
    is_in_line: bool
    """It waits until another has reached the disk, and is made in a later turn of the loop."""

    @classmethod
    def of(cls, partition: Partition, records: memoryview) -> TransactionalWrite:
        producer_id, epoch, sequence = _PRODUCER.unpack_from(records, PRODUCER_ID_AT)
        producer = ProducerIdAndEpoch(producer_id, epoch)
        log = partition.log
        is_ongoing = log.producers.has_ongoing_transaction(*producer)
        return cls(partition.topic_partition, producer, sequence, is_ongoing, log.is_being_written)


class Dialect(NamedTuple):
    """What follows from the version that the producer speaks."""

    adds_partitions: bool
    """Its writes join the transaction by themselves."""
    is_verified: bool
    knows_abortable: bool

    def outside(self) -> KafkaError:
        return not_in_transaction(knows_abortable=self.knows_abortable)


class Admissions:
    """Asks for the writes of one request."""

    def __init__(
        self,
        replicas: ReplicaManager,
        membership: TransactionMembership,
        transactional_id: str,
        dialect: Dialect,
    ) -> None:
        self._replicas = replicas
        self._membership = membership
        self._transactional_id = transactional_id
        self._dialect = dialect

    def admit(
        self,
        writes: Sequence[TransactionalWrite],
        admit: Callable[[Admission | None], None],
        wait: Callable[[], None],
        *,
        is_one_turn: bool,
    ) -> None:
        """Call `admit`, now or, after `wait`, later; with nothing where every write is known to be part of
        its transaction, and all are made in one turn of the loop."""
        unchecked = [each for each in writes if not each.is_ongoing]
        if not unchecked:
            # Several partitions may be written in several turns of the loop, those that are led elsewhere
            # too, and so is what waits in line: a marker may come in between.
            is_one_turn = is_one_turn and not any(each.is_in_line for each in writes)
            admit(None if is_one_turn else Admission(NONE_REFUSED, self._guarded(writes)))
            return
        partitions = [each.partition for each in unchecked]
        producer, *others = {each.producer for each in unchecked}
        if others:
            error = InvalidProducerIdMapping("the records of one request come from several producers")
            admit(Admission(dict.fromkeys(partitions, error), None))
            return
        verification = self._guarded(writes)
        answer = _Answer(lambda refused: admit(Admission(refused, verification)))
        self._ask(partitions, producer, answer)
        if not answer.is_given:
            wait()
        answer.may_pass()

    def _guarded(self, writes: Sequence[TransactionalWrite]) -> Verification | None:
        if not self._dialect.is_verified:
            return None
        verification = Verification(self._replicas, self._dialect.outside())
        # Where each transaction has an epoch of its own, its first write to a partition has the sequence 0.
        is_from_zero = self._dialect.adds_partitions
        for each in writes:
            verification.begin(each.partition, each.producer, 0 if is_from_zero else each.sequence)
        return verification

    def _ask(
        self, partitions: Sequence[TopicPartition], producer: ProducerIdAndEpoch, answer: _Answer
    ) -> None:
        def refuse(error: KafkaError) -> None:
            answer.give(dict.fromkeys(partitions, as_produce_error(error)))

        def added(error: KafkaError | None) -> None:
            refuse(error) if error is not None else answer.give(NONE_REFUSED)

        def verified(missing: frozenset[TopicPartition]) -> None:
            answer.give(dict.fromkeys(missing, self._dialect.outside()))

        if self._dialect.adds_partitions:
            self._membership.add_partitions(
                self._transactional_id,
                producer,
                partitions,
                added,
                client_transaction_version=EPOCH_BUMP_VERSION,
            )
        elif self._dialect.is_verified:
            self._membership.verify(self._transactional_id, producer, partitions, verified, refuse)
        else:
            answer.give(NONE_REFUSED)


class _Answer:
    """The coordinator's answer, handed on when it is there and the records are safe."""

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
