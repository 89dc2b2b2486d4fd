"""Fetch (1), v0-18. Gaps: none.

From v13 on topics go by id, before that by name. The request is first put into its fetch
session (which adds what an incremental request leaves out), then read, at once or after
waiting; record bytes go out as regions of segment files and are never read here. Consumers
that know only older message formats (v0-3) are the exception (`requests.old_consumers`).

A replica id of a broker makes it a follower's fetch: its offsets say how far the follower is, and
that may commit records and complete the requests of producers. Consumers of v11 and later may
read from followers too (KIP-392), and one that names its rack may be sent to a nearer replica.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from functools import partial
from typing import Final

from barnabas.core.errors import (
    FetchSessionIdNotFound,
    KafkaError,
    TopicAuthorizationFailed,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from barnabas.core.ids import NO_EPOCH
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from barnabas.protocol.offset_numbers import READ_COMMITTED
from barnabas.replication.fetching import FetchParams, PartitionFetch, PartitionRead
from barnabas.replication.leader.fetch_session import SessionKey
from barnabas.replication.leader.fetch_session_cache import FetchContext
from barnabas.requests.context import RequestContext
from barnabas.requests.leader_hints import add_fetch_leader_hints
from barnabas.requests.old_consumers import VERSION_WITH_ZSTD, fit_for_old_consumer
from barnabas.requests.registry import Api
from barnabas.security.acl.vocabulary import CLUSTER_NAME, Operation, ResourceType

MANY: Final = 100
"""Partitions that are asked for in one go; more are read, and answered, a few at a time."""
VERSION_WITH_RACK: Final = 11
VERSION_WITH_TOPIC_IDS: Final = 13
VERSION_WITH_LEADER_HINTS: Final = 16
_NOT_FOUND: Final = frozenset({UnknownTopicOrPartition.code, UnknownTopicId.code})
_UNREAD: Final = _NOT_FOUND | {TopicAuthorizationFailed.code}


def handle_fetch(request: FetchRequest, context: RequestContext) -> FetchResponse | None:
    topics = request.topics
    asks: list[PartitionFetch] = []
    for topic in topics:
        if len(asks) + len(topic.partitions) > MANY or len(topics) > MANY:
            context.answer_in_slices(_fetch_many(request, context))
            return None
        asks += _asks(topic, topic.partitions, context)
    try:
        fetch, params = _begin(request, context, asks)
    except KafkaError as error:
        return _refused(error, asks)
    respond = partial(_respond, fetch, context, params.is_from_follower)
    replicas = context.broker.replicas
    session = fetch.following
    if session is not None:
        replicas.fetch_for_follower(params, session, respond)
    elif params.is_from_follower or context.broker.authorizer.allows_everything:
        found = fetch.fetches
        replicas.answer_or_wait(params, found, replicas.reader.read(params, found), partial(respond, found))
    else:
        context.answer_in_slices(_fetch_allowed(fetch, params, context))
    return None


def _fetch_allowed(
    fetch: FetchContext, params: FetchParams, context: RequestContext
) -> Generator[None, None, None]:
    """For a consumer: what it may read, and an error beside what it may not, also of its session."""
    asks: list[PartitionFetch] = []
    denied: list[PartitionFetch] = []
    topics: dict[str, bool] = {}
    for ask in fetch.fetches:
        name = ask.topic_partition.topic
        if name not in topics:  # a topic that is not known is nobody's secret
            topics[name] = not name or context.allows(Operation.READ, ResourceType.TOPIC, name)
            yield
        (asks if topics[name] else denied).append(ask)
    failed = [PartitionRead(TopicAuthorizationFailed.code) for _ in denied]
    replicas = context.broker.replicas

    def respond(reads: list[PartitionRead]) -> None:
        _respond(fetch, context, False, [*asks, *denied], [*reads, *failed])

    if not asks and denied:
        respond([])
    else:
        reads = yield from replicas.reader.read_in_slices(params, asks)
        replicas.answer_or_wait(params, asks, reads, respond)


def _fetch_many(
    request: FetchRequest, context: RequestContext
) -> Generator[None, None, FetchResponse | None]:
    """The same, a few partitions at a time. A follower's session is read as a whole."""
    asks: list[PartitionFetch] = []
    for topic in request.topics:
        for start in range(0, len(topic.partitions), MANY):
            asks += _asks(topic, topic.partitions[start : start + MANY], context)
            yield
    try:
        fetch, params = _begin(request, context, asks)
    except KafkaError as error:
        return _refused(error, asks)
    respond = partial(_respond, fetch, context, params.is_from_follower)
    replicas = context.broker.replicas
    session = fetch.following
    if session is not None:
        replicas.fetch_for_follower(params, session, respond)
    elif not params.is_from_follower and not context.broker.authorizer.allows_everything:
        yield from _fetch_allowed(fetch, params, context)
    else:
        asks = list(fetch.fetches)
        reads = yield from replicas.reader.read_in_slices(params, asks)
        replicas.answer_or_wait(params, asks, reads, partial(respond, asks))
    return None


