"""Transactions of a transactional id, as steps: begin, add partitions, commit offsets, end.

The requests use the versions before transaction protocol 2. There, partitions are added before they are
written to, and only InitProducerId changes the epoch. A producer whose writers are spread over machines must
know its epoch beforehand.

Transient errors are retried: a coordinator that loads or moved, and CONCURRENT_TRANSACTIONS, which means that
the previous transaction is still completing. Others are raised; PRODUCER_FENCED and INVALID_PRODUCER_EPOCH
mean that a newer producer has taken over.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from barnabas.client.core.cluster_state import GROUP, TRANSACTION, ClusterState
from barnabas.client.core.steps import ANY_BROKER, Steps, ask, raise_for
from barnabas.core.errors import InvalidProducerEpoch, InvalidTxnState, ProducerFenced
from barnabas.core.ids import TopicPartition
from barnabas.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from barnabas.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from barnabas.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from barnabas.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

T = TypeVar("T")

ADD_PARTITIONS_VERSION: Final = 3
ADD_OFFSETS_VERSION: Final = 4
TXN_OFFSET_COMMIT_VERSION: Final = 4
END_TXN_VERSION: Final = 4
OFFSET_FETCH_VERSION: Final = 8
IDEMPOTENT_TIMEOUT_MS: Final = 60_000

_OPERATION_NOT_ATTEMPTED: Final = 55

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Transaction:
    """Transaction of one producer epoch; Spark's tasks receive a copy."""

    transactional_id: str
    producer_id: int
    epoch: int
    timeout_ms: int
    """At most the brokers' transaction.max.timeout.ms."""


def begin(state: ClusterState, transactional_id: str, timeout_ms: int) -> Steps[Transaction]:
    """Begin under a new epoch: fence earlier producers of the id and abort their open transaction."""

    def attempt() -> Steps[Transaction]:
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
        coordinator = yield from state.coordinator(transactional_id, TRANSACTION)
        answer = yield from ask(coordinator, request, InitProducerIdResponse)
        raise_for(answer.error_code, None, f"beginning a transaction of {transactional_id}")
        return Transaction(transactional_id, answer.producer_id, answer.producer_epoch, timeout_ms)

    return (yield from _retrying(state, attempt))


def idempotent_producer(state: ClusterState) -> Steps[tuple[int, int]]:
    """Producer id and epoch for idempotent writes, outside of any transaction."""

    def attempt() -> Steps[tuple[int, int]]:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=IDEMPOTENT_TIMEOUT_MS)
        answer = yield from ask(ANY_BROKER, request, InitProducerIdResponse)
        raise_for(answer.error_code, None, "getting a producer id")
        return answer.producer_id, answer.producer_epoch

    return (yield from _retrying(state, attempt))


def begin_again(state: ClusterState, txn: Transaction, timeout_ms: int) -> Steps[Transaction]:
    """Abort `txn` and begin again under the next epoch, which its other writers do not have.

    The coordinator rejects it unless `txn` is the newest of its id: a fenced producer must not fence its
    successor.
    """
    try:
        yield from end(state, txn, commit=False)
    except InvalidTxnState:
        logger.debug("%s: nothing to abort", txn)

    def attempt() -> Steps[Transaction]:
        request = InitProducerIdRequest(
            transactional_id=txn.transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=txn.producer_id,
            producer_epoch=txn.epoch,
        )
        coordinator = yield from state.coordinator(txn.transactional_id, TRANSACTION)
        answer = yield from ask(coordinator, request, InitProducerIdResponse)
        raise_for(answer.error_code, None, f"beginning a transaction of {txn.transactional_id} again")
        return Transaction(txn.transactional_id, answer.producer_id, answer.producer_epoch, timeout_ms)

    return (yield from _retrying(state, attempt))


def open_partitions(state: ClusterState, txn: Transaction) -> Steps[set[TopicPartition]]:
    """Partitions of the transaction. PRODUCER_FENCED when a newer producer has taken over."""
    found = yield from _describe(state, txn.transactional_id)
    if (found.producer_id, found.producer_epoch) != (txn.producer_id, txn.epoch):
        raise ProducerFenced(f"{txn.transactional_id} is at epoch {found.producer_epoch}, not {txn.epoch}")
    return {TopicPartition(row.topic, number) for row in found.topics for number in row.partitions}


def is_current(state: ClusterState, txn: Transaction) -> Steps[bool]:
    """True while no newer producer has begun a transaction of that id."""
    found = yield from _describe(state, txn.transactional_id)
    return (found.producer_id, found.producer_epoch) == (txn.producer_id, txn.epoch)


def _describe(state: ClusterState, transactional_id: str) -> Steps[TransactionState]:
    """State of a transactional id. UNSUPPORTED_VERSION where brokers lack DescribeTransactions."""

    def attempt() -> Steps[TransactionState]:
        coordinator = yield from state.coordinator(transactional_id, TRANSACTION)
        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        (row,) = (yield from ask(coordinator, request, DescribeTransactionsResponse)).transaction_states
        raise_for(row.error_code, None, f"describing the transaction of {transactional_id}")
        return row

    return (yield from _retrying(state, attempt))


