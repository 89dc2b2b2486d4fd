"""WriteTxnMarkers (27), v1-2. Gaps: version 0 (not flexible, removed from Apache Kafka).

Transaction coordinators send it, and tools that abort a hanging transaction. Each partition has its own
error; a marker without partitions has none. Requests of a connection do not wait for each other, unless one
has very many markers: then only some of them wait for replication at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from barnabas.coordinator.runtime.fan_in import Gathering, Window
from barnabas.coordinator.transaction.markers.outcome import MarkerErrors, TransactionMarker
from barnabas.core.errors import NONE, KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.core.limits import DECISION_ELEMENTS_MAX, MARKERS_UNWRITTEN_MAX
from barnabas.core.steps import Sliced
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from barnabas.requests.bounded_loops import each, matching
from barnabas.requests.context import RequestContext
from barnabas.requests.registry import Api


def handle_write_txn_markers(request: WriteTxnMarkersRequest, context: RequestContext) -> Sliced[None]:
    context.is_exempt = True
    markers = yield from matching(
        request.markers, lambda marker: any(topic.partition_indexes for topic in marker.topics)
    )
    if len(markers) > MARKERS_UNWRITTEN_MAX:
        context.answer_with(_write_many(markers, context))
        return
    gathering: Gathering[MarkerErrors] = Gathering(
        len(markers), lambda errors: context.answer_in_slices(_answer(markers, errors))
    )
    for number, wanted in enumerate(markers):
        _write(wanted, context, partial(gathering.put, number))
        yield


async def _write_many(
    markers: Sequence[WritableTxnMarker], context: RequestContext
) -> WriteTxnMarkersResponse:
    window: Window[MarkerErrors] = Window(MARKERS_UNWRITTEN_MAX)
    for wanted in markers:
        await context.breathe()
        await window.begin(partial(_write, wanted, context))
    return await context.spread(_answer(markers, await window.parts()))


def _write(wanted: WritableTxnMarker, context: RequestContext, done: Callable[[MarkerErrors], None]) -> None:
    marker = TransactionMarker(
        wanted.producer_id,
        wanted.producer_epoch,
        wanted.coordinator_epoch,
        wanted.transaction_result,
        wanted.transaction_version,
    )
    partitions = {
        TopicPartition(topic.name, index): None
        for topic in wanted.topics
        for index in topic.partition_indexes
    }
    context.broker.markers.write(marker, partitions, done)


def _answer(
    markers: Sequence[WritableTxnMarker], errors_of: Sequence[MarkerErrors]
) -> Sliced[WriteTxnMarkersResponse]:
    results = []
    for wanted, errors in zip(markers, errors_of, strict=True):
        results.append((yield from _result(wanted, errors)))
    return WriteTxnMarkersResponse(markers=results)


def _result(wanted: WritableTxnMarker, errors: MarkerErrors) -> Sliced[WritableTxnMarkerResult]:
    topics = []
    for topic in wanted.topics:
        partitions = []
        for index in topic.partition_indexes:
            code = _code(errors, TopicPartition(topic.name, index))
            partitions.append(WritableTxnMarkerPartitionResult(partition_index=index, error_code=code))
            yield
        topics.append(WritableTxnMarkerTopicResult(name=topic.name, partitions=partitions))
        yield
    return WritableTxnMarkerResult(producer_id=wanted.producer_id, topics=topics)


def _code(errors: MarkerErrors, topic_partition: TopicPartition) -> int:
    error = errors.get(topic_partition)
    return NONE if error is None else error.code


def _refused(request: WriteTxnMarkersRequest, error: KafkaError, _: int) -> Sliced[WriteTxnMarkersResponse]:
    errors_of = yield from each(request.markers, lambda wanted: _same_error(wanted, error))
    return (yield from _answer(request.markers, errors_of))


def _same_error(wanted: WritableTxnMarker, error: KafkaError) -> MarkerErrors:
    return {
        TopicPartition(topic.name, index): error
        for topic in wanted.topics
        for index in topic.partition_indexes
    }


WRITE_TXN_MARKERS = Api(
    ApiKey.WRITE_TXN_MARKERS,
    handle=handle_write_txn_markers,
    refused=_refused,
    elements_max=DECISION_ELEMENTS_MAX,
)
