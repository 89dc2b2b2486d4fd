"""CreatePartitions (37), v0-3. Gaps: none."""

from __future__ import annotations

from barnabas.administration.topic_rules import repeated
from barnabas.core.errors import InvalidRequest, KafkaError
from barnabas.handlers.shared.controller_only import Deadline, charge_mutations, check_is_controller
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from barnabas.requests.context import RequestContext
from barnabas.requests.errors import as_kafka_error, code_and_message
from barnabas.requests.registry import Api
from barnabas.security.acl.vocabulary import Operation, ResourceType


async def handle_create_partitions(
    request: CreatePartitionsRequest, context: RequestContext
) -> CreatePartitionsResponse:
    twice = repeated(topic.name for topic in request.topics)
    results: dict[str, CreatePartitionsTopicResult] = {}
    deadline = Deadline(context, request.timeout_ms)
    for topic in request.topics:
        await context.breathe()
        failure: KafkaError | None = None
        if topic.name in twice:
            failure = InvalidRequest("the request names this topic more than once")
        else:
            try:
                context.require(Operation.ALTER, ResourceType.TOPIC, topic.name)
                check_is_controller(context)
                known = context.broker.metadata.topic(topic.name)
                if known is not None and not request.validate_only:
                    added = max(0, topic.count - len(known.partitions))
                    charge_mutations(context, added, strict_since=3)
                await context.broker.topics.create_partitions(
                    topic.name,
                    topic.count,
                    _by_hand(topic),
                    validate_only=request.validate_only,
                    timeout_ms=deadline.left_ms(),
                )
            except Exception as error:  # noqa: BLE001 - each topic has its own error
                failure = as_kafka_error(error, "creating partitions")
        code, message = code_and_message(failure)
        results[topic.name] = CreatePartitionsTopicResult(
            name=topic.name, error_code=code, error_message=message
        )
    return CreatePartitionsResponse(results=list(results.values()))


def _by_hand(topic: CreatePartitionsTopic) -> list[list[int]] | None:
    if topic.assignments is None:
        return None
    return [assignment.broker_ids for assignment in topic.assignments]


CREATE_PARTITIONS = Api(ApiKey.CREATE_PARTITIONS, handle=handle_create_partitions)
