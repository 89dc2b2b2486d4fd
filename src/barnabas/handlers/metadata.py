"""Metadata (3), v0-13. Gaps: none.

Brokers, topics and partition leaders. Null asks for all topics, and in version 0 so does an empty list. Since
version 12 topics may be named by id.

A topic that does not exist is created, if both `auto.create.topics.enable` and the request (v4+) allow it.
The connection then waits until the topic exists, and the response names its leaders. Auto-creation counts
against the client's mutation quota.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.cluster.metadata.cache import MetadataCache, PartitionMetadata, TopicMetadata
from barnabas.core.errors import (
    InvalidRequest,
    InvalidTopicException,
    KafkaError,
    LeaderNotAvailable,
    ThrottlingQuotaExceeded,
    TopicAuthorizationFailed,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from barnabas.core.ids import INTERNAL_TOPICS, NO_LEADER, ZERO_UUID, check_topic_name
from barnabas.core.steps import Sliced
from barnabas.handlers.shared.authorized_operations import NOT_ASKED, cluster_operations
from barnabas.handlers.shared.controller_only import charge_mutations
from barnabas.handlers.shared.endpoints import live_endpoints
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from barnabas.requests.bounded_loops import each
from barnabas.requests.context import RequestContext
from barnabas.requests.registry import Api
from barnabas.security.acl.vocabulary import CLUSTER_NAME, Operation, ResourceType

PARTITIONS_PER_STEP = 64


def handle_metadata(request: MetadataRequest, context: RequestContext) -> Sliced[MetadataResponse | None]:
    metadata = context.broker.metadata
    asked = request.topics
    if asked is None or (not asked and context.api_version == 0):
        topics = []
        for topic in list(metadata.topics()):
            if not context.allows(Operation.DESCRIBE, ResourceType.TOPIC, topic.name, audited=False):
                yield
                continue
            described = yield from _topic(topic, metadata)
            topics.append(described)
        return (yield from _response(request, context, topics))
    if not _is_askable(asked, context.api_version):
        refused = yield from each(asked, _refused)
        return MetadataResponse(topics=refused, error_code=InvalidRequest.code)
    failures: dict[str, KafkaError] = {}
    may_create = request.allow_auto_topic_creation and context.broker.config.auto_create_topics_enable
    missing = (yield from _missing(asked, context)) if may_create and not _is_by_id(asked) else []
    if missing:
        failures = yield from _not_creatable(missing, context)
        missing = [name for name in missing if name not in failures]
        if context.broker.quotas.is_limiting:
            failures |= yield from _above_quota(missing, context)
            missing = [name for name in missing if name not in failures]
        if missing:
            context.answer_with(_create_and_answer(missing, failures, request, context))
            return None
    return (yield from _asked_response(request, context, failures))


def _missing(asked: Sequence[MetadataRequestTopic], context: RequestContext) -> Sliced[list[str]]:
    """Names of topics that do not exist, among those that the client may describe."""
    missing: dict[str, None] = {}
    for topic in asked:
        yield
        name = topic.name
        if (
            name is not None
            and name not in missing
            and context.allows(Operation.DESCRIBE, ResourceType.TOPIC, name)
            and name not in context.broker.metadata
        ):
            missing[name] = None
    return list(missing)


def _not_creatable(missing: Sequence[str], context: RequestContext) -> Sliced[dict[str, KafkaError]]:
    failures: dict[str, KafkaError] = {}
    if context.allows(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME, audited=False):
        return failures
    for name in missing:
        yield
        if not context.allows(Operation.CREATE, ResourceType.TOPIC, name):
            failures[name] = TopicAuthorizationFailed("not authorized to create it")
    return failures


def _above_quota(missing: Sequence[str], context: RequestContext) -> Sliced[dict[str, KafkaError]]:
    """Charge the client's mutation quota for the topics to create, and return those above the quota.

    In Apache Kafka the controller refuses them, and the client gets UNKNOWN_TOPIC_OR_PARTITION and retries.
    Clients do not expect THROTTLING_QUOTA_EXCEEDED from Metadata.
    """
    refused: dict[str, KafkaError] = {}
    for name in dict.fromkeys(missing):
        yield
        if (
            name in INTERNAL_TOPICS
            or _code_of_missing(name) == InvalidTopicException.code
            or context.broker.topics.is_auto_creating(name)  # the first request is charged
        ):
            continue
        try:
            charge_mutations(context, context.broker.config.num_partitions, strict_since=0)
        except ThrottlingQuotaExceeded:
            refused[name] = UnknownTopicOrPartition("the controller mutation quota is used up")
    return refused


async def _create_and_answer(
    missing: Sequence[str],
    failures: dict[str, KafkaError],
    request: MetadataRequest,
    context: RequestContext,
) -> MetadataResponse:
    failures = failures | await context.broker.topics.auto_create(missing)
    return await context.spread(_asked_response(request, context, failures))


def _asked_response(
    request: MetadataRequest, context: RequestContext, failures: dict[str, KafkaError]
) -> Sliced[MetadataResponse]:
    topics = yield from _asked_topics(request.topics or [], context, failures)
    return (yield from _response(request, context, topics))


def _is_askable(asked: Sequence[MetadataRequestTopic], api_version: int) -> bool:
    """Versions 10 and 11 have a field for the id, but only version 12 and later may use it.

    One id makes it a request by ids, in which a topic without an id counts for nothing, with a name or not.
    """
    is_named = all(topic.name is not None for topic in asked)
    if api_version < 12:
        return is_named and all(topic.topic_id == ZERO_UUID for topic in asked)
    return is_named or _is_by_id(asked)


def _is_by_id(asked: Sequence[MetadataRequestTopic]) -> bool:
    return any(topic.topic_id != ZERO_UUID for topic in asked)


def _refused(topic: MetadataRequestTopic) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=InvalidRequest.code, name=topic.name or "", topic_id=topic.topic_id
    )


def _asked_topics(
    asked: Sequence[MetadataRequestTopic], context: RequestContext, failures: dict[str, KafkaError]
) -> Sliced[list[MetadataResponseTopic]]:
    metadata = context.broker.metadata
    answers: dict[object, MetadataResponseTopic] = {}
    # Names beside ids are ignored.
    asked = [topic for topic in asked if topic.topic_id != ZERO_UUID] or asked
    for topic in asked:
        yield
        if topic.topic_id != ZERO_UUID:
            known = metadata.topic_by_id(topic.topic_id)
            if known is None:
                answers[topic.topic_id] = MetadataResponseTopic(
                    error_code=UnknownTopicId.code, name=None, topic_id=topic.topic_id
                )
                continue
            name = known.name
        else:
            name = topic.name or ""
            known = metadata.topic(name)
        if not context.allows(Operation.DESCRIBE, ResourceType.TOPIC, name):
            # Topic ids are not secret; the existence of a name is.
            answers[name] = MetadataResponseTopic(
                error_code=TopicAuthorizationFailed.code,
                name=name if topic.topic_id == ZERO_UUID else None,
                topic_id=topic.topic_id,
            )
        elif known is not None:
            if name not in answers:
                answers[name] = yield from _topic(known, metadata)
        else:
            code = failures[name].code if name in failures else _code_of_missing(name)
            answers[name] = MetadataResponseTopic(
                error_code=code, name=name, is_internal=name in INTERNAL_TOPICS
            )
    return list(answers.values())


def _code_of_missing(name: str) -> int:
    try:
        check_topic_name(name)
    except InvalidTopicException as error:
        return error.code
    return UnknownTopicOrPartition.code


def _topic(topic: TopicMetadata, metadata: MetadataCache) -> Sliced[MetadataResponseTopic]:
    partitions: list[MetadataResponsePartition] = []
    for start in range(0, len(topic.partitions), PARTITIONS_PER_STEP):
        partitions += [
            _partition(each, metadata) for each in topic.partitions[start : start + PARTITIONS_PER_STEP]
        ]
        yield
    return MetadataResponseTopic(
        name=topic.name, topic_id=topic.topic_id, is_internal=topic.is_internal, partitions=partitions
    )


def _partition(partition: PartitionMetadata, metadata: MetadataCache) -> MetadataResponsePartition:
    return MetadataResponsePartition(
        error_code=0 if partition.leader != NO_LEADER else LeaderNotAvailable.code,
        partition_index=partition.partition,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        offline_replicas=metadata.offline_replicas(partition),
    )


def _response(
    request: MetadataRequest, context: RequestContext, topics: list[MetadataResponseTopic]
) -> Sliced[MetadataResponse]:
    if request.include_topic_authorized_operations:
        for topic in topics:
            yield
            if topic.name is not None and topic.error_code != TopicAuthorizationFailed.code:
                topic.topic_authorized_operations = context.authorized_operations(
                    ResourceType.TOPIC, topic.name
                )
    broker = context.broker
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=broker_id, host=host, port=port, rack=rack)
            for broker_id, (host, port), rack in live_endpoints(broker, context.exchange.connection)
        ],
        cluster_id=broker.cluster_id,
        controller_id=broker.metadata.controller_id,
        topics=topics,
        cluster_authorized_operations=cluster_operations(context)
        if request.include_cluster_authorized_operations
        else NOT_ASKED,
    )


METADATA = Api(ApiKey.METADATA, handle=handle_metadata)
