"""AddPartitionsToTxn (24), v0-5. Gaps: none.

Up to version 3 a producer adds partitions to its own transaction: all of them or none. Later versions come
from brokers, in batches, and may only verify that partitions are part of a transaction. There each partition
has its own error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from barnabas.coordinator.producer import ProducerIdAndEpoch
from barnabas.coordinator.runtime.fan_in import Gathering
from barnabas.coordinator.transaction.state.errors import fenced_code
from barnabas.coordinator.transaction.state.settings import EPOCH_BUMP_VERSION
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
from barnabas.core.steps import Sliced
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


def handle_add_partitions_to_txn(request: AddPartitionsToTxnRequest, context: RequestContext) -> Sliced[None]:
    if context.api_version >= VERSION_WITH_BATCHES:
        yield from _add_batched(request, context)
        return
    topics = request.v3_and_below_topics

    def respond(codes: Codes) -> None:
        context.answer_in_slices(_answer(topics, codes))

    producer = ProducerIdAndEpoch(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
    yield from _add(request.v3_and_below_transactional_id, producer, topics, context, respond)


def _answer(topics: Iterable[AddPartitionsToTxnTopic], codes: Codes) -> Sliced[AddPartitionsToTxnResponse]:
    results = yield from _topic_results(topics, codes)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)


def _add_batched(request: AddPartitionsToTxnRequest, context: RequestContext) -> Sliced[None]:
    # If a transactional id is named twice, the last mention counts, as in Apache Kafka.
    transactions = list({each.transactional_id: each for each in request.transactions}.values())
    gathering: Gathering[Codes] = Gathering(
        len(transactions), lambda codes: context.answer_in_slices(_answer_batched(transactions, codes))
    )
    for index, transaction in enumerate(transactions):
        yield from _add_one_of_batch(transaction, context, partial(gathering.put, index))


def _answer_batched(
    transactions: Sequence[AddPartitionsToTxnTransaction], codes_of: Sequence[Codes]
) -> Sliced[AddPartitionsToTxnResponse]:
    results = []
    for transaction, codes in zip(transactions, codes_of, strict=True):
        topic_results = yield from _topic_results(transaction.topics, codes)
        results.append(
            AddPartitionsToTxnResult(
                transactional_id=transaction.transactional_id, topic_results=topic_results
            )
        )
    return AddPartitionsToTxnResponse(results_by_transaction=results)


def _add_one_of_batch(
    transaction: AddPartitionsToTxnTransaction, context: RequestContext, respond: Callable[[Codes], None]
) -> Sliced[None]:
    producer = ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch)
    if not transaction.verify_only:
        yield from _add(transaction.transactional_id, producer, transaction.topics, context, respond)
        return
    partitions = _partitions(transaction.topics)
    refused = yield from _unknown(partitions, context)
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
) -> Sliced[None]:
    partitions = _partitions(topics)
    refused = yield from _unknown(partitions, context)
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


def _unknown(partitions: Sequence[TopicPartition], context: RequestContext) -> Sliced[Codes]:
    """Error of the whole request: all partitions are refused if one may not be written or does not exist.

    Producers never write internal topics themselves. Brokers are authorized as brokers.
    """
    metadata = context.broker.metadata
    codes: dict[TopicPartition, int] = {}
    for each in partitions:
        yield
        if context.api_version < VERSION_WITH_BATCHES and (
            each.topic in INTERNAL_TOPICS
            or not context.allows(Operation.WRITE, ResourceType.TOPIC, each.topic)
        ):
            codes[each] = TopicAuthorizationFailed.code
        elif metadata.partition(*each) is None:
            codes[each] = UnknownTopicOrPartition.code
    return {each: codes.get(each, OperationNotAttempted.code) for each in partitions} if codes else {}


def _partitions(topics: Iterable[AddPartitionsToTxnTopic]) -> list[TopicPartition]:
    return [TopicPartition(topic.name, partition) for topic in topics for partition in topic.partitions]


def _topic_results(
    topics: Iterable[AddPartitionsToTxnTopic], codes: Codes
) -> Sliced[list[AddPartitionsToTxnTopicResult]]:
    results = []
    for topic in topics:
        partitions = []
        for partition in topic.partitions:
            code = codes[TopicPartition(topic.name, partition)]
            partitions.append(
                AddPartitionsToTxnPartitionResult(partition_index=partition, partition_error_code=code)
            )
            yield
        results.append(AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=partitions))
        yield
    return results


def _refused(
    request: AddPartitionsToTxnRequest, error: KafkaError, version: int
) -> Sliced[AddPartitionsToTxnResponse]:
    if version >= VERSION_WITH_BATCHES:
        return AddPartitionsToTxnResponse(error_code=error.code)
    topics = request.v3_and_below_topics
    return (yield from _answer(topics, dict.fromkeys(_partitions(topics), error.code)))


ADD_PARTITIONS_TO_TXN = Api(
    ApiKey.ADD_PARTITIONS_TO_TXN,
    handle=handle_add_partitions_to_txn,
    refused=_refused,
    elements_max=DECISION_ELEMENTS_MAX,
)
