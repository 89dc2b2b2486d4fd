"""DeleteTopics (20), v1-6. Gaps: none.

Since version 6 a topic may be named by its id. The response waits until the topic is gone from the metadata;
its files are deleted in the background.
"""

from __future__ import annotations

from collections import Counter

from barnabas.core.errors import (
    InvalidRequest,
    TopicAuthorizationFailed,
    TopicDeletionDisabled,
    UnknownTopicId,
)
from barnabas.core.ids import ZERO_UUID
from barnabas.handlers.shared.controller_only import Deadline, charge_mutations, check_is_controller
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from barnabas.requests.bounded_loops import each
from barnabas.requests.context import RequestContext
from barnabas.requests.errors import as_kafka_error
from barnabas.requests.registry import Api
from barnabas.security.acl.vocabulary import Operation, ResourceType

VERSION_WITH_DELETION_DISABLED = 3
VERSION_WITH_TOPIC_IDS = 6


async def handle_delete_topics(request: DeleteTopicsRequest, context: RequestContext) -> DeleteTopicsResponse:
    if context.api_version < VERSION_WITH_TOPIC_IDS:
        topics = await context.spread(each(request.topic_names, lambda name: DeleteTopicState(name=name)))
    else:
        topics = request.topics
    times = Counter(await context.spread(each(topics, lambda topic: _identity(topic, context))))
    results = []
    deadline = Deadline(context, request.timeout_ms)
    for topic in topics:
        await context.breathe()
        asked_for = times.pop(_identity(topic, context), 0)
        if not asked_for:
            continue  # answered where it was first named
        result = DeletableTopicResult(name=topic.name, topic_id=topic.topic_id, error_message=None)
        try:
            if (topic.name is None) == (topic.topic_id == ZERO_UUID):
                raise InvalidRequest("a topic is named either by its name or by its id")
            if asked_for > 1:
                raise InvalidRequest("the request names this topic more than once")
            check_is_controller(context)
            await _delete(result, context, deadline)
        except Exception as error:  # noqa: BLE001 - each topic has its own error
            failure = as_kafka_error(error, "deleting a topic")
            result.error_code, result.error_message = failure.code, failure.message
        results.append(result)
    return DeleteTopicsResponse(responses=results)


def _identity(topic: DeleteTopicState, context: RequestContext) -> object:
    """One identity for a topic's name and its current id, unless the client may not learn the name."""
    if topic.name is None and topic.topic_id != ZERO_UUID:
        known = context.broker.metadata.topic_by_id(topic.topic_id)
        return topic.topic_id if known is None or not _may_know(known.name, context) else known.name
    return topic.name if topic.topic_id == ZERO_UUID else (topic.name, topic.topic_id)


def _may_know(name: str, context: RequestContext, *, audited: bool = False) -> bool:
    return context.allows(Operation.DESCRIBE, ResourceType.TOPIC, name, audited=audited)


async def _delete(result: DeletableTopicResult, context: RequestContext, deadline: Deadline) -> None:
    broker = context.broker
    if not broker.config.delete_topic_enable:
        if context.api_version < VERSION_WITH_DELETION_DISABLED:
            raise InvalidRequest("topic deletion is disabled")
        raise TopicDeletionDisabled("delete.topic.enable is false on this broker")
    if result.name is None:
        topic = broker.metadata.topic_by_id(result.topic_id)
        if topic is None:
            raise UnknownTopicId("this server does not host this topic id")
        if not _may_know(topic.name, context, audited=True):
            raise TopicAuthorizationFailed("not authorized: DESCRIBE on the topic of this id")
        result.name = topic.name
    context.require(Operation.DELETE, ResourceType.TOPIC, result.name)
    known = broker.metadata.topic(result.name)
    if known is not None:
        charge_mutations(context, len(known.partitions), strict_since=5)
    result.topic_id = await broker.topics.delete_topic(result.name, timeout_ms=deadline.left_ms())


DELETE_TOPICS = Api(ApiKey.DELETE_TOPICS, handle=handle_delete_topics)