def add_partitions(
    state: ClusterState, txn: Transaction, partitions: Collection[TopicPartition]
) -> Steps[None]:
    """Add partitions to the transaction, before the first batch goes to them."""
    if not partitions:
        return
    topics: dict[str, list[int]] = defaultdict(list)
    for topic_partition in partitions:
        topics[topic_partition.topic].append(topic_partition.partition)
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=txn.transactional_id,
        v3_and_below_producer_id=txn.producer_id,
        v3_and_below_producer_epoch=txn.epoch,
        v3_and_below_topics=[
            AddPartitionsToTxnTopic(name=name, partitions=numbers) for name, numbers in topics.items()
        ],
    )

    def attempt() -> Steps[None]:
        coordinator = yield from state.coordinator(txn.transactional_id, TRANSACTION)
        answer = yield from ask(coordinator, request, AddPartitionsToTxnResponse, ADD_PARTITIONS_VERSION)
        codes = [
            row.partition_error_code
            for topic in answer.results_by_topic_v3_and_below
            for row in topic.results_by_partition
        ]
        # Partitions without a fault of their own get OPERATION_NOT_ATTEMPTED, which has no reason in it.
        telling = [code for code in codes if code not in {0, _OPERATION_NOT_ATTEMPTED}]
        raise_for(next(iter(telling or codes), 0), None, f"adding partitions to {txn.transactional_id}")

    yield from _retrying(state, attempt)


def commit_offsets(
    state: ClusterState, txn: Transaction, group: str, offsets: Mapping[TopicPartition, int], metadata: str
) -> Steps[None]:
    """Commit offsets of a group as part of the transaction."""
    adding = AddOffsetsToTxnRequest(
        transactional_id=txn.transactional_id,
        producer_id=txn.producer_id,
        producer_epoch=txn.epoch,
        group_id=group,
    )
    topics: dict[str, list[TxnOffsetCommitRequestPartition]] = defaultdict(list)
    for topic_partition, offset in sorted(offsets.items()):
        topics[topic_partition.topic].append(
            TxnOffsetCommitRequestPartition(
                partition_index=topic_partition.partition,
                committed_offset=offset,
                committed_metadata=metadata,
            )
        )
    committing = TxnOffsetCommitRequest(
        transactional_id=txn.transactional_id,
        group_id=group,
        producer_id=txn.producer_id,
        producer_epoch=txn.epoch,
        topics=[TxnOffsetCommitRequestTopic(name=name, partitions=rows) for name, rows in topics.items()],
    )

    def add() -> Steps[None]:
        coordinator = yield from state.coordinator(txn.transactional_id, TRANSACTION)
        answer = yield from ask(coordinator, adding, AddOffsetsToTxnResponse, ADD_OFFSETS_VERSION)
        raise_for(answer.error_code, None, f"adding offsets of {group} to {txn.transactional_id}")

    def commit() -> Steps[None]:
        coordinator = yield from state.coordinator(group, GROUP)
        answer = yield from ask(coordinator, committing, TxnOffsetCommitResponse, TXN_OFFSET_COMMIT_VERSION)
        for topic in answer.topics:
            for row in topic.partitions:
                raise_for(
                    row.error_code, None, f"committing the offset of {topic.name}-{row.partition_index}"
                )

    yield from _retrying(state, add)
    yield from _retrying(state, commit)


def end(state: ClusterState, txn: Transaction, *, commit: bool) -> Steps[None]:
    request = EndTxnRequest(
        transactional_id=txn.transactional_id,
        producer_id=txn.producer_id,
        producer_epoch=txn.epoch,
        committed=commit,
    )

    def attempt() -> Steps[None]:
        coordinator = yield from state.coordinator(txn.transactional_id, TRANSACTION)
        answer = yield from ask(coordinator, request, EndTxnResponse, END_TXN_VERSION)
        raise_for(answer.error_code, None, f"{'committing' if commit else 'aborting'} {txn.transactional_id}")

    yield from _retrying(state, attempt)


def give_up(state: ClusterState, txn: Transaction) -> Steps[None]:
    """Abort `txn` if it is still open. It may be committed, aborted or empty already."""
    try:
        yield from end(state, txn, commit=False)
    except (InvalidProducerEpoch, InvalidTxnState, ProducerFenced) as error:
        logger.debug("%s: nothing to abort: %s", txn, error)


def committed_metadata(
    state: ClusterState, group: str, partitions: Collection[TopicPartition] | None = None
) -> Steps[dict[TopicPartition, tuple[int, str]]]:
    """Committed offsets of a group with their metadata, none of them pending in a transaction.

    Without `partitions` a coordinator answers only partitions that have a committed offset: a first commit
    that is still pending stays unseen. Name the partitions, or end the open transaction first (`begin`).
    """
    topics: list[OffsetFetchRequestTopics] | None = None
    if partitions is not None:
        by_topic: defaultdict[str, list[int]] = defaultdict(list)
        for topic, partition in partitions:
            by_topic[topic].append(partition)
        topics = [
            OffsetFetchRequestTopics(name=topic, partition_indexes=indexes)
            for topic, indexes in by_topic.items()
        ]

    def attempt() -> Steps[dict[TopicPartition, tuple[int, str]]]:
        coordinator = yield from state.coordinator(group, GROUP)
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)], require_stable=True
        )
        (row,) = (yield from ask(coordinator, request, OffsetFetchResponse, OFFSET_FETCH_VERSION)).groups
        raise_for(row.error_code, None, f"offsets of {group}")
        found = {}
        for topic in row.topics:
            for each in topic.partitions:
                raise_for(each.error_code, None, f"offset of {topic.name}-{each.partition_index}")
                if each.committed_offset >= 0:
                    topic_partition = TopicPartition(topic.name, each.partition_index)
                    found[topic_partition] = (each.committed_offset, each.metadata or "")
        return found

    return (yield from _retrying(state, attempt))


def _retrying(state: ClusterState, attempt: Callable[[], Steps[T]]) -> Steps[T]:
    """Retry an attempt. An unknown partition may not have reached the broker's metadata yet: wait for it."""
    return state.retrying(attempt, unknown_topic_timeout_ms=None)
