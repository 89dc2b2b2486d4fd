"""A transactional id as its owner uses it, in steps: begin, add, commit offsets, end.

Requests go in the versions in which a transaction's partitions are named before they are written
to, and in which only InitProducerId changes the epoch: a producer whose writers are spread over
machines must know its epoch beforehand.

Whatever may pass is tried again: a coordinator that loads or moved, and CONCURRENT_TRANSACTIONS,
which says that the transaction before this one is still being completed. What cannot pass is
raised; PRODUCER_FENCED and INVALID_PRODUCER_EPOCH mean that somebody newer has taken over.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from barnabas.client.cluster_state import GROUP, TRANSACTION, ClusterState
from barnabas.client.steps import ANY_BROKER, Steps, ask, raise_for
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

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Transaction:
    """One transaction of one epoch; it travels to the tasks."""

    transactional_id: str
    producer_id: int
    epoch: int
    timeout_ms: int
    """No longer than brokers allow."""


def begin(state: ClusterState, transactional_id: str, timeout_ms: int) -> Steps[Transaction]:
    """A new epoch: whoever had the id is fenced, and what was left open is aborted."""

    def attempt() -> Steps[Transaction]:
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
        coordinator = yield from state.coordinator(transactional_id, TRANSACTION)
        answer = yield from ask(coordinator, request, InitProducerIdResponse)
        raise_for(answer.error_code, None, f"beginning a transaction of {transactional_id}")
        return Transaction(transactional_id, answer.producer_id, answer.producer_epoch, timeout_ms)

    return (yield from _retrying(state, attempt))


def idempotent_producer(state: ClusterState) -> Steps[tuple[int, int]]:
    """A producer id of one's own and its epoch, outside of any transaction."""

    def attempt() -> Steps[tuple[int, int]]:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=IDEMPOTENT_TIMEOUT_MS)
        answer = yield from ask(ANY_BROKER, request, InitProducerIdResponse)
        raise_for(answer.error_code, None, "getting a producer id")
        return answer.producer_id, answer.producer_epoch

    return (yield from _retrying(state, attempt))


def begin_again(state: ClusterState, txn: Transaction, timeout_ms: int) -> Steps[Transaction]:
    """Abort `txn` and go on under the next epoch, which its other writers do not have.

    Refused unless `txn` is the newest of its id: whoever was replaced must not replace its successor.
    """
    try:
        yield from end(state, txn, commit=False)
    except InvalidTxnState:
        _log.debug("%s had nothing to abort", txn)

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
    """What was added to the transaction; PRODUCER_FENCED when somebody newer has taken over."""
    found = yield from _describe(state, txn.transactional_id)
    if (found.producer_id, found.producer_epoch) != (txn.producer_id, txn.epoch):
        raise ProducerFenced(f"{txn.transactional_id} is at epoch {found.producer_epoch}, not {txn.epoch}")
    return {TopicPartition(row.topic, number) for row in found.topics for number in row.partitions}


def is_current(state: ClusterState, txn: Transaction) -> Steps[bool]:
    """Whether nobody has begun a transaction of that id since."""
    found = yield from _describe(state, txn.transactional_id)
    return (found.producer_id, found.producer_epoch) == (txn.producer_id, txn.epoch)


def _describe(state: ClusterState, transactional_id: str) -> Steps[TransactionState]:
    """UNSUPPORTED_VERSION where brokers do not describe transactions."""

    def attempt() -> Steps[TransactionState]:
        coordinator = yield from state.coordinator(transactional_id, TRANSACTION)
        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        (row,) = (yield from ask(coordinator, request, DescribeTransactionsResponse)).transaction_states
        raise_for(row.error_code, None, f"describing the transaction of {transactional_id}")
        return row

    return (yield from _retrying(state, attempt))


def add_partitions(state: ClusterState, txn: Transaction, places: Collection[TopicPartition]) -> Steps[None]:
    """Must be done before the first batch goes to a partition."""
    if not places:
        return
    topics: dict[str, list[int]] = defaultdict(list)
    for place in places:
        topics[place.topic].append(place.partition)
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
        # Partitions that were not to blame are answered OPERATION_NOT_ATTEMPTED, which says nothing.
        telling = [code for code in codes if code not in {0, _OPERATION_NOT_ATTEMPTED}]
        raise_for(next(iter(telling or codes), 0), None, f"adding partitions to {txn.transactional_id}")

    yield from _retrying(state, attempt)


def commit_offsets(
    state: ClusterState, txn: Transaction, group: str, offsets: Mapping[TopicPartition, int], metadata: str
) -> Steps[None]:
    """The group's offsets become part of the transaction."""
    adding = AddOffsetsToTxnRequest(
        transactional_id=txn.transactional_id,
        producer_id=txn.producer_id,
        producer_epoch=txn.epoch,
        group_id=group,
    )
    topics: dict[str, list[TxnOffsetCommitRequestPartition]] = defaultdict(list)
    for place, offset in sorted(offsets.items()):
        topics[place.topic].append(
            TxnOffsetCommitRequestPartition(
                partition_index=place.partition, committed_offset=offset, committed_metadata=metadata
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
    """Abort `txn`, if there is anything to abort: it may be over already, one way or the other, or have
    nothing in it."""
    try:
        yield from end(state, txn, commit=False)
    except (InvalidProducerEpoch, InvalidTxnState, ProducerFenced) as error:
        _log.debug("%s had nothing to abort: %s", txn, error)


def committed_metadata(state: ClusterState, group: str) -> Steps[dict[TopicPartition, tuple[int, str]]]:
    """All offsets of a group with their metadata, none of them still to be decided."""

    def attempt() -> Steps[dict[TopicPartition, tuple[int, str]]]:
        coordinator = yield from state.coordinator(group, GROUP)
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=group, topics=None)], require_stable=True
        )
        (row,) = (yield from ask(coordinator, request, OffsetFetchResponse, OFFSET_FETCH_VERSION)).groups
        raise_for(row.error_code, None, f"offsets of {group}")
        found = {}
        for topic in row.topics:
            for each in topic.partitions:
                raise_for(each.error_code, None, f"offset of {topic.name}-{each.partition_index}")
                if each.committed_offset >= 0:
                    place = TopicPartition(topic.name, each.partition_index)
                    found[place] = (each.committed_offset, each.metadata or "")
        return found

    return (yield from _retrying(state, attempt))


def _retrying(state: ClusterState, attempt: Callable[[], Steps[T]]) -> Steps[T]:
    """A partition that is unknown may be one that the broker has yet to hear of: it is waited for."""
    return state.retrying(attempt, unknown_topic_timeout_ms=None)
