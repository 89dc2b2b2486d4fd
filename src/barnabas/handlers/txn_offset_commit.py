"""TxnOffsetCommit (28), v0-6. Gaps: none.

The offsets are pending in the group's partition under the producer's transaction, and count once it commits.
The partition must be part of the transaction: up to version 4 AddOffsetsToTxn adds it, later this request
does. Version 6 names topics by id.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from barnabas.coordinator.group.coordinator import OFFSETS_TOPIC
from barnabas.coordinator.producer import ProducerIdAndEpoch
from barnabas.coordinator.runtime.shard_writer import as_coordinator_error
from barnabas.coordinator.transaction.state.errors import as_write_error, not_in_transaction
from barnabas.coordinator.transaction.state.settings import EPOCH_BUMP_VERSION
from barnabas.coordinator.transaction.verification.verification_guard import VerificationGuards
from barnabas.core.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InvalidGroupId,
    KafkaError,
)
from barnabas.core.ids import TopicPartition
from barnabas.core.limits import DECISION_ELEMENTS_MAX
from barnabas.core.steps import Sliced
from barnabas.handlers.offset_commit import as_commit_error
from barnabas.handlers.shared.offset_topics import merge, sort_out
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from barnabas.requests.bounded_loops import each
from barnabas.requests.context import RequestContext
from barnabas.requests.registry import Api

VERSION_WITH_LOADING = 2
VERSION_WITH_ABORTABLE = 4
VERSION_WITH_EPOCH_BUMP = 5
VERSION_WITH_TOPIC_IDS = 6


def handle_txn_offset_commit(request: TxnOffsetCommitRequest, context: RequestContext) -> Sliced[None]:
    by_id = context.api_version >= VERSION_WITH_TOPIC_IDS
    known, refused = yield from sort_out(request.topics, context, _refused, by_id=by_id, keeps_empty=False)
    request.topics = known

    def merged(response: TxnOffsetCommitResponse) -> Sliced[TxnOffsetCommitResponse]:
        yield from merge(response.topics, refused, lambda topic: (topic.name, topic.topic_id))
        return response

    def respond(response: TxnOffsetCommitResponse) -> None:
        context.answer_in_slices(merged(response))

    def refuse_all(code: int) -> Sliced[TxnOffsetCommitResponse]:
        return (yield from merged((yield from _all_refused(known, code))))

    def refuse(error: KafkaError) -> None:
        context.answer_in_slices(refuse_all(_code_for(as_write_error(error), context.api_version)))

    def refuse_commit(error: KafkaError) -> None:
        context.answer_in_slices(refuse_all(as_commit_error(error).code))

    if not known:
        respond(TxnOffsetCommitResponse())
    elif not request.group_id:
        refuse(InvalidGroupId("a group id has at least one character"))
    else:
        _commit(request, context, respond, refuse, refuse_commit)


def _commit(
    request: TxnOffsetCommitRequest,
    context: RequestContext,
    respond: Callable[[TxnOffsetCommitResponse], None],
    refuse: Callable[[KafkaError], None],
    refuse_commit: Callable[[KafkaError], None],
) -> None:
    broker = context.broker
    producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    partition = TopicPartition(OFFSETS_TOPIC, broker.groups.partition_for(request.group_id))

    outside = not_in_transaction(knows_abortable=context.api_version >= VERSION_WITH_ABORTABLE)
    guards = VerificationGuards(broker.replicas, outside)

    def commit() -> None:
        try:
            guards.check(partition)
        except KafkaError as error:
            refuse(as_coordinator_error(error))
        else:
            broker.groups.run(
                request.group_id,
                lambda shard: shard.offset_requests.commit_in_transaction(request, context.api_version),
                respond,
                refuse_commit,
                producer=producer,
            )

    def added(error: KafkaError | None) -> None:
        commit() if error is None else refuse(error)

    def verified(missing: frozenset[TopicPartition]) -> None:
        refuse(outside) if missing else commit()

    with suppress(KafkaError):  # the coordinator checks the producer first
        guards.begin(partition, producer)
    if context.api_version >= VERSION_WITH_EPOCH_BUMP:
        broker.add_partitions_to_txn_manager.add_partitions(
            request.transactional_id,
            producer,
            [partition],
            added,
            client_transaction_version=EPOCH_BUMP_VERSION,
        )
    elif broker.config.transaction_partition_verification_enable:
        broker.add_partitions_to_txn_manager.verify(
            request.transactional_id, producer, [partition], verified, refuse
        )
    else:
        commit()


def _code_for(error: KafkaError, api_version: int) -> int:
    """Error code by version: producers before Kafka 2.0 crash on COORDINATOR_LOAD_IN_PROGRESS."""
    if isinstance(error, CoordinatorLoadInProgress) and api_version < VERSION_WITH_LOADING:
        return CoordinatorNotAvailable.code
    return error.code


def _all_refused(topics: list[TxnOffsetCommitRequestTopic], code: int) -> Sliced[TxnOffsetCommitResponse]:
    refused = []
    for topic in topics:
        refused.append((yield from _refused(topic, topic.partitions, code)))
        yield
    return TxnOffsetCommitResponse(topics=refused)


def _refused(
    topic: TxnOffsetCommitRequestTopic, partitions: list[TxnOffsetCommitRequestPartition], code: int
) -> Sliced[TxnOffsetCommitResponseTopic]:
    refused = yield from each(
        partitions,
        lambda asked: TxnOffsetCommitResponsePartition(
            partition_index=asked.partition_index, error_code=code
        ),
    )
    return TxnOffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=refused)


TXN_OFFSET_COMMIT = Api(
    ApiKey.TXN_OFFSET_COMMIT,
    handle=handle_txn_offset_commit,
    refused=lambda request, error, _: _all_refused(request.topics, error.code),
    elements_max=DECISION_ELEMENTS_MAX,
)
