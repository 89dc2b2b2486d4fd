"""WriteTxnMarkers (27), v1-2. Gaps: version 0 (not flexible, removed from Apache Kafka).

Sent by coordinators, and by tools that end a transaction that hangs. Each partition has its own answer; a
marker for no partitions has none.
"""

from __future__ import annotations

from barnabas.coordinator.gathering import Gathering
from barnabas.coordinator.transaction.markers import MarkerErrors, TransactionMarker
from barnabas.core.errors import NONE, KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.core.limits import ORDER_ELEMENTS_MAX
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from barnabas.requests.context import RequestContext
from barnabas.requests.registry import Api


def handle_write_txn_markers(request: WriteTxnMarkersRequest, context: RequestContext) -> None:
    context.is_exempt = True
    markers = [
        marker for marker in request.markers if any(topic.partition_indexes for topic in marker.topics)
    ]
    gathering: Gathering[WritableTxnMarkerResult] = Gathering(
        len(markers), lambda results: context.respond(WriteTxnMarkersResponse(markers=results))
    )
    for place, wanted in enumerate(markers):
        _write(place, wanted, context, gathering)


def _write(
    place: int,
    wanted: WritableTxnMarker,
    context: RequestContext,
    gathering: Gathering[WritableTxnMarkerResult],
) -> None:
    marker = TransactionMarker(
        wanted.producer_id,
        wanted.producer_epoch,
        wanted.coordinator_epoch,
        wanted.transaction_result,
        wanted.transaction_version,
    )
    context.broker.markers.write(
        marker,
        [TopicPartition(topic.name, index) for topic in wanted.topics for index in topic.partition_indexes],
        lambda errors: gathering.put(place, _result(wanted, errors)),
    )


def _result(wanted: WritableTxnMarker, errors: MarkerErrors) -> WritableTxnMarkerResult:
    return WritableTxnMarkerResult(
        producer_id=wanted.producer_id,
        topics=[
            WritableTxnMarkerTopicResult(
                name=topic.name,
                partitions=[
                    WritableTxnMarkerPartitionResult(
                        partition_index=index, error_code=_code(errors, TopicPartition(topic.name, index))
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in wanted.topics
        ],
    )


def _code(errors: MarkerErrors, topic_partition: TopicPartition) -> int:
    error = errors.get(topic_partition)
    return NONE if error is None else error.code


def _refused(request: WriteTxnMarkersRequest, error: KafkaError, _: int) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=[
            _result(
                wanted,
                {
                    TopicPartition(topic.name, index): error
                    for topic in wanted.topics
                    for index in topic.partition_indexes
                },
            )
            for wanted in request.markers
        ]
    )


WRITE_TXN_MARKERS = Api(
    ApiKey.WRITE_TXN_MARKERS,
    handle=handle_write_txn_markers,
    refused=_refused,
    elements_max=ORDER_ELEMENTS_MAX,
)