def _begin(
    request: FetchRequest, context: RequestContext, asks: list[PartitionFetch]
) -> tuple[FetchContext, FetchParams]:
    """Put the request into its session, and say what holds for all its partitions."""
    if len(asks) > 1:
        by_key = {ask.session_key: ask for ask in asks}
        if len(by_key) < len(asks):
            asks = list(by_key.values())  # of a partition asked for twice the last counts
    broker = context.broker
    uses_topic_ids = context.api_version >= VERSION_WITH_TOPIC_IDS
    replica = request.replica_state
    replica_id = request.replica_id if replica is None else replica.replica_id
    if replica_id >= 0 and not context.allows(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME):
        raise TopicAuthorizationFailed("only brokers fetch as replicas")
    context.is_exempt = replica_id >= 0
    fetch = broker.fetch_sessions.context(
        request.session_id,
        request.session_epoch,
        asks,
        _forgotten(request, uses_topic_ids=uses_topic_ids) if request.forgotten_topics_data else (),
        uses_topic_ids=uses_topic_ids,
        is_from_follower=replica_id >= 0,
    )
    if fetch.following is not None and replica_id < 0:
        raise FetchSessionIdNotFound("the session is a follower's")
    max_bytes = min(request.max_bytes, broker.settings.fetch_max_bytes)
    if broker.quotas.is_limiting and replica_id < 0:
        principal = context.exchange.connection.principal
        max_bytes = int(min(max_bytes, broker.quotas.fetch_bytes_max(principal.name, context.client_id)))
    params = FetchParams(
        replica_id=replica_id,
        max_wait_ms=request.max_wait_ms,
        min_bytes=min(request.min_bytes, max_bytes),  # more than the answer may hold never comes
        max_bytes=max_bytes,
        read_committed=request.isolation_level == READ_COMMITTED,
        broker_epoch=NO_EPOCH if replica is None else replica.replica_epoch,
        rack_id=request.rack_id,
        may_read_from_follower=context.api_version >= VERSION_WITH_RACK,
    )
    return fetch, params


def _refused(error: KafkaError, asks: Sequence[PartitionFetch]) -> FetchResponse:
    """Whoever may not fetch as a replica is told so of each partition, as Apache Kafka does."""
    if not isinstance(error, TopicAuthorizationFailed):
        return FetchResponse(error_code=error.code)
    topics: dict[object, FetchableTopicResponse] = {}
    for ask in asks:
        name, index = ask.topic_partition
        topic = topics.setdefault(
            (name, ask.topic_id), FetchableTopicResponse(topic=name, topic_id=ask.topic_id, partitions=[])
        )
        topic.partitions.append(_partition_data(index, PartitionRead(error.code)))
    return FetchResponse(responses=list(topics.values()))


def _respond(
    fetch: FetchContext,
    context: RequestContext,
    is_from_follower: bool,
    asks: Sequence[PartitionFetch],
    reads: list[PartitionRead],
) -> None:
    """Answer the request, now or later."""
    if context.broker.quotas.is_limiting and not is_from_follower and _is_over_quota(context, reads):
        context.respond(FetchResponse(session_id=context.broker.fetch_sessions.give_up_new(fetch)))
        return
    if len(reads) > MANY:
        context.answer_in_slices(_respond_in_slices(fetch, context, is_from_follower, asks, reads))
        return
    topics: list[FetchableTopicResponse] = []
    try:
        _add(topics, _to_send(fetch, context, asks, reads), context, is_from_follower)
        response = _response(fetch, context, is_from_follower, topics, reads)
    except Exception as error:  # noqa: BLE001 - the reader waits for an answer, whatever it is
        context.fail(error)
    else:
        context.respond(response)


