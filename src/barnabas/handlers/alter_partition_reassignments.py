"""AlterPartitionReassignments (45), v0-1. Gaps: none.

The controller starts the reassignments and answers. They continue long after the response.
"""

from __future__ import annotations

from barnabas.core.errors import KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.handlers.shared.controller_only import in_pieces
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from barnabas.requests.context import RequestContext
from barnabas.requests.errors import partition_code_and_message
from barnabas.requests.registry import Api


async def handle_alter_partition_reassignments(
    request: AlterPartitionReassignmentsRequest, context: RequestContext
) -> AlterPartitionReassignmentsResponse:
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change, error_message=None
    )
    targets = {
        TopicPartition(topic.name, each.partition_index): each.replicas
        for topic in request.topics
        for each in topic.partitions
    }
    outcomes: dict[TopicPartition, KafkaError | None] = {}
    try:
        for some in in_pieces(list(targets)):
            outcomes |= await context.broker.controller.alter_partition_reassignments(
                {each: targets[each] for each in some},
                allow_replication_factor_change=request.allow_replication_factor_change,
            )
    except KafkaError as error:
        response.error_code, response.error_message = error.code, error.message
        return response
    for topic in request.topics:
        partitions = []
        for asked in topic.partitions:
            await context.breathe()
            index = asked.partition_index
            partitions.append(_result(index, outcomes[TopicPartition(topic.name, index)]))
        response.responses.append(ReassignableTopicResponse(name=topic.name, partitions=partitions))
    return response


def _result(partition: int, failure: KafkaError | None) -> ReassignablePartitionResponse:
    code, message = partition_code_and_message(failure)
    return ReassignablePartitionResponse(partition_index=partition, error_code=code, error_message=message)


ALTER_PARTITION_REASSIGNMENTS = Api(
    ApiKey.ALTER_PARTITION_REASSIGNMENTS, handle=handle_alter_partition_reassignments
)
