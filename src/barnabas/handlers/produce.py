"""Produce (0), v0-13. Gaps: none.

Versions 0-2 carry message formats 0 and 1, which are converted up (`shared.up_conversion`). A log holds v2
batches only, unless an older broker wrote it.

Each partition has its own response, its own error included (`shared.produce_appends`). With acks=0 the client
reads no response, so the broker reports an error by closing the connection. The producer then looks for a new
leader.

A request with a transactional id is verified first (`_verify_transactional`), which costs the others one
comparison.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from barnabas.coordinator.producer import ProducerIdAndEpoch
from barnabas.coordinator.transaction.verification.transaction_verification import (
    TransactionalWrite,
    TransactionSupportedOperation,
    TransactionVerification,
    VerifiedWrites,
    is_transactional,
)
from barnabas.core.errors import KafkaError, TransactionalIdAuthorizationFailed
from barnabas.core.steps import Sliced
from barnabas.handlers.shared.leader_hints import add_leader_hints
from barnabas.handlers.shared.produce_appends import PartitionAppends
from barnabas.handlers.shared.up_conversion import (
    VERSION_WITH_BATCHES,
    convert_in_a_thread,
    is_long_conversion,
)
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from barnabas.records.batch import ATTRIBUTES_AT, HEADER_BYTES, MAGIC_AT, TRANSACTIONAL_FLAG, is_whole
from barnabas.requests.context import RequestContext
from barnabas.requests.registry import Api
from barnabas.security.acl.vocabulary import Operation, ResourceType

logger = logging.getLogger(__name__)

VERSION_WITH_LEADER_HINTS: Final = 10
VERSION_WITH_ABORTABLE: Final = 11
VERSION_WITH_IMPLICIT_ADD: Final = 12
VERSION_WITH_TOPIC_IDS: Final = 13


def handle_produce(request: ProduceRequest, context: RequestContext) -> None:
    if context.broker.quotas.is_limiting:
        _charge(request, context)
    if context.api_version < VERSION_WITH_BATCHES and is_long_conversion(request):
        keep_records(request, context)
        context.answer_with(_convert_and_append(request, context))
    elif request.transactional_id is None or _refusal(request, context) is not None:
        _append_and_respond(request, context, None)
    else:
        _verify_transactional(
            request, context, lambda verified: _append_and_respond(request, context, verified)
        )


def _charge(request: ProduceRequest, context: RequestContext) -> None:
    size_bytes = sum(
        len(data.records)
        for topic in request.topic_data
        for data in topic.partition_data
        if isinstance(data.records, memoryview)
    )
    principal = context.exchange.connection.principal
    context.throttle_ms = context.broker.quotas.charge_produce(principal.name, context.client_id, size_bytes)


def _verify_transactional(
    request: ProduceRequest, context: RequestContext, verified: Callable[[VerifiedWrites | None], None]
) -> None:
    """Have the transaction coordinator verify writes that are new to their transaction.

    The records are a view of the receive buffer. If the coordinator cannot answer at once, they are copied
    and the connection waits, so that the producer's next request cannot overtake this one.
    """
    version, broker = context.api_version, context.broker
    adds_partitions = version >= VERSION_WITH_IMPLICIT_ADD
    operation = TransactionSupportedOperation(
        adds_partitions,
        is_verified=adds_partitions or broker.config.transaction_partition_verification_enable,
        knows_abortable=version >= VERSION_WITH_ABORTABLE,
    )

    def wait() -> None:
        keep_records(request, context)
        context.exchange.hold()

    assert request.transactional_id is not None
    transactional_id, connection = request.transactional_id, context.exchange.connection
    manager = broker.add_partitions_to_txn_manager

    def proven(producer: ProducerIdAndEpoch) -> None:
        manager.proven.add(connection, transactional_id, producer.producer_id)

    verification = TransactionVerification(broker.replicas, manager, transactional_id, operation, proven)
    is_one_turn = len(request.topic_data) == 1 and len(request.topic_data[0].partition_data) == 1

    def work() -> Sliced[None]:
        writes: list[TransactionalWrite] = []
        yield from _writes(request, context, writes)
        verification.verify(writes, verified, wait, is_one_turn=is_one_turn)

    context.answer_in_slices(work(), lambda: keep_records(request, context))


def _writes(
    request: ProduceRequest, context: RequestContext, writes: list[TransactionalWrite]
) -> Sliced[None]:
    """The transactional writes to partitions that are here."""
    by_id = context.api_version >= VERSION_WITH_TOPIC_IDS
    for topic in request.topic_data:
        yield
        name = context.topic_name(topic.topic_id) if by_id else topic.name
        if name is None or not context.allows(Operation.WRITE, ResourceType.TOPIC, name):
            continue  # the append reports the error
        for data in topic.partition_data:
            yield
            records = data.records
            if isinstance(records, memoryview) and is_transactional(records):
                with suppress(KafkaError):  # the append reports the error
                    partition = context.broker.replicas.partition(name, data.index)
                    writes.append(_known_write(TransactionalWrite.of(partition, records), request, context))


def _known_write(
    write: TransactionalWrite, request: ProduceRequest, context: RequestContext
) -> TransactionalWrite:
    """Have an open transaction verified once per connection: it may belong to another client."""
    assert request.transactional_id is not None
    proven = context.broker.add_partitions_to_txn_manager.proven
    connection, producer_id = context.exchange.connection, write.producer.producer_id
    if write.is_ongoing and not proven.knows(connection, request.transactional_id, producer_id):
        return write._replace(is_ongoing=False)
    return write


def keep_records(request: ProduceRequest, context: RequestContext) -> None:
    """Copy the records: they are views of the receive buffer, which is reused after this turn."""
    if context.keeps_records:
        return
    context.keeps_records = True
    for topic in request.topic_data:
        for data in topic.partition_data:
            if isinstance(data.records, memoryview):
                data.records = context.exchange.keep_piece(data.records)


async def _convert_and_append(request: ProduceRequest, context: RequestContext) -> None:
    await convert_in_a_thread(request, context)
    _append_and_respond(request, context, None)


def _append_and_respond(
    request: ProduceRequest, context: RequestContext, verified: VerifiedWrites | None
) -> None:
    """Append a single partition at once, as most requests need; several in slices."""
    appends = PartitionAppends(request, context, verified, _refusal(request, context))
    topics = request.topic_data
    if len(topics) == 1 and len(topics[0].partition_data) == 1:
        name, answers = _begin_topic(topics[0], appends)
        appends.append(topics[0].partition_data[0], name, answers)
        _respond_when_written(appends)
    else:
        context.answer_in_slices(_append_all(appends), lambda: keep_records(request, context))


def _append_all(appends: PartitionAppends) -> Sliced[None]:
    for topic in appends.request.topic_data:
        yield
        if not topic.partition_data:
            continue
        name, answers = _begin_topic(topic, appends)
        # If a partition is named twice, only its last records count.
        for data in {data.index: data for data in topic.partition_data}.values():
            yield
            appends.append(data, name, answers)
    _respond_when_written(appends)


def _begin_topic(
    topic: TopicProduceData, appends: PartitionAppends
) -> tuple[str | None, list[PartitionProduceResponse]]:
    """Name of the topic, if it is known, and the list for its partitions' responses."""
    context = appends.context
    name = context.topic_name(topic.topic_id) if context.api_version >= VERSION_WITH_TOPIC_IDS else topic.name
    answers: list[PartitionProduceResponse] = []
    appends.response.responses.append(
        TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers)
    )
    return name, answers


