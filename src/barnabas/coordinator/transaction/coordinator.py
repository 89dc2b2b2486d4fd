"""Transaction coordinator as the request handlers see it: routes to the shard of each transactional id.

Every method calls back exactly once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeVar

from barnabas.coordinator.producer import ProducerIdAndEpoch
from barnabas.coordinator.runtime.decision import Decision, Waiter
from barnabas.coordinator.runtime.routing import partition_of
from barnabas.coordinator.runtime.runtime import CoordinatorRuntime
from barnabas.coordinator.transaction.shard import TransactionShard
from barnabas.coordinator.transaction.state.settings import TransactionSettings
from barnabas.core.errors import (
    ConcurrentTransactions,
    InvalidRequest,
    KafkaError,
    MessageTooLarge,
    UnknownServerError,
)
from barnabas.core.ids import TopicPartition
from barnabas.core.reporting.error_isolation import complain

TRANSACTION_TOPIC = "__transaction_state"
NO_PARTITION = -1

R = TypeVar("R")


class TransactionCoordinator:
    def __init__(
        self,
        runtime: CoordinatorRuntime[TransactionShard],
        settings: TransactionSettings,
        partition_count: Callable[[], int | None],
    ) -> None:
        self.runtime = runtime
        self.settings = settings
        self._partition_count = partition_count

    def partition_for(self, transactional_id: str) -> int:
        """Partition of the id; one that does not exist while the number of partitions is unknown."""
        count = self._partition_count()
        return NO_PARTITION if count is None else partition_of(transactional_id, count)

    def run(
        self,
        transactional_id: str,
        decide: Callable[[TransactionShard], Decision[R]],
        respond: Callable[[R], None],
        refuse: Callable[[KafkaError], None],
    ) -> None:
        """Run an operation on the shard of the transactional id (`CoordinatorRuntime.run`)."""
        if not transactional_id:
            refuse(InvalidRequest("a transactional id has at least one character"))
        else:
            self.runtime.run(self.partition_for(transactional_id), decide, respond, refuse)

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        answer: Callable[[KafkaError | None], None],
        *,
        client_transaction_version: int,
    ) -> None:
        """Add the partitions to the producer's transaction, which begins with the first of them.

        If the previous transaction is still being completed, wait a moment for that.
        """
        _Adding(
            self, transactional_id, producer, frozenset(partitions), client_transaction_version, answer
        ).begin()

    def verify(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        done: Callable[[frozenset[TopicPartition]], None],
        refuse: Callable[[KafkaError], None],
    ) -> None:
        """Find the partitions that are not part of the producer's open transaction."""
        asked = frozenset(partitions)
        self.run(
            transactional_id, lambda shard: shard.verify(transactional_id, producer, asked), done, refuse
        )


class _Adding:
    """AddPartitionsToTxn in progress: tried once, and once more when the previous transaction is complete."""

    __slots__ = ("_answer", "_coordinator", "_id", "_partitions", "_producer", "_version")

    def __init__(
        self,
        coordinator: TransactionCoordinator,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: frozenset[TopicPartition],
        client_transaction_version: int,
        answer: Callable[[KafkaError | None], None],
    ) -> None:
        self._coordinator = coordinator
        self._id = transactional_id
        self._producer = producer
        self._partitions = partitions
        self._version = client_transaction_version
        self._answer = answer

    def begin(self) -> None:
        self._coordinator.run(self._id, self._add, self._added, self._refused)

    def _add(self, shard: TransactionShard) -> Decision[bool]:
        return shard.add_partitions(self._id, self._producer, self._partitions, self._version)

    def _added(self, _: bool) -> None:
        self._answer(None)

    def _refused(self, error: KafkaError) -> None:
        if not isinstance(error, ConcurrentTransactions):
            self._finish(error)
            return
        waiter = Waiter(self._add_again, self._finish)
        self._coordinator.run(
            self._id, lambda shard: shard.await_completion(self._id, waiter), waiter.respond, waiter.refuse
        )

    def _add_again(self, _: None) -> None:
        self._coordinator.run(self._id, self._add, self._added, self._finish)

    def _finish(self, error: KafkaError | None) -> None:
        self._answer(_too_many(self._id, error) if isinstance(error, MessageTooLarge) else error)


def _too_many(transactional_id: str, error: MessageTooLarge) -> KafkaError:
    """Error for too many partitions. The producer has sent nothing too large, and must not retry in smaller
    pieces."""
    complain("adding partitions to transactional id", transactional_id, error)
    return UnknownServerError(f"the transaction has too many partitions: {error.message}")
