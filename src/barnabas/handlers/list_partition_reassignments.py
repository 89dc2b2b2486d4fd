"""ListPartitionReassignments (46), v0. Gaps: none."""

from __future__ import annotations

from collections import defaultdict

from barnabas.core.errors import KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from barnabas.requests.context import RequestContext
from barnabas.requests.registry import Api


async def handle_list_partition_reassignments(
    request: ListPartitionReassignmentsRequest, context: RequestContext
) -> ListPartitionReassignmentsResponse:
    asked = None
    if request.topics is not None:
        asked = [TopicPartition(topic.name, p) for topic in request.topics for p in topic.partition_indexes]
    try:
        ongoing = await context.broker.controller.list_partition_reassignments(asked)
    except KafkaError as error:
        return ListPartitionReassignmentsResponse(error_code=error.code, error_message=error.message)
    by_topic: defaultdict[str, list[OngoingPartitionReassignment]] = defaultdict(list)
    for (topic, partition), assignment in ongoing.items():
        await context.breathe()
        by_topic[topic].append(
            OngoingPartitionReassignment(
                partition_index=partition,
                replicas=list(assignment.replicas),
                adding_replicas=list(assignment.adding_replicas),
                removing_replicas=list(assignment.removing_replicas),
            )
        )
    return ListPartitionReassignmentsResponse(
        error_message=None,
        topics=[OngoingTopicReassignment(name=topic, partitions=rows) for topic, rows in by_topic.items()],
    )


LIST_PARTITION_REASSIGNMENTS = Api(
    ApiKey.LIST_PARTITION_REASSIGNMENTS, handle=handle_list_partition_reassignments
)