def _is_over_quota(context: RequestContext, reads: list[PartitionRead]) -> bool:
    """Whether a consumer has to come again later: it is sent nothing for now, but when to come."""
    size_bytes = sum(read.records.length for read in reads if read.records is not None)
    principal = context.exchange.connection.principal
    context.throttle_ms = context.broker.quotas.charge_fetch(principal.name, context.client_id, size_bytes)
    return context.throttle_ms > 0


def _respond_in_slices(
    fetch: FetchContext,
    context: RequestContext,
    is_from_follower: bool,
    asks: Sequence[PartitionFetch],
    reads: list[PartitionRead],
) -> Generator[None, None, FetchResponse]:
    topics: list[FetchableTopicResponse] = []
    for each in _to_send(fetch, context, asks, reads):
        _add(topics, (each,), context, is_from_follower)
        yield
    return _response(fetch, context, is_from_follower, topics, reads)


def _asks(
    topic: FetchTopic, partitions: Sequence[FetchPartition], context: RequestContext
) -> list[PartitionFetch]:
    name = (
        context.topic_name(topic.topic_id) if context.api_version >= VERSION_WITH_TOPIC_IDS else topic.topic
    )
    return [
        PartitionFetch(
            name,
            topic.topic_id,
            ask.partition,
            ask.fetch_offset,
            ask.partition_max_bytes,
            ask.current_leader_epoch if ask.current_leader_epoch >= 0 else NO_EPOCH,
            ask.last_fetched_epoch,
            ask.log_start_offset,
        )
        for ask in partitions
    ]


def _forgotten(request: FetchRequest, *, uses_topic_ids: bool) -> list[SessionKey]:
    return [
        (topic.topic_id if uses_topic_ids else topic.topic, partition)
        for topic in request.forgotten_topics_data
        for partition in topic.partitions
    ]


def _to_send(
    fetch: FetchContext, context: RequestContext, asks: Sequence[PartitionFetch], reads: list[PartitionRead]
) -> list[tuple[PartitionFetch, PartitionRead]]:
    sent = fetch.to_send(asks, reads)
    if any(read.error_code for _, read in sent):
        return _not_found_last(sent, uses_topic_ids=context.api_version >= VERSION_WITH_TOPIC_IDS)
    return sent


def _add(
    topics: list[FetchableTopicResponse],
    sent: Sequence[tuple[PartitionFetch, PartitionRead]],
    context: RequestContext,
    is_from_follower: bool,
) -> None:
    """Add what was read to the answer: partitions of one topic that follow each other stand together."""
    metrics_of = context.broker.replicas.table.metrics_of
    current = topics[-1] if topics else None
    for ask, read in sent:
        name, index = ask.topic_partition
        if current is None or current.topic != name or current.topic_id != ask.topic_id:
            current = FetchableTopicResponse(topic=name, topic_id=ask.topic_id, partitions=[])
            topics.append(current)
        current.partitions.append(_partition_data(index, read))
        if context.api_version < VERSION_WITH_ZSTD:
            fit_for_old_consumer(current.partitions[-1], ask, context)
        if read.records is not None and not is_from_follower:
            metrics_of(name).bytes_out.value += read.records.length


def _response(
    fetch: FetchContext,
    context: RequestContext,
    is_from_follower: bool,
    topics: list[FetchableTopicResponse],
    reads: list[PartitionRead],
) -> FetchResponse:
    response = FetchResponse(session_id=fetch.session_id, responses=topics)
    if context.api_version >= VERSION_WITH_LEADER_HINTS and any(read.error_code for read in reads):
        add_fetch_leader_hints(response, context, with_endpoints=not is_from_follower)
    return response


def _not_found_last(
    sent: list[tuple[PartitionFetch, PartitionRead]], *, uses_topic_ids: bool
) -> list[tuple[PartitionFetch, PartitionRead]]:
    if not uses_topic_ids:
        for _, read in sent:
            if read.error_code == UnknownTopicId.code:  # the empty name
                read.error_code = UnknownTopicOrPartition.code
    return sorted(sent, key=lambda each: each[1].error_code in _NOT_FOUND)


def _partition_data(index: int, read: PartitionRead) -> PartitionData:
    error_code = read.error_code
    data = PartitionData(
        partition_index=index,
        error_code=error_code,
        high_watermark=read.high_watermark,
        last_stable_offset=read.last_stable_offset,
        log_start_offset=read.log_start_offset,
        preferred_read_replica=read.preferred_read_replica,
        aborted_transactions=[] if error_code in _UNREAD else None,
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


FETCH = Api(ApiKey.FETCH, handle=handle_fetch)
