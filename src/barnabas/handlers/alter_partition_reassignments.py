"""AlterPartitionReassignments (45), v0-1. Gaps: none.

In a cluster the controller begins the moves and answers; they go on long after. On one node the only
valid target is the assignment that a partition already has; nothing is ever in progress, so there is
nothing to cancel.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

from barnabas.controller.controller import KafkaController
from barnabas.core.errors import (
    InvalidReplicaAssignment,
    KafkaError,
    NoReassignmentInProgress,
    UnknownTopicOrPartition,
)
from barnabas.core.ids import TopicPartition
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from barnabas.requests.context import RequestContext
from barnabas.requests.failures import code_and_message
from barnabas.requests.registry import Api


def handle_alter_partition_reassignments(
    request: AlterPartitionReassignmentsRequest, context: RequestContext
) -> Generator[None, None, AlterPartitionReassignmentsResponse | None]:
    controller = context.broker.controller
    if controller is not None:
        context.answer_with(_alter_in_cluster(request, controller))
        return None
    responses = []
    for topic in request.topics:
        partitions = []
        for each in topic.partitions:
            partitions.append(_answer(topic.name, each, context))
            yield
        responses.append(ReassignableTopicResponse(name=topic.name, partitions=partitions))
        yield
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_message=None,
        responses=responses,
    )


async def _alter_in_cluster(
    request: AlterPartitionReassignmentsRequest, controller: KafkaController
) -> AlterPartitionReassignmentsResponse:
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change, error_message=None
    )
    targets = {
        TopicPartition(topic.name, each.partition_index): each.replicas
        for topic in request.topics
        for each in topic.partitions
    }
    try:
        outcomes = await controller.alter_partition_reassignments(
            targets, allow_replication_factor_change=request.allow_replication_factor_change
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


def _answer(
    topic: str, asked: ReassignablePartition, context: RequestContext
) -> ReassignablePartitionResponse:
    failure: KafkaError | None = None
    try:
        _check(TopicPartition(topic, asked.partition_index), asked.replicas, context)
    except KafkaError as error:
        failure = error
    return _result(asked.partition_index, failure)


def _result(partition: int, failure: KafkaError | None) -> ReassignablePartitionResponse:
    code, message = code_and_message(failure)
    return ReassignablePartitionResponse(partition_index=partition, error_code=code, error_message=message)


def _check(topic_partition: TopicPartition, target: Sequence[int] | None, context: RequestContext) -> None:
    metadata = context.broker.metadata
    partition = metadata.partition(*topic_partition)
    if partition is None:
        raise UnknownTopicOrPartition(f"there is no partition {topic_partition}")
    if target is None:
        raise NoReassignmentInProgress(f"{topic_partition} is not being reassigned")
    if not target:
        raise InvalidReplicaAssignment("the replica list is empty")
    if len(set(target)) != len(target):
        raise InvalidReplicaAssignment(f"the replica list {list(target)} names a broker twice")
    unknown = [broker_id for broker_id in target if not metadata.is_live(broker_id)]
    if unknown:
        raise InvalidReplicaAssignment(f"the replica list names brokers that are not live: {unknown}")


ALTER_PARTITION_REASSIGNMENTS = Api(
    ApiKey.ALTER_PARTITION_REASSIGNMENTS, versions=range(2), handle=handle_alter_partition_reassignments
)
