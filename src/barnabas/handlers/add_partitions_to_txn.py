"""AddPartitionsToTxn (24), v0-5. Gaps: none.

Up to version 3 a producer adds partitions to its own transaction, all of them or none. Later versions are
batched, come from brokers, and may only ask whether partitions are part of a transaction (verify only);
there each partition has its own answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from barnabas.coordinator.gathering import Gathering
from barnabas.coordinator.transaction.errors import fenced_code
from barnabas.coordinator.transaction.rules import ProducerIdAndEpoch
from barnabas.coordinator.transaction.settings import EPOCH_BUMP_VERSION
from barnabas.core.errors import (
    NONE,
    KafkaError,
    OperationNotAttempted,
    TopicAuthorizationFailed,
    TransactionAbortable,
    UnknownTopicOrPartition,
)
from barnabas.core.ids import INTERNAL_TOPICS, TopicPartition
from barnabas.core.limits import DECISION_ELEMENTS_MAX
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from barnabas.requests.context import RequestContext
from barnabas.requests.registry import Api
from barnabas.security.acl.vocabulary import Operation, ResourceType

VERSION_WITH_PRODUCER_FENCED = 2
VERSION_WITH_BATCHES = 4
VERSION_WITH_EPOCH_BUMP = 5

Codes = Mapping[TopicPartition, int]


def handle_add_partitions_to_txn(request: AddPartitionsToTxnRequest, context: RequestContext) -> None:
    if context.api_version >= VERSION_WITH_BATCHES:
        _add_batched(request, context)
        return
    topics = request.v3_and_below_topics

    def respond(codes: Codes) -> None:
        context.respond(
            AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_topic_results(topics, codes))
        )

    producer = ProducerIdAndEpoch(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
    _add(request.v3_and_below_transactional_id, producer, topics, context, respond)


def _add_batched(request: AddPartitionsToTxnRequest, context: RequestContext) -> None:
    gathering: Gathering[AddPartitionsToTxnResult] = Gathering(
        len(request.transactions),
        lambda results: context.respond(AddPartitionsToTxnResponse(results_by_transaction=results)),
    )
    for place, transaction in enumerate(request.transactions):
        _add_one_of_batch(place, transaction, context, gathering)


def _add_one_of_batch(
    place: int,
    transaction: AddPartitionsToTxnTransaction,
    context: RequestContext,
    gathering: Gathering[AddPartitionsToTxnResult],
) -> None:
    def respond(codes: Codes) -> None:
        gathering.put(
            place,
            AddPartitionsToTxnResult(
                transactional_id=transaction.transactional_id,
                topic_results=_topic_results(transaction.topics, codes),
            ),
        )

    producer = ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch)
    if not transaction.verify_only:
        _add(transaction.transactional_id, producer, transaction.topics, context, respond)
        return
    partitions = _partitions(transaction.topics)
    refused = _unknown(partitions, context)
    if refused:
        respond(refused)
        return
    context.broker.transactions.verify(
        transaction.transactional_id,
        producer,
        partitions,
        lambda missing: respond(
            {each: TransactionAbortable.code if each in missing else NONE for each in partitions}
        ),
        lambda error: respond(dict.fromkeys(partitions, error.code)),
    )


def _add(
    transactional_id: str,
    producer: ProducerIdAndEpoch,
    topics: Iterable[AddPartitionsToTxnTopic],
    context: RequestContext,
    respond: Callable[[Codes], None],
) -> None:
    partitions = _partitions(topics)
    refused = _unknown(partitions, context)
    if refused:
        respond(refused)
        return

    def done(error: KafkaError | None) -> None:
        code = NONE if error is None else error.code
        code = fenced_code(code, context.api_version, VERSION_WITH_PRODUCER_FENCED)
        respond(dict.fromkeys(partitions, code))

    context.broker.transactions.add_partitions(
        transactional_id,
        producer,
        partitions,
        done,
        client_transaction_version=(
            EPOCH_BUMP_VERSION if context.api_version >= VERSION_WITH_EPOCH_BUMP else 0
        ),
    )


def _unknown(partitions: Sequence[TopicPartition], context: RequestContext) -> Codes:
    """All partitions are refused if one may not be written or does not exist; nothing is said otherwise.

    Producers never write internal topics themselves; brokers have been authorized as such.
    """
    metadata = context.broker.metadata
    codes = {each: UnknownTopicOrPartition.code for each in partitions if metadata.partition(*each) is None}
    if context.api_version < VERSION_WITH_BATCHES:
        for each in partitions:
            if each.topic in INTERNAL_TOPICS or not context.allows(
                Operation.WRITE, ResourceType.TOPIC, each.topic
            ):
                codes[each] = TopicAuthorizationFailed.code
    return {each: codes.get(each, OperationNotAttempted.code) for each in partitions} if codes else {}


def _partitions(topics: Iterable[AddPartitionsToTxnTopic]) -> list[TopicPartition]:
    return [TopicPartition(topic.name, partition) for topic in topics for partition in topic.partitions]


def _topic_results(
    topics: Iterable[AddPartitionsToTxnTopic], codes: Codes
) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=partition,
                    partition_error_code=codes[TopicPartition(topic.name, partition)],
                )
                for partition in topic.partitions
            ],
        )
        for topic in topics
    ]


def _refused(
    request: AddPartitionsToTxnRequest, error: KafkaError, version: int
) -> AddPartitionsToTxnResponse:
    if version >= VERSION_WITH_BATCHES:
        return AddPartitionsToTxnResponse(error_code=error.code)
    topics = request.v3_and_below_topics
    codes = dict.fromkeys(_partitions(topics), error.code)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_topic_results(topics, codes))


ADD_PARTITIONS_TO_TXN = Api(
    ApiKey.ADD_PARTITIONS_TO_TXN,
    handle=handle_add_partitions_to_txn,
    refused=_refused,
    elements_max=DECISION_ELEMENTS_MAX,
)
