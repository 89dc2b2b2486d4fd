"""Asks the transaction coordinator, on any broker, which partitions are part of a transaction.

A leader asks before the first write of a transaction to a partition. If this broker coordinates the
transactional id, the question is a call. Otherwise it is an AddPartitionsToTxn to the leader of the id's
partition. Without an answer the producer has to retry: an unverified write is not appended.

A client has the right to a transactional id, and its records name a producer id. Only the coordinator knows
that both belong together. It is asked once per connection and pair. `ProvenProducers` remembers the pair
until the connection ends.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from barnabas.cluster.metadata.cache import MetadataCache
from barnabas.coordinator.producer import ProducerIdAndEpoch
from barnabas.coordinator.runtime.peers import Peers, Start
from barnabas.coordinator.transaction.coordinator import TRANSACTION_TOPIC, TransactionCoordinator
from barnabas.coordinator.transaction.state.settings import EPOCH_BUMP_VERSION
from barnabas.core.errors import (
    NONE,
    CoordinatorNotAvailable,
    KafkaError,
    OperationNotAttempted,
    TransactionAbortable,
    error_for,
)
from barnabas.core.ids import NO_LEADER, BrokerId, TopicPartition
from barnabas.core.limits import PROVEN_PRODUCERS_PER_CONNECTION_MAX
from barnabas.core.reporting.error_isolation import complain
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

Missing = Callable[[frozenset[TopicPartition]], None]
Refuse = Callable[[KafkaError], None]


class AddPartitionsToTxnManager:
    def __init__(
        self,
        broker_id: BrokerId,
        coordinator: TransactionCoordinator,
        metadata: MetadataCache,
        peers: Peers | None,
        start: Start,
    ) -> None:
        """`peers` is None on a single node."""
        self._broker_id = broker_id
        self._coordinator = coordinator
        self._metadata = metadata
        self._peers = peers
        self._start = start
        self.proven = ProvenProducers()

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        done: Callable[[KafkaError | None], None],
        *,
        client_transaction_version: int,
    ) -> None:
        coordinator_id = self._coordinator_of(transactional_id)
        if coordinator_id == self._broker_id:
            self._coordinator.add_partitions(
                transactional_id,
                producer,
                partitions,
                done,
                client_transaction_version=client_transaction_version,
            )
            return
        assert client_transaction_version == EPOCH_BUMP_VERSION, "older producers add partitions themselves"

        async def ask() -> None:
            try:
                codes = await self._ask(
                    coordinator_id, transactional_id, producer, partitions, verify_only=False
                )
            except Exception as error:  # noqa: BLE001 - the producer waits for an answer
                done(_unavailable(error))
                return
            refused = _refusal(codes, NONE)
            if refused is not None:
                done(refused)
            elif any(each not in codes for each in partitions):
                done(CoordinatorNotAvailable("the coordinator has not answered for every partition"))
            else:
                done(None)

        self._start(ask())

    def verify(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        done: Missing,
        refuse: Refuse,
    ) -> None:
        coordinator_id = self._coordinator_of(transactional_id)
        if coordinator_id == self._broker_id:
            self._coordinator.verify(transactional_id, producer, partitions, done, refuse)
            return

        async def ask() -> None:
            try:
                codes = await self._ask(
                    coordinator_id, transactional_id, producer, partitions, verify_only=True
                )
            except Exception as error:  # noqa: BLE001 - the producer waits for an answer
                refuse(_unavailable(error))
                return
            refused = _refusal(codes, NONE, TransactionAbortable.code)
            if refused is not None:
                refuse(refused)
            else:
                done(frozenset(each for each in partitions if codes.get(each) != NONE))

        self._start(ask())

    def _coordinator_of(self, transactional_id: str) -> int:
        """Broker that leads the id's partition; this broker if there is no leader."""
        number = self._coordinator.partition_for(transactional_id)
        known = self._metadata.partition(TRANSACTION_TOPIC, number)
        return self._broker_id if known is None or known.leader == NO_LEADER else known.leader

    async def _ask(
        self,
        coordinator_id: int,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        *,
        verify_only: bool,
    ) -> dict[TopicPartition, int]:
        by_topic: defaultdict[str, list[int]] = defaultdict(list)
        for topic, partition in partitions:
            by_topic[topic].append(partition)
        request = AddPartitionsToTxnRequest(
            transactions=[
                AddPartitionsToTxnTransaction(
                    transactional_id=transactional_id,
                    producer_id=producer.producer_id,
                    producer_epoch=producer.producer_epoch,
                    verify_only=verify_only,
                    topics=[
                        AddPartitionsToTxnTopic(name=name, partitions=numbers)
                        for name, numbers in by_topic.items()
                    ],
                )
            ]
        )
        if self._peers is None:
            raise CoordinatorNotAvailable(f"broker {coordinator_id} is not in the cluster now")
        answer = await self._peers.send(coordinator_id, request, AddPartitionsToTxnResponse)
        if answer.error_code:
            raise error_for(answer.error_code)
        return {
            TopicPartition(topic.name, row.partition_index): row.partition_error_code
            for result in answer.results_by_transaction
            for topic in result.topic_results
            for row in topic.results_by_partition
        }


def _refusal(codes: Mapping[TopicPartition, int], *accepted: int) -> KafkaError | None:
    """Error of the whole request. OPERATION_NOT_ATTEMPTED only means that another partition failed, perhaps
    one that the coordinator does not know yet: then the producer has to retry."""
    refused = [code for code in codes.values() if code not in accepted]
    causes = [code for code in refused if code != OperationNotAttempted.code]
    return error_for((causes or refused)[0]) if refused else None


def _unavailable(error: Exception) -> KafkaError:
    """Retriable error: an unavailable coordinator is not the producer's fault."""
    if isinstance(error, KafkaError):
        return CoordinatorNotAvailable(error.message)
    complain("asking a transaction coordinator", "", error)
    return CoordinatorNotAvailable("the coordinator could not be asked")


class ProducerConnection(Protocol):
    """Connection of a producer."""

    def when_closed(self, action: Callable[[], None]) -> None: ...


class ProvenProducers:
    """Producer ids that each connection has proven for its transactional ids."""

    def __init__(self) -> None:
        self._proven: dict[ProducerConnection, set[tuple[str, int]]] = {}

    def __len__(self) -> int:
        return len(self._proven)

    def knows(self, connection: ProducerConnection, transactional_id: str, producer_id: int) -> bool:
        return (transactional_id, producer_id) in self._proven.get(connection, ())

    def add(self, connection: ProducerConnection, transactional_id: str, producer_id: int) -> None:
        known = self._proven.get(connection)
        if known is None:
            known = self._proven[connection] = set()
            connection.when_closed(lambda: self._forget(connection))
        if len(known) >= PROVEN_PRODUCERS_PER_CONNECTION_MAX:
            known.clear()  # they are verified again
        known.add((transactional_id, producer_id))

    def _forget(self, connection: ProducerConnection) -> None:
        self._proven.pop(connection, None)
