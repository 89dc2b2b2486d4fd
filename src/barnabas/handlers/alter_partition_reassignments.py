"""AlterPartitionReassignments (45), v0-1. Gaps: none.

The controller begins the moves and answers; they go on long after.
"""

from __future__ import annotations

from barnabas.core.errors import KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from barnabas.requests.context import RequestContext
from barnabas.requests.controllers import in_pieces
from barnabas.requests.failures import code_and_message
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
    response.responses = [
        ReassignableTopicResponse(
            name=topic.name,
            partitions=[
                _result(each.partition_index, outcomes[TopicPartition(topic.name, each.partition_index)])
                for each in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return response


def _result(partition: int, failure: KafkaError | None) -> ReassignablePartitionResponse:
    code, message = code_and_message(failure)
    return ReassignablePartitionResponse(partition_index=partition, error_code=code, error_message=message)


ALTER_PARTITION_REASSIGNMENTS = Api(
    ApiKey.ALTER_PARTITION_REASSIGNMENTS, handle=handle_alter_partition_reassignments
)