def _respond_when_written(appends: PartitionAppends) -> None:
    """Respond once no thread is writing; all appends have begun."""
    if appends.unwritten:
        appends.on_written = lambda: _respond_after_thread(appends)
        appends.wake_readers()
    else:
        _respond_when_acknowledged(appends)


def _respond_after_thread(appends: PartitionAppends) -> None:
    """Respond when the last thread has written. No caller handles an exception here, so the connection
    closes."""
    try:
        _respond_when_acknowledged(appends)
    except Exception:
        logger.exception("a written produce request cannot be answered")
        appends.context.exchange.close("a produce request cannot be answered")


def _respond_when_acknowledged(appends: PartitionAppends) -> None:
    """Respond as acks demands: first to the producer, then to fetches that wait for its records."""
    request, context = appends.request, appends.context
    required_acks = request.acks
    if required_acks == 0:
        if appends.failed:
            context.exchange.close("a produce request with acks=0 failed")
        else:
            context.respond_nothing()
    elif appends.pending:
        # Leadership may move meanwhile, so only the end shows whether a partition failed.
        context.broker.replicas.await_acks(
            request.timeout_ms,
            required_acks,
            appends.pending,
            lambda: _respond_with_outcomes(appends),
        )
    elif appends.failed:
        _respond_with_hints(appends.response, context)
    else:
        context.respond(appends.response)
    appends.wake_readers()


def _respond_with_outcomes(appends: PartitionAppends) -> None:
    for ack, answer in zip(appends.pending, appends.unacknowledged, strict=True):
        answer.error_code = ack.error_code
    _respond_with_hints(appends.response, appends.context)


def _respond_with_hints(response: ProduceResponse, context: RequestContext) -> None:
    topics = response.responses
    is_small = len(topics) == 1 and len(topics[0].partition_responses) == 1
    if context.api_version < VERSION_WITH_LEADER_HINTS or (
        is_small and not topics[0].partition_responses[0].error_code
    ):
        context.respond(response)  # nearly every response, without the cost of a slice
    else:
        context.answer_in_slices(_hinted(response, context))


def _hinted(response: ProduceResponse, context: RequestContext) -> Sliced[ProduceResponse]:
    yield from add_leader_hints(response, context)
    return response


def _refusal(request: ProduceRequest, context: RequestContext) -> KafkaError | None:
    """Error of the whole request: transactional records need a transactional id that the producer may write.

    One batch without it fails the whole request. The batches decide, not the request's own field. A batch
    that is cut short is not a batch: the append refuses it.
    """
    transactional_id = request.transactional_id
    if transactional_id is not None and context.allows(
        Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id
    ):
        return None
    for topic in request.topic_data:
        for data in topic.partition_data:
            records = data.records
            if not isinstance(records, memoryview) or len(records) < HEADER_BYTES:
                continue
            if (
                records[ATTRIBUTES_AT + 1] & TRANSACTIONAL_FLAG
                and records[MAGIC_AT] == 2
                and is_whole(records)
            ):
                return TransactionalIdAuthorizationFailed(
                    "transactional records need WRITE on a transactional id"
                )
    return None


PRODUCE = Api(ApiKey.PRODUCE, handle=handle_produce)
