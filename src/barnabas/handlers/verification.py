"""Between the coordinator's answer and the write: has the transaction ended meanwhile?

The coordinator answers for the moment when it was asked. A client that gives the request up may end its
transaction before the answer is here, and the marker may be in the log already: what is written then opens a
transaction that nobody ends. So a guard is taken from the log before the question leaves, and looked at when
the write is made (KIP-890). Nothing comes between that look and the append, since both are one turn of the
loop.
"""

from __future__ import annotations

from barnabas.coordinator.transaction.rules import ProducerIdAndEpoch
from barnabas.core.errors import KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.replication.replica_manager import ReplicaManager
from barnabas.storage.producer_state import VerificationGuard


class Verification:
    """The partitions that one producer's write waits for."""

    __slots__ = ("_guards", "_producer", "_replicas")

    def __init__(self, replicas: ReplicaManager, producer: ProducerIdAndEpoch) -> None:
        self._replicas = replicas
        self._producer = producer
        self._guards: dict[TopicPartition, VerificationGuard] = {}

    def begin(self, topic_partition: TopicPartition) -> None:
        """The coordinator is going to be asked about a partition that is led here."""
        log = self._replicas.partition(*topic_partition).log
        self._guards[topic_partition] = log.producers.guard(self._producer.producer_id)

    def is_void(self, topic_partition: TopicPartition) -> bool:
        """Whether what the coordinator said is about a transaction that is over in this log.

        A transaction that is open in the log was verified by whoever opened it."""
        guard = self._guards.get(topic_partition)
        if guard is None:
            return False
        try:
            producers = self._replicas.partition(*topic_partition).log.producers
        except KafkaError:
            return False  # the append will say so
        return not (
            producers.stands(self._producer.producer_id, guard)
            or producers.has_ongoing_transaction(*self._producer)
        )
