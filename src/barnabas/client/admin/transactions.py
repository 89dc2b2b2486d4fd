"""Transaction requests: list, describe, find and abort hanging transactions.

A transaction is recorded in two places. Its coordinator knows the transactional id and all partitions. Each
partition knows the producers with an open transaction in it. A transaction that a partition has open and no
coordinator knows *hangs*: it never ends, and readers of committed data wait for ever. `hanging` compares the
two records; `abort` writes a marker to the partition itself.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.core.cluster_state import TRANSACTION
from barnabas.client.core.steps import Steps, ask, raise_for
from barnabas.core.errors import TransactionalIdNotFound
from barnabas.core.ids import TopicPartition
from barnabas.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from barnabas.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from barnabas.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from barnabas.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)


@dataclass(frozen=True, slots=True)
class TransactionListing:
    transactional_id: str
    producer_id: int
    state: str
    coordinator_id: int


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    transactional_id: str
    producer_id: int
    producer_epoch: int
    state: str
    coordinator_id: int
    timeout_ms: int
    start_timestamp_ms: int
    """-1 without an open transaction."""
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """Open transaction of a producer in one partition, as its leader describes it."""

    topic_partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_timestamp_ms: int


class Transactions:
    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster

    async def list_all(
        self,
        *,
        states: Sequence[str] = (),
        producer_ids: Sequence[int] = (),
        longer_than_ms: int = -1,
    ) -> list[TransactionListing]:
        """Transactions of all coordinators, by transactional id."""
        cluster = self._cluster
        request = ListTransactionsRequest(
            state_filters=[*states], producer_id_filters=[*producer_ids], duration_filter=longer_than_ms
        )

        def attempt() -> Steps[list[TransactionListing]]:
            yield from cluster.state.refresh(())
            found: list[TransactionListing] = []
            for broker_id in [*cluster.state.brokers]:
                answer = yield from ask(broker_id, request, ListTransactionsResponse)
                raise_for(answer.error_code, None, f"transactions of broker {broker_id}")
                found += [
                    TransactionListing(
                        row.transactional_id, row.producer_id, row.transaction_state, broker_id
                    )
                    for row in answer.transaction_states
                ]
            return sorted(found, key=lambda each: each.transactional_id)

        return await cluster.run_with_retries(attempt)

    async def describe(self, transactional_id: str) -> TransactionDescription:
        def attempt() -> Steps[TransactionDescription]:
            coordinator_id = yield from self._cluster.state.coordinator(transactional_id, TRANSACTION)
            request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
            answer = yield from ask(coordinator_id, request, DescribeTransactionsResponse)
            (row,) = answer.transaction_states
            if row.error_code == TransactionalIdNotFound.code:
                raise TransactionalIdNotFound(f"there is no transactional id {transactional_id}")
            raise_for(row.error_code, None, f"transactional id {transactional_id}")
            return TransactionDescription(
                transactional_id,
                row.producer_id,
                row.producer_epoch,
                row.transaction_state,
                coordinator_id,
                row.transaction_timeout_ms,
                row.transaction_start_time_ms,
                tuple(
                    TopicPartition(topic.topic, number) for topic in row.topics for number in topic.partitions
                ),
            )

        return await self._cluster.run_with_retries(attempt)

    async def open_in(self, topic_partition: TopicPartition) -> list[OpenTransaction]:
        """Open transactions of a partition, oldest first."""
        name, number = topic_partition
        request = DescribeProducersRequest(topics=[TopicRequest(name=name, partition_indexes=[number])])

        def attempt() -> Steps[list[OpenTransaction]]:
            leader_id = yield from self._cluster.state.leader(topic_partition)
            answer = yield from ask(leader_id, request, DescribeProducersResponse)
            (row,) = answer.topics[0].partitions
            raise_for(row.error_code, row.error_message, f"producers of {topic_partition}")
            found = [
                OpenTransaction(
                    topic_partition,
                    each.producer_id,
                    each.producer_epoch,
                    each.coordinator_epoch,
                    each.current_txn_start_offset,
                    each.last_timestamp,
                )
                for each in row.active_producers
                if each.current_txn_start_offset >= 0
            ]
            return sorted(found, key=lambda each: each.start_offset)

        return await self._cluster.run_with_retries(attempt)

    async def hanging(self, topics: Collection[str]) -> list[OpenTransaction]:
        """Open transactions in these topics that no coordinator will end."""
        found: list[OpenTransaction] = []
        for name in topics:
            topic = await self._cluster.topic(name)
            for partition in topic.partitions:
                found += await self.open_in(TopicPartition(name, partition.index))
        if not found:
            return []
        known = {
            each.producer_id: each
            for each in await self.list_all(producer_ids=sorted({each.producer_id for each in found}))
        }
        hangs: list[OpenTransaction] = []
        for each in found:
            listed = known.get(each.producer_id)
            if listed is None or not await self._has(listed.transactional_id, each):
                hangs.append(each)
        return hangs

    async def _has(self, transactional_id: str, suspect: OpenTransaction) -> bool:
        try:
            described = await self.describe(transactional_id)
        except TransactionalIdNotFound:
            return False
        return (
            described.producer_id == suspect.producer_id and suspect.topic_partition in described.partitions
        )

    async def abort(self, transaction: OpenTransaction) -> None:
        """Write the abort marker of the transaction to its partition, and to no other."""
        name, number = transaction.topic_partition
        marker = WritableTxnMarker(
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(name=name, partition_indexes=[number])],
            coordinator_epoch=max(transaction.coordinator_epoch, 0),
        )

        def attempt() -> Steps[None]:
            leader_id = yield from self._cluster.state.leader(transaction.topic_partition)
            answer = yield from ask(
                leader_id, WriteTxnMarkersRequest(markers=[marker]), WriteTxnMarkersResponse
            )
            code = answer.markers[0].topics[0].partitions[0].error_code
            raise_for(code, None, f"aborting in {transaction.topic_partition}")

        await self._cluster.run_with_retries(attempt)
