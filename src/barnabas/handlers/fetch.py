"""Fetch (1), v0-18. Gaps: reading from followers (KIP-392).

From v13 on topics go by id, before that by name. The request is first put into its fetch
session (which adds what an incremental request leaves out), then read, at once or after
waiting; record bytes go out as regions of segment files and are never read here. Consumers
that know only older message formats (v0-3) are the exception: see `old_consumers`.
"""

from __future__ import annotations

from barnabas.core.errors import KafkaError
from barnabas.handlers.context import RequestContext
from barnabas.handlers.old_consumers import ZSTD_SINCE_VERSION, fit_for_old_consumer
from barnabas.handlers.registry import Api
from barnabas.handlers.topic_ids import topic_name
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from barnabas.replication.fetch_session import FetchContext, SessionKey
from barnabas.replication.fetching import FetchParams, FetchPartition, PartitionRead

READ_COMMITTED = 1


def handle_fetch(request: FetchRequest, context: RequestContext) -> FetchResponse | None:
    broker = context.broker
    uses_topic_ids = context.api_version >= 13
    try:
        fetch = broker.fetch_sessions.context(
            request.session_id,
            request.session_epoch,
            _asks(request, context, uses_topic_ids=uses_topic_ids),
            _forgotten(request, uses_topic_ids=uses_topic_ids),
            uses_topic_ids=uses_topic_ids,
        )
    except KafkaError as error:
        return FetchResponse(error_code=error.code)
    params = FetchParams(
        replica_id=request.replica_id if request.replica_state is None else request.replica_state.replica_id,
        max_wait_ms=request.max_wait_ms,
        min_bytes=request.min_bytes,
        max_bytes=min(request.max_bytes, broker.settings.fetch_max_bytes),
        read_committed=request.isolation_level == READ_COMMITTED,
    )

    def respond(reads: list[PartitionRead]) -> None:
        context.respond(_response(fetch, reads, context))

    broker.replicas.fetch(params, fetch.asks, respond)
    return None


def _asks(request: FetchRequest, context: RequestContext, *, uses_topic_ids: bool) -> list[FetchPartition]:
    return [
        FetchPartition(
            topic_name(context, topic.topic_id) if uses_topic_ids else topic.topic,
            topic.topic_id,
            ask.partition,
            ask.fetch_offset,
            ask.partition_max_bytes,
            ask.current_leader_epoch,
            ask.last_fetched_epoch,
            ask.log_start_offset,
        )
        for topic in request.topics
        for ask in topic.partitions
    ]


def _forgotten(request: FetchRequest, *, uses_topic_ids: bool) -> list[SessionKey]:
    return [
        (topic.topic_id if uses_topic_ids else topic.topic, partition)
        for topic in request.forgotten_topics_data
        for partition in topic.partitions
    ]


def _response(fetch: FetchContext, reads: list[PartitionRead], context: RequestContext) -> FetchResponse:
    metrics_of = context.broker.replicas.metrics_of
    topics: list[FetchableTopicResponse] = []
    current: FetchableTopicResponse | None = None
    for ask, read in fetch.to_send(reads):
        name, index = ask.topic_partition
        if current is None or current.topic != name or current.topic_id != ask.topic_id:
            current = FetchableTopicResponse(topic=name, topic_id=ask.topic_id, partitions=[])
            topics.append(current)
        current.partitions.append(_partition_data(index, read))
        if context.api_version < ZSTD_SINCE_VERSION:
            fit_for_old_consumer(current.partitions[-1], ask, context)
        if read.records is not None:
            metrics_of(name).bytes_out.value += read.records.length
    return FetchResponse(session_id=fetch.session_id, responses=topics)


def _partition_data(index: int, read: PartitionRead) -> PartitionData:
    data = PartitionData(
        partition_index=index,
        error_code=read.error_code,
        high_watermark=read.high_watermark,
        last_stable_offset=read.last_stable_offset,
        log_start_offset=read.log_start_offset,
        aborted_transactions=None,
        records=read.records if read.records is not None else b"",
    )
    if read.aborted_transactions is not None:
        data.aborted_transactions = [
            AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
            for aborted in read.aborted_transactions
        ]
    if read.diverging_epoch is not None:
        epoch, end_offset = read.diverging_epoch
        data.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)
    return data


FETCH = Api(ApiKey.FETCH, versions=range(19), handle=handle_fetch)
