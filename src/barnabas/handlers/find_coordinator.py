"""FindCoordinator (10), v0-6. Gaps: share groups have no coordinator.

A group's coordinator leads the group's partition of `__consumer_offsets`. A transactional id's coordinator
leads its partition of `__transaction_state`. Either topic is created by the first request of a client that
may ask for it. Since version 4 one request asks for many keys.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.coordinator.group.coordinator import OFFSETS_TOPIC
from barnabas.coordinator.runtime.routing import partition_of
from barnabas.coordinator.transaction.coordinator import TRANSACTION_TOPIC
from barnabas.core.errors import CoordinatorNotAvailable, InvalidRequest, KafkaError
from barnabas.core.steps import Sliced
from barnabas.handlers.shared.endpoints import Node, endpoint_of
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from barnabas.requests.bounded_loops import each
from barnabas.requests.context import RequestContext
from barnabas.requests.errors import as_kafka_error
from barnabas.requests.registry import Api
from barnabas.security.acl.vocabulary import Operation, ResourceType

TOPICS = {0: OFFSETS_TOPIC, 1: TRANSACTION_TOPIC}
"""Internal topic by key type: group, transactional id."""
KINDS = {0: ResourceType.GROUP, 1: ResourceType.TRANSACTIONAL_ID}
VERSION_WITH_MANY_KEYS = 4


def handle_find_coordinator(
    request: FindCoordinatorRequest, context: RequestContext
) -> Sliced[FindCoordinatorResponse | None]:
    topic = TOPICS.get(request.key_type)
    if topic is not None and topic not in context.broker.metadata:
        for key in _keys(request, context.api_version):
            if context.allows(Operation.DESCRIBE, KINDS[request.key_type], key, audited=False):
                context.answer_with(_make_topic_and_answer(topic, request, context))
                return None
            yield
    return (yield from _answer(request, context))


def _keys(request: FindCoordinatorRequest, api_version: int) -> Sequence[str]:
    return request.coordinator_keys if api_version >= VERSION_WITH_MANY_KEYS else (request.key,)


async def _make_topic_and_answer(
    topic: str, request: FindCoordinatorRequest, context: RequestContext
) -> FindCoordinatorResponse:
    try:
        await context.broker.internal_topics.ensure(topic)
    except Exception as error:  # noqa: BLE001 - every failure becomes a retriable error
        as_kafka_error(error, f"creating {topic}")
    return await context.spread(_answer(request, context))


def _answer(request: FindCoordinatorRequest, context: RequestContext) -> Sliced[FindCoordinatorResponse]:
    if context.api_version < VERSION_WITH_MANY_KEYS:
        found = _coordinator(request.key_type, request.key, context)
        return FindCoordinatorResponse(
            error_code=found.error_code,
            # Before version 4 the success response has a message as well: this one.
            error_message=found.error_message if found.error_code else "NONE",
            node_id=found.node_id,
            host=found.host,
            port=found.port,
        )
    keys = request.coordinator_keys
    coordinators = yield from each(keys, lambda key: _coordinator(request.key_type, key, context))
    return FindCoordinatorResponse(coordinators=coordinators)


def _coordinator(key_type: int, key: str, context: RequestContext) -> Coordinator:
    try:
        node = _find(key_type, key, context)
    except KafkaError as error:
        return _unknown(key, error)
    return Coordinator(key=key, node_id=node.broker_id, host=node.endpoint.host, port=node.endpoint.port)


def _find(key_type: int, key: str, context: RequestContext) -> Node:
    name = TOPICS.get(key_type)
    if name is None:
        raise InvalidRequest(f"coordinator type {key_type} has no coordinator here")
    context.require(Operation.DESCRIBE, KINDS[key_type], key)
    broker = context.broker
    topic = broker.metadata.topic(name)
    if topic is None:
        raise CoordinatorNotAvailable(f"{name} cannot be created")
    partition = topic.partition(partition_of(key, len(topic.partitions)))
    node = endpoint_of(broker, partition.leader, context.exchange.connection) if partition else None
    if node is None:
        raise CoordinatorNotAvailable(f"the partition of {key} has no leader")
    return node


def _unknown(key: str, error: KafkaError) -> Coordinator:
    return Coordinator(
        key=key, node_id=-1, host="", port=-1, error_code=error.code, error_message=error.message
    )


def _refused(
    request: FindCoordinatorRequest, error: KafkaError, version: int
) -> Sliced[FindCoordinatorResponse]:
    if version >= VERSION_WITH_MANY_KEYS:
        unknown = yield from each(request.coordinator_keys, lambda key: _unknown(key, error))
        return FindCoordinatorResponse(coordinators=unknown)
    return FindCoordinatorResponse(
        error_code=error.code, error_message=error.message, node_id=-1, host="", port=-1
    )


FIND_COORDINATOR = Api(ApiKey.FIND_COORDINATOR, handle=handle_find_coordinator, refused=_refused)
