"""Produce (0), v0-13. Gaps: none.

Versions 0-2 carry message formats 0 and 1, which are converted up (`requests.old_messages`): a log holds v2
batches only, unless an older broker wrote it.

Each partition gets its own answer, its own error included (`requests.partition_appends`). With acks=0 nobody
reads an answer, so an error can only be told by closing the connection: the producer then looks for a new
leader.

A request with a transactional id takes a detour first (`_admit_transactional`), which costs the others one
comparison.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from typing import Final

from barnabas.coordinator.transaction.admission import (
    Admission,
    Admissions,
    Dialect,
    TransactionalWrite,
    is_transactional,
)
from barnabas.core.errors import KafkaError, TransactionalIdAuthorizationFailed
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from barnabas.records.batch import ATTRIBUTES_AT, MAGIC_AT, TRANSACTIONAL_FLAG
from barnabas.requests.context import RequestContext
from barnabas.requests.leader_hints import add_leader_hints
from barnabas.requests.old_messages import VERSION_WITH_BATCHES, convert_in_a_thread, is_long_conversion
from barnabas.requests.partition_appends import PartitionAppends
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
        _append_and_answer(request, context, None)
    else:
        _admit_transactional(
            request, context, lambda admission: _append_and_answer(request, context, admission)
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


def _admit_transactional(
    request: ProduceRequest, context: RequestContext, admit: Callable[[Admission | None], None]
) -> None:
    """Have the coordinator asked about writes that are new to their transaction. The records are a view of
    the network's buffer: if it cannot answer at once, they are copied and the connection waits, so that the
    producer's next request cannot overtake this one."""
    version, broker = context.api_version, context.broker
    adds_partitions = version >= VERSION_WITH_IMPLICIT_ADD
    dialect = Dialect(
        adds_partitions,
        is_verified=adds_partitions or broker.settings.transaction_partition_verification_enable,
        knows_abortable=version >= VERSION_WITH_ABORTABLE,
    )

    def wait() -> None:
        keep_records(request, context)
        context.exchange.hold()

    assert request.transactional_id is not None
    admissions = Admissions(broker.replicas, broker.transaction_membership, request.transactional_id, dialect)
    is_one_turn = len(request.topic_data) == 1 and len(request.topic_data[0].partition_data) == 1
    admissions.admit(list(_writes(request, context)), admit, wait, is_one_turn=is_one_turn)


def _writes(request: ProduceRequest, context: RequestContext) -> Iterator[TransactionalWrite]:
    """The transactional ones, of partitions that are here."""
    by_id = context.api_version >= VERSION_WITH_TOPIC_IDS
    for topic in request.topic_data:
        name = context.topic_name(topic.topic_id) if by_id else topic.name
        if name is None or not context.allows(Operation.WRITE, ResourceType.TOPIC, name):
            continue  # the append will say so
        for data in topic.partition_data:
            records = data.records
            if isinstance(records, memoryview) and is_transactional(records):
                with suppress(KafkaError):  # the append will say so
                    yield TransactionalWrite.of(context.broker.replicas.partition(name, data.index), records)


def keep_records(request: ProduceRequest, context: RequestContext) -> None:
    """The records are views of the network's buffer, which is used for something else after this turn."""
    if context.keeps_records:
        return
    context.keeps_records = True
    for topic in request.topic_data:
        for data in topic.partition_data:
            if isinstance(data.records, memoryview):
                data.records = context.exchange.keep_piece(data.records)


async def _convert_and_append(request: ProduceRequest, context: RequestContext) -> None:
    await convert_in_a_thread(request, context)
    _append_and_answer(request, context, None)


def _append_and_answer(request: ProduceRequest, context: RequestContext, admission: Admission | None) -> None:
    """What most requests have, one partition, at once; of several as many as the turn has time for."""
    appends = PartitionAppends(request, context, admission, _refusal(request, context))
    topics = request.topic_data
    if len(topics) == 1 and len(topics[0].partition_data) == 1:
        name, answers = _begin_topic(topics[0], appends)
        appends.append(topics[0].partition_data[0], name, answers)
        _complete(appends)
    else:
        context.answer_in_slices(_append_all(appends), lambda: keep_records(request, context))


def _append_all(appends: PartitionAppends) -> Generator[None, None, None]:
    for topic in appends.request.topic_data:
        yield
        if not topic.partition_data:
            continue
        name, answers = _begin_topic(topic, appends)
        # Of a partition that is named twice only the last records count.
        for data in {data.index: data for data in topic.partition_data}.values():
            yield
            appends.append(data, name, answers)
    _complete(appends)


def _begin_topic(
    topic: TopicProduceData, appends: PartitionAppends
) -> tuple[str | None, list[PartitionProduceResponse]]:
    """The name of the topic, if it is known, and where its partitions' answers go."""
    context = appends.context
    name = context.topic_name(topic.topic_id) if context.api_version >= VERSION_WITH_TOPIC_IDS else topic.name
    answers: list[PartitionProduceResponse] = []
    appends.response.responses.append(
        TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers)
    )
    return name, answers


def _complete(appends: PartitionAppends) -> None:
    """All appends are done, or begun."""
    if appends.unwritten:
        appends.on_written = lambda: _answer_late(appends)
        appends.wake_readers()
    else:
        _answer_for(appends)


def _answer_late(appends: PartitionAppends) -> None:
    """Nobody above would answer in our place: it was a thread that had us called, not the network."""
    try:
        _answer_for(appends)
    except Exception:
        logger.exception("the answer to a produce request that was written cannot be made")
        appends.context.exchange.close("the answer to a produce request cannot be made")


def _answer_for(appends: PartitionAppends) -> None:
    """The producer is answered first, then the readers that its records wake up."""
    request, context = appends.request, appends.context
    required_acks = request.acks
    if required_acks == 0:
        if appends.failed:
            context.exchange.close("a produce request with acks=0 failed")
        else:
            context.respond_nothing()
    elif appends.pending:
        # Leadership may be lost while we wait, so only the end shows whether something failed.
        context.broker.replicas.await_acks(
            request.timeout_ms, required_acks, appends.pending, lambda: _answer(appends.response, context)
        )
    elif appends.failed:
        _answer(appends.response, context)
    else:
        context.respond(appends.response)
    appends.wake_readers()


def _answer(response: ProduceResponse, context: RequestContext) -> None:
    if context.api_version >= VERSION_WITH_LEADER_HINTS:
        add_leader_hints(response, context)
    context.respond(response)


def _refusal(request: ProduceRequest, context: RequestContext) -> KafkaError | None:
    """Transactional records need a transactional id that the producer may write under; one batch without
    it fails the whole request. The batches count, not what the request says of them."""
    transactional_id = request.transactional_id
    if transactional_id is not None and context.allows(
        Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id
    ):
        return None
    for topic in request.topic_data:
        for data in topic.partition_data:
            records = data.records
            if not isinstance(records, memoryview) or len(records) <= ATTRIBUTES_AT + 1:
                continue
            if records[ATTRIBUTES_AT + 1] & TRANSACTIONAL_FLAG and records[MAGIC_AT] == 2:
                return TransactionalIdAuthorizationFailed("transactional records need an authorized id")
    return None


PRODUCE = Api(ApiKey.PRODUCE, handle=handle_produce)
