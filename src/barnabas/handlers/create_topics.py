"""CreateTopics (19), v2-7. Gaps: no create-topic policy.

Only the controller answers, once its own metadata holds the topics. `timeout_ms` bounds the wait.
"""

from __future__ import annotations

from barnabas.administration.topic_planning import CreatedTopic
from barnabas.administration.topic_rules import TopicSpec, repeated
from barnabas.core.errors import InvalidRequest, KafkaError, TopicAuthorizationFailed
from barnabas.handlers.shared.controller_only import Deadline, charge_mutations, check_is_controller
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.requests.context import RequestContext
from barnabas.requests.errors import as_kafka_error
from barnabas.requests.registry import Api
from barnabas.security.acl.vocabulary import CLUSTER_NAME, Operation, ResourceType

VERSION_WITH_CONFIGS = 5


async def handle_create_topics(request: CreateTopicsRequest, context: RequestContext) -> CreateTopicsResponse:
    twice = repeated(topic.name for topic in request.topics)
    results: dict[str, CreatableTopicResult] = {}
    deadline = Deadline(context, request.timeout_ms)
    may_create = context.allows(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME, audited=False)
    for topic in request.topics:
        await context.breathe()
        if topic.name in twice:
            failure = InvalidRequest("the request names this topic more than once")
            results[topic.name] = _failed(topic.name, failure)
            continue
        try:
            check_is_controller(context)
            if not may_create:
                context.require(Operation.CREATE, ResourceType.TOPIC, topic.name)
            if not request.validate_only and topic.name not in context.broker.metadata:
                charge_mutations(context, _partitions(topic, context), strict_since=6)
            created = await context.broker.topics.create_topic(
                _spec(topic), validate_only=request.validate_only, timeout_ms=deadline.left_ms()
            )
            results[topic.name] = _succeeded(created, context)
        except Exception as error:  # noqa: BLE001 - each topic has its own error
            results[topic.name] = _failed(topic.name, as_kafka_error(error, "creating a topic"))
    return CreateTopicsResponse(topics=list(results.values()))


def _partitions(topic: CreatableTopic, context: RequestContext) -> int:
    if topic.assignments:
        return len(topic.assignments)
    return topic.num_partitions if topic.num_partitions > 0 else context.broker.config.num_partitions


def _spec(topic: CreatableTopic) -> TopicSpec:
    keys = repeated(config.name for config in topic.configs)
    if keys:
        raise InvalidRequest(f"duplicate config keys: {', '.join(sorted(keys))}")
    return TopicSpec(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        [(assignment.partition_index, assignment.broker_ids) for assignment in topic.assignments],
        {config.name: config.value for config in topic.configs},
    )


def _succeeded(created: CreatedTopic, context: RequestContext) -> CreatableTopicResult:
    if context.api_version < VERSION_WITH_CONFIGS:  # thirty configs per topic that no field carries
        return CreatableTopicResult(name=created.name, error_message=None)
    if not context.allows(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, created.name, audited=False):
        return CreatableTopicResult(
            name=created.name,
            topic_id=created.topic_id,
            error_message=None,
            topic_config_error_code=TopicAuthorizationFailed.code,
            configs=None,
        )
    return CreatableTopicResult(
        name=created.name,
        topic_id=created.topic_id,
        error_message=None,
        num_partitions=created.num_partitions,
        replication_factor=created.replication_factor,
        configs=[
            CreatableTopicConfigs(
                name=entry.name,
                value=entry.value,
                read_only=entry.read_only,
                config_source=entry.source,
                is_sensitive=entry.is_sensitive,
            )
            for entry in context.broker.configs.entries(created.config)
        ],
    )


def _failed(name: str, error: KafkaError) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=error.code, error_message=error.message)


CREATE_TOPICS = Api(ApiKey.CREATE_TOPICS, handle=handle_create_topics)
