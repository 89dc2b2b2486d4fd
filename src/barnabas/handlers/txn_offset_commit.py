"""TxnOffsetCommit (28), v0-6. Gaps: none.

The offsets are staged in the group's partition under the producer's transaction and count once it commits.
The partition must be part of the transaction: by AddOffsetsToTxn up to version 4, by itself later.
Version 6 names topics by id.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from barnabas.coordinator.group.coordinator import OFFSETS_TOPIC
from barnabas.coordinator.shard_context import Producer
from barnabas.coordinator.transaction.errors import as_write_error, not_in_transaction
from barnabas.coordinator.transaction.rules import ProducerIdAndEpoch
from barnabas.coordinator.transaction.settings import EPOCH_BUMP_VERSION
from barnabas.coordinator.transaction.verification import Verification
from barnabas.coordinator.writing import as_coordinator_error
from barnabas.core.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InvalidGroupId,
    KafkaError,
)
from barnabas.core.ids import TopicPartition
from barnabas.core.limits import DECISION_ELEMENTS_MAX
from barnabas.handlers.offset_commit import as_commit_error
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from barnabas.requests.context import RequestContext
from barnabas.requests.offset_topics import merge, sort_out
from barnabas.requests.registry import Api

VERSION_WITH_LOADING = 2
VERSION_WITH_ABORTABLE = 4
VERSION_WITH_EPOCH_BUMP = 5
VERSION_WITH_TOPIC_IDS = 6


def handle_txn_offset_commit(request: TxnOffsetCommitRequest, context: RequestContext) -> None:
    by_id = context.api_version >= VERSION_WITH_TOPIC_IDS
    known, refused = sort_out(request.topics, context, _refused, by_id=by_id, keeps_empty=False)
    request.topics = known

    def respond(response: TxnOffsetCommitResponse) -> None:
        merge(response.topics, refused, lambda topic: (topic.name, topic.topic_id))
        context.respond(response)

    def refuse(error: KafkaError) -> None:
        code = _code_for(as_write_error(error), context.api_version)
        respond(_all_refused(known, code))

    if not known:
        respond(TxnOffsetCommitResponse())
    elif not request.group_id:
        refuse(InvalidGroupId("a group id has at least one character"))
    else:
        _commit(request, context, respond, refuse)


def _commit(
    request: TxnOffsetCommitRequest,
    context: RequestContext,
    respond: Callable[[TxnOffsetCommitResponse], None],
    refuse: Callable[[KafkaError], None],
) -> None:
    broker = context.broker
    producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    partition = TopicPartition(OFFSETS_TOPIC, broker.groups.partition_for(request.group_id))

    outside = not_in_transaction(knows_abortable=context.api_version >= VERSION_WITH_ABORTABLE)
    verification = Verification(broker.replicas, outside)

    def commit() -> None:
        try:
            verification.check(partition)
        except KafkaError as error:
            refuse(as_coordinator_error(error))
        else:
            broker.groups.run(
                request.group_id,
                lambda shard: shard.offset_requests.commit_in_transaction(request, context.api_version),
                respond,
                lambda error: respond(_all_refused(request.topics, as_commit_error(error).code)),
                producer=Producer(request.producer_id, request.producer_epoch),
            )

    def added(error: KafkaError | None) -> None:
        commit() if error is None else refuse(error)

    def verified(missing: frozenset[TopicPartition]) -> None:
        refuse(outside) if missing else commit()

    with suppress(KafkaError):  # who it is that asks is looked at first
        verification.begin(partition, producer)
    if context.api_version >= VERSION_WITH_EPOCH_BUMP:
        broker.transaction_membership.add_partitions(
            request.transactional_id,
            producer,
            [partition],
            added,
            client_transaction_version=EPOCH_BUMP_VERSION,
        )
    elif broker.settings.transaction_partition_verification_enable:
        broker.transaction_membership.verify(
            request.transactional_id, producer, [partition], verified, refuse
        )
    else:
        commit()


def _code_for(error: KafkaError, api_version: int) -> int:
    """Producers before Kafka 2.0 crash when they hear that the coordinator is loading."""
    if isinstance(error, CoordinatorLoadInProgress) and api_version < VERSION_WITH_LOADING:
        return CoordinatorNotAvailable.code
    return error.code


def _all_refused(topics: list[TxnOffsetCommitRequestTopic], code: int) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(topics=[_refused(topic, topic.partitions, code) for topic in topics])


def _refused(
    topic: TxnOffsetCommitRequestTopic, partitions: list[TxnOffsetCommitRequestPartition], code: int
) -> TxnOffsetCommitResponseTopic:
    return TxnOffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            TxnOffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
            for each in partitions
        ],
    )


TXN_OFFSET_COMMIT = Api(
    ApiKey.TXN_OFFSET_COMMIT,
    handle=handle_txn_offset_commit,
    refused=lambda request, error, _: _all_refused(request.topics, error.code),
    elements_max=DECISION_ELEMENTS_MAX,
)
