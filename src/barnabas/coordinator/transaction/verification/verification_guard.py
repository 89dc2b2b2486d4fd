"""Verification guard: detects that a transaction ended between its verification and the append.

The coordinator's answer holds for the moment of the question. A client that gives the request up may end its
transaction before the answer arrives. The marker may be in the log already, and the write would open a
transaction that never ends. So a guard is taken from the log before the question leaves, and checked at the
append (KIP-890). Nothing comes between that check and the append, since both are one turn of the loop.

A request waits as a whole. So guards are taken for all of its partitions, also for those whose transaction is
open and needed no question. A partition that was not led here when the request came is not written to later.
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas.coordinator.producer import ProducerIdAndEpoch
from barnabas.core.errors import KafkaError, NotLeaderOrFollower
from barnabas.core.ids import TopicPartition
from barnabas.records.batch import NO_SEQUENCE
from barnabas.replication.replica_manager import ReplicaManager
from barnabas.storage.producers.waiting_writes import FirstWrite, VerificationGuard


class _Guarded(NamedTuple):
    producer: ProducerIdAndEpoch
    guard: VerificationGuard


class VerificationGuards:
    """Guards of the partitions of a waiting request, each with its producer."""

    __slots__ = ("_guarded", "_outside", "_replicas")

    def __init__(self, replicas: ReplicaManager, outside: KafkaError) -> None:
        """`outside` is the error of a write whose transaction has ended."""
        self._replicas = replicas
        self._outside = outside
        self._guarded: dict[TopicPartition, _Guarded] = {}

    def begin(
        self, topic_partition: TopicPartition, producer: ProducerIdAndEpoch, first_sequence: int = NO_SEQUENCE
    ) -> None:
        """Take a guard before the request waits; raises if the partition is not here. If the verification
        fails, a producer that begins there begins with `first_sequence`, or before it."""
        producers = self._replicas.partition(*topic_partition).log.producers
        self._guarded[topic_partition] = _Guarded(producer, producers.waiting.guard(producer.producer_id))
        if first_sequence >= 0:
            producers.await_first(producer.producer_id, FirstWrite(producer.producer_epoch, first_sequence))

    def check(self, topic_partition: TopicPartition) -> None:
        """Raise unless the partition may be written to now."""
        guarded = self._guarded.get(topic_partition)
        if guarded is None:
            raise NotLeaderOrFollower(f"{topic_partition} was not led here when the request came")
        producers = self._replicas.partition(*topic_partition).log.producers
        # A transaction that is open in the log was verified when it was opened.
        if not (
            producers.waiting.stands(guarded.producer.producer_id, guarded.guard)
            or producers.has_ongoing_transaction(*guarded.producer)
        ):
            raise self._outside
