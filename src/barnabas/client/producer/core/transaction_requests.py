"""Conversations of a producer with its coordinators, as steps: ids, partitions, offsets, the end.

Each is retried until the cluster client's retry timeout. INVALID_PRODUCER_EPOCH of a coordinator means the
same as PRODUCER_FENCED, its newer name: another producer has taken the transactional id.

`version` is the transaction protocol (KIP-890). The versions of the requests follow from it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple, Protocol, TypeVar

from barnabas.client.core.cluster_state import GROUP, TRANSACTION, ClusterState
from barnabas.client.core.steps import ANY_BROKER, ClusterUnreachable, Response, Steps, ask, raise_for
from barnabas.client.core.transaction_steps import IDEMPOTENT_TIMEOUT_MS, Transaction, add_partitions
from barnabas.core.errors import InvalidProducerEpoch, KafkaError, ProducerFenced
from barnabas.core.ids import TopicPartition
from barnabas.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from barnabas.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from barnabas.protocol.schema.message import Message

T = TypeVar("T")

ADD_OFFSETS_VERSION_MAX: Final = 4
OFFSET_COMMIT_VERSION_MAX: Final = {1: 4, 2: 5}
"""Version 6 of TxnOffsetCommit names topics by id, which the producer of other topics may not know."""
END_VERSION_MAX: Final = {1: 4, 2: 5}

CommittedOffset = int | tuple[int, str, int]
"""Offset of the next record to read, alone or with metadata and leader epoch."""


class Identity(NamedTuple):
    producer_id: int
    epoch: int


class GroupMember(Protocol):
    """Member of a group, whose offsets become part of a transaction."""

    @property
    def group_id(self) -> str: ...
    @property
    def generation_id(self) -> int: ...
    @property
    def member_id(self) -> str: ...
    @property
    def instance_id(self) -> str | None: ...


class GroupAlone(NamedTuple):
    """Group without a member: the coordinator then fences no zombie."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    instance_id: str | None = None


def idempotent_id() -> Steps[Identity]:
    """Id for idempotent writes, from any broker. One attempt: the caller tries again."""
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=IDEMPOTENT_TIMEOUT_MS)
    answer = yield from ask(ANY_BROKER, request, InitProducerIdResponse)
    raise_for(answer.error_code, None, "getting a producer id")
    return Identity(answer.producer_id, answer.producer_epoch)


def transactional_id(
    state: ClusterState, name: str, timeout_ms: int, current: Identity | None = None
) -> Steps[Identity]:
    """Id and epoch of a transactional id. Without `current` other producers of the name are fenced, and an
    open transaction of theirs is aborted. With it the epoch of this producer is raised.
    """
    request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=timeout_ms)
    if current is not None:
        request.producer_id, request.producer_epoch = current

    def attempt() -> Steps[Identity]:
        answer = yield from _ask_coordinator(state, name, TRANSACTION, request, InitProducerIdResponse)
        raise_for(answer.error_code, None, f"getting the producer id of {name}")
        return Identity(answer.producer_id, answer.producer_epoch)

    return (yield from _retrying(state, name, attempt))


def add_to_transaction(
    state: ClusterState, name: str, identity: Identity, partitions: Collection[TopicPartition]
) -> Steps[None]:
    """Add partitions to the transaction, with protocol 1."""
    txn = Transaction(name, identity.producer_id, identity.epoch, 0)
    try:
        yield from add_partitions(state, txn, partitions)
    except InvalidProducerEpoch as error:
        raise ProducerFenced(error.message) from None


def commit_offsets(
    state: ClusterState,
    name: str,
    identity: Identity,
    version: int,
    group: GroupMember,
    offsets: Mapping[TopicPartition, CommittedOffset],
) -> Steps[None]:
    """Make offsets of a group part of the transaction."""
    if version < 2:
        adding = AddOffsetsToTxnRequest(
            transactional_id=name,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            group_id=group.group_id,
        )

        def add() -> Steps[None]:
            answer = yield from _ask_coordinator(
                state, name, TRANSACTION, adding, AddOffsetsToTxnResponse, ADD_OFFSETS_VERSION_MAX
            )
            raise_for(answer.error_code, None, f"adding offsets of {group.group_id} to {name}")

        yield from _retrying(state, name, add)
    committing = TxnOffsetCommitRequest(
        transactional_id=name,
        group_id=group.group_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        generation_id_or_member_epoch=group.generation_id,
        member_id=group.member_id,
        group_instance_id=group.instance_id,
        topics=_offset_topics(offsets),
    )

    def commit() -> Steps[None]:
        answer = yield from _ask_coordinator(
            state,
            group.group_id,
            GROUP,
            committing,
            TxnOffsetCommitResponse,
            OFFSET_COMMIT_VERSION_MAX[version],
        )
        for topic in answer.topics:
            for row in topic.partitions:
                raise_for(row.error_code, None, f"committing {topic.name}-{row.partition_index}")

    yield from _retrying(state, group.group_id, commit, GROUP)


def end_transaction(
    state: ClusterState, name: str, identity: Identity, version: int, *, commit: bool
) -> Steps[Identity]:
    """Commit or abort; returns the identity for the next transaction."""
    request = EndTxnRequest(
        transactional_id=name,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        committed=commit,
    )

    def attempt() -> Steps[Identity]:
        answer = yield from _ask_coordinator(
            state, name, TRANSACTION, request, EndTxnResponse, END_VERSION_MAX[version]
        )
        raise_for(answer.error_code, None, f"{'committing' if commit else 'aborting'} {name}")
        if version < 2 or answer.producer_id < 0:
            return identity
        return Identity(answer.producer_id, answer.producer_epoch)

    return (yield from _retrying(state, name, attempt))


def _ask_coordinator(
    state: ClusterState,
    key: str,
    key_type: int,
    request: Message,
    response_class: type[Response],
    version_max: int | None = None,
) -> Steps[Response]:
    coordinator = yield from state.known_coordinator(key, key_type)
    return (yield from ask(coordinator, request, response_class, version_max))


def _retrying(
    state: ClusterState, key: str, attempt: Callable[[], Steps[T]], key_type: int = TRANSACTION
) -> Steps[T]:
    """Retry an attempt, each time with a fresh look for the coordinator."""

    def guarded() -> Steps[T]:
        try:
            return (yield from attempt())
        except InvalidProducerEpoch as error:
            raise ProducerFenced(error.message) from None
        except (KafkaError, ClusterUnreachable):
            state.forget_coordinator(key, key_type)
            raise

    return (yield from state.retrying(guarded, unknown_topic_timeout_ms=None))


def _offset_topics(
    offsets: Mapping[TopicPartition, CommittedOffset],
) -> list[TxnOffsetCommitRequestTopic]:
    rows: defaultdict[str, list[TxnOffsetCommitRequestPartition]] = defaultdict(list)
    for at, committed in offsets.items():
        offset, metadata, leader_epoch = (committed, "", -1) if isinstance(committed, int) else committed
        rows[at.topic].append(
            TxnOffsetCommitRequestPartition(
                partition_index=at.partition,
                committed_offset=offset,
                committed_leader_epoch=leader_epoch,
                committed_metadata=metadata,
            )
        )
    return [TxnOffsetCommitRequestTopic(name=name, partitions=found) for name, found in rows.items()]
