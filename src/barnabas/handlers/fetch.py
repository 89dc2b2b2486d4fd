"""Fetch (1), v0-18. Gaps: none.

From v13 on a request names topics by id, before that by name. It first joins its fetch session, which adds
the partitions that an incremental request leaves out. Then they are read, at once or after a wait.
Record bytes are sent as regions of segment files and are never read here. Consumers of older message formats
(v0-3) are the exception (`handlers.shared.down_conversion`).

The replica id of a broker makes it a follower's fetch. Its offsets report the follower's progress, which may
commit records and complete Produce requests. Consumers of v11 and later may read from followers too
(KIP-392). A consumer that names its rack may be sent to a nearer replica.
"""

from __future__ import annotations

from collections.abc import Sequence
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
from barnabas.core.steps import Sliced, run_to_end
from barnabas.handlers.shared.down_conversion import VERSION_WITH_ZSTD, fit_for_old_consumer
from barnabas.handlers.shared.leader_hints import add_fetch_leader_hints
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
from barnabas.replication.leader.fetch_session import SessionKey
from barnabas.replication.leader.fetch_session_cache import FetchContext
from barnabas.replication.partition.fetching import FetchParams, PartitionFetch, PartitionRead
from barnabas.requests.bounded_loops import parted
from barnabas.requests.context import RequestContext
from barnabas.requests.registry import Api
from barnabas.security.acl.vocabulary import CLUSTER_NAME, Operation, ResourceType

MANY: Final = 100
"""Partitions that one turn of the loop handles; more are read and answered in slices."""
VERSION_WITH_RACK: Final = 11
VERSION_WITH_TOPIC_IDS: Final = 13
VERSION_WITH_LEADER_HINTS: Final = 16
_NOT_FOUND: Final = frozenset({UnknownTopicOrPartition.code, UnknownTopicId.code})
_UNREAD: Final = _NOT_FOUND | {TopicAuthorizationFailed.code}


def handle_fetch(request: FetchRequest, context: RequestContext) -> FetchResponse | None:
    topics = request.topics
    fetches: list[PartitionFetch] = []
    for topic in topics:
        if len(fetches) + len(topic.partitions) > MANY or len(topics) > MANY:
            context.answer_in_slices(_fetch_many(request, context))
            return None
        fetches += _partition_fetches(topic, topic.partitions, context)
    if _replica_id(request) < 0 and not context.broker.authorizer.allows_everything:
        context.answer_in_slices(_fetch_authorized(request, context, fetches))
        return None
    try:
        fetch_context, params = _begin(request, context, run_to_end(_last_mentions(fetches)))
    except KafkaError as error:
        context.answer_in_slices(_refused(error, fetches))
        return None
    replicas = context.broker.replicas
    respond = partial(_respond, fetch_context, context, params.is_from_follower)
    session = fetch_context.following
    if session is not None:
        replicas.fetch_for_follower(params, session, respond)
    else:
        session_fetches = fetch_context.fetches
        replicas.answer_or_wait(
            params,
            session_fetches,
            replicas.reader.read(params, session_fetches),
            partial(respond, session_fetches),
        )
    return None


def _fetch_many(request: FetchRequest, context: RequestContext) -> Sliced[FetchResponse | None]:
    """Fetch in slices of a few partitions. A follower's session is read as a whole.

    A small fetch does not come here. As a generator it costs about 25 % more user CPU
    (`bench/request_path.py`, 26 to 33 us at depth 32).
    """
    fetches: list[PartitionFetch] = []
    for topic in request.topics:
        for start in range(0, len(topic.partitions), MANY):
            fetches += _partition_fetches(topic, topic.partitions[start : start + MANY], context)
            yield
    return (yield from _fetch_authorized(request, context, fetches))


def _fetch_authorized(
    request: FetchRequest, context: RequestContext, fetches: list[PartitionFetch]
) -> Sliced[FetchResponse | None]:
    """Fetch the topics that the client may read; the others get an error.

    Rights come before the session, so the session keeps no partition that the client may not read. They are
    checked again in each fetch, for the partitions of the session too.
    """
    fetches = yield from _last_mentions(fetches)
    is_free = context.broker.authorizer.allows_everything or _replica_id(request) >= 0
    rights: dict[str, bool] = {}
    may_keep = True
    if not is_free:
        yield from _look_up(fetches, rights, context)
        # An unknown topic is not a secret, but no session need keep it.
        may_keep = "" not in rights and all(rights.values())
    try:
        fetch_context, params = _begin(request, context, fetches, may_keep=may_keep)
    except KafkaError as error:
        return (yield from _refused(error, fetches))
    replicas = context.broker.replicas
    session = fetch_context.following
    if session is not None:
        replicas.fetch_for_follower(
            params, session, partial(_respond, fetch_context, context, params.is_from_follower)
        )
        return None
    wanted, denied = fetch_context.fetches, list[PartitionFetch]()
    if not is_free:
        yield from _look_up(wanted, rights, context)
        wanted, denied = yield from parted(wanted, lambda fetch: rights[fetch.topic_partition.topic])

    def respond(reads: list[PartitionRead]) -> None:
        failed = [PartitionRead(TopicAuthorizationFailed.code)] * len(denied)
        _respond(fetch_context, context, params.is_from_follower, [*wanted, *denied], [*reads, *failed])

    if not wanted and denied:
        respond([])
    else:
        reads = yield from replicas.reader.read_in_slices(params, wanted)
        replicas.answer_or_wait(params, wanted, reads, respond)
    return None


def _last_mentions(fetches: list[PartitionFetch]) -> Sliced[list[PartitionFetch]]:
    """The fetches without earlier mentions of a partition: the last one counts."""
    if len(fetches) < 2:
        return fetches
    by_key: dict[SessionKey, PartitionFetch] = {}
    for fetch in fetches:
        by_key[fetch.session_key] = fetch
        yield
    return fetches if len(by_key) == len(fetches) else list(by_key.values())


def _look_up(
    fetches: Sequence[PartitionFetch], rights: dict[str, bool], context: RequestContext
) -> Sliced[None]:
    for fetch in fetches:
        name = fetch.topic_partition.topic
        if name not in rights:
            rights[name] = not name or context.allows(Operation.READ, ResourceType.TOPIC, name)
        yield


def _replica_id(request: FetchRequest) -> int:
    replica = request.replica_state
    return request.replica_id if replica is None else replica.replica_id


def _begin(
    request: FetchRequest, context: RequestContext, fetches: list[PartitionFetch], *, may_keep: bool = True
) -> tuple[FetchContext, FetchParams]:
    """Join the fetch session, and derive the parameters that hold for all partitions."""
    broker = context.broker
    uses_topic_ids = context.api_version >= VERSION_WITH_TOPIC_IDS
    replica = request.replica_state
    replica_id = _replica_id(request)
    if replica_id >= 0 and not context.allows(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME):
        raise TopicAuthorizationFailed("only brokers fetch as replicas")
    context.is_exempt = replica_id >= 0
    fetch_context = broker.fetch_sessions.context(
        request.session_id,
        request.session_epoch,
        fetches,
        _forgotten(request, uses_topic_ids=uses_topic_ids) if request.forgotten_topics_data else (),
        uses_topic_ids=uses_topic_ids,
        is_from_follower=replica_id >= 0,
        owner=context.exchange.connection,
        may_keep=may_keep,
    )
    if fetch_context.following is not None and replica_id < 0:
        raise FetchSessionIdNotFound("the fetch session belongs to a follower")
    max_bytes = min(request.max_bytes, broker.config.fetch_max_bytes)
    if broker.quotas.is_limiting and replica_id < 0:
        principal = context.exchange.connection.principal
        max_bytes = int(min(max_bytes, broker.quotas.fetch_bytes_max(principal.name, context.client_id)))
    params = FetchParams(
        replica_id=replica_id,
        max_wait_ms=request.max_wait_ms,
        min_bytes=min(request.min_bytes, max_bytes),  # a response never holds more
        max_bytes=max_bytes,
        read_committed=request.isolation_level == READ_COMMITTED,
        broker_epoch=NO_EPOCH if replica is None else replica.replica_epoch,
        rack_id=request.rack_id,
        may_read_from_follower=context.api_version >= VERSION_WITH_RACK,
    )
    return fetch_context, params


def _refused(error: KafkaError, fetches: Sequence[PartitionFetch]) -> Sliced[FetchResponse]:
    """The error of a whole fetch. A client that may not fetch as a replica gets it for each partition, as in
    Apache Kafka."""
    if not isinstance(error, TopicAuthorizationFailed):
        return FetchResponse(error_code=error.code)
    topics: dict[object, FetchableTopicResponse] = {}
    for fetch in fetches:
        name, index = fetch.topic_partition
        topic = topics.setdefault(
            (name, fetch.topic_id), FetchableTopicResponse(topic=name, topic_id=fetch.topic_id, partitions=[])
        )
        topic.partitions.append(_partition_data(index, PartitionRead(error.code)))
        yield
    return FetchResponse(responses=list(topics.values()))


def _respond(
    fetch_context: FetchContext,
    context: RequestContext,
    is_from_follower: bool,
    fetches: Sequence[PartitionFetch],
    reads: list[PartitionRead],
) -> None:
    """Respond to the fetch, at once or in slices."""
    if context.broker.quotas.is_limiting and not is_from_follower and _is_over_quota(context, reads):
        context.respond(FetchResponse(session_id=context.broker.fetch_sessions.give_up_new(fetch_context)))
        return
    if len(reads) > MANY or context.api_version < VERSION_WITH_ZSTD:
        context.answer_in_slices(_respond_in_slices(fetch_context, context, is_from_follower, fetches, reads))
        return
    topics: list[FetchableTopicResponse] = []
    try:
        _add(topics, _included(fetch_context, context, fetches, reads), context, is_from_follower)
        if context.api_version >= VERSION_WITH_LEADER_HINTS and any(read.error_code for read in reads):
            context.answer_in_slices(_with_hints(fetch_context, context, is_from_follower, topics))
            return
        response = FetchResponse(session_id=fetch_context.session_id, responses=topics)
    except Exception as error:  # noqa: BLE001 - the client waits for a response in any case
        context.fail(error)
    else:
        context.respond(response)


def _is_over_quota(context: RequestContext, reads: list[PartitionRead]) -> bool:
    """Whether the consumer is above its quota: its response is empty and carries the throttle time."""
    size_bytes = sum(read.records.length for read in reads if read.records is not None)
    principal = context.exchange.connection.principal
    context.throttle_ms = context.broker.quotas.charge_fetch(principal.name, context.client_id, size_bytes)
    return context.throttle_ms > 0


def _respond_in_slices(
    fetch_context: FetchContext,
    context: RequestContext,
    is_from_follower: bool,
    fetches: Sequence[PartitionFetch],
    reads: list[PartitionRead],
) -> Sliced[FetchResponse]:
    """Response to many partitions, or to an old consumer. A small response that is built here costs about
    15 % more user CPU (`bench/request_path.py`, 26 to 30 us at depth 32)."""
    topics: list[FetchableTopicResponse] = []
    converted_bytes = 0
    included = fetch_context.to_send(fetches, reads)
    yield
    found, missing = yield from parted(included, lambda each: not _is_missing(each[1], context))
    for each in (*found, *missing):
        _add(topics, (each,), context, is_from_follower)
        if context.api_version < VERSION_WITH_ZSTD:
            data = topics[-1].partitions[-1]
            converted_bytes += yield from fit_for_old_consumer(data, each[0], context, converted_bytes)
        yield
    if context.api_version >= VERSION_WITH_LEADER_HINTS and any(read.error_code for read in reads):
        return (yield from _with_hints(fetch_context, context, is_from_follower, topics))
    return FetchResponse(session_id=fetch_context.session_id, responses=topics)


def _partition_fetches(
    topic: FetchTopic, partitions: Sequence[FetchPartition], context: RequestContext
) -> list[PartitionFetch]:
    name = (
        context.topic_name(topic.topic_id) if context.api_version >= VERSION_WITH_TOPIC_IDS else topic.topic
    )
    return [
        PartitionFetch(
            name,
            topic.topic_id,
            fetch.partition,
            fetch.fetch_offset,
            fetch.partition_max_bytes,
            fetch.current_leader_epoch if fetch.current_leader_epoch >= 0 else NO_EPOCH,
            fetch.last_fetched_epoch,
            fetch.log_start_offset,
        )
        for fetch in partitions
    ]


def _forgotten(request: FetchRequest, *, uses_topic_ids: bool) -> list[SessionKey]:
    return [
        (topic.topic_id if uses_topic_ids else topic.topic, partition)
        for topic in request.forgotten_topics_data
        for partition in topic.partitions
    ]


def _included(
    fetch_context: FetchContext,
    context: RequestContext,
    fetches: Sequence[PartitionFetch],
    reads: list[PartitionRead],
) -> list[tuple[PartitionFetch, PartitionRead]]:
    included = fetch_context.to_send(fetches, reads)
    if any(read.error_code for _, read in included):
        return sorted(included, key=lambda each: _is_missing(each[1], context))
    return included


def _add(
    topics: list[FetchableTopicResponse],
    included: Sequence[tuple[PartitionFetch, PartitionRead]],
    context: RequestContext,
    is_from_follower: bool,
) -> None:
    """Add partitions to the response: consecutive partitions of one topic share its entry."""
    metrics_of = context.broker.replicas.table.metrics_of
    current = topics[-1] if topics else None
    for fetch, read in included:
        name, index = fetch.topic_partition
        if current is None or current.topic != name or current.topic_id != fetch.topic_id:
            current = FetchableTopicResponse(topic=name, topic_id=fetch.topic_id, partitions=[])
            topics.append(current)
        current.partitions.append(_partition_data(index, read))
        if read.records is not None:
            counters = metrics_of(name)
            if is_from_follower:
                counters.replication_bytes_out.value += read.records.length
            else:
                counters.bytes_out.value += read.records.length


def _with_hints(
    fetch_context: FetchContext,
    context: RequestContext,
    is_from_follower: bool,
    topics: list[FetchableTopicResponse],
) -> Sliced[FetchResponse]:
    """Response with errors, and with the current leaders of moved partitions."""
    response = FetchResponse(session_id=fetch_context.session_id, responses=topics)
    yield from add_fetch_leader_hints(response, context, with_endpoints=not is_from_follower)
    return response


def _is_missing(read: PartitionRead, context: RequestContext) -> bool:
    """Whether the partition is not here: it comes last in the response."""
    if read.error_code == UnknownTopicId.code and context.api_version < VERSION_WITH_TOPIC_IDS:
        read.error_code = UnknownTopicOrPartition.code  # an unknown id has the empty name
    return read.error_code in _NOT_FOUND


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
