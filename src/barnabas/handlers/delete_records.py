"""DeleteRecords (21), v0-2. Gaps: none.

Moves a partition's log start offset up to an offset (-1: up to the high watermark). The response waits until
all replicas have done so.
"""

from __future__ import annotations

from barnabas.core.errors import InvalidTopicException
from barnabas.core.ids import INTERNAL_TOPICS
from barnabas.core.steps import Sliced
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from barnabas.replication.leader.delayed_delete_records import PendingDeletion
from barnabas.requests.context import RequestContext
from barnabas.requests.errors import as_kafka_error
from barnabas.requests.registry import Api
from barnabas.security.acl.vocabulary import Operation, ResourceType


def handle_delete_records(
    request: DeleteRecordsRequest, context: RequestContext
) -> Sliced[DeleteRecordsResponse | None]:
    replicas = context.broker.replicas
    topics: list[DeleteRecordsTopicResult] = []
    pending: list[PendingDeletion] = []
    unfinished: list[DeleteRecordsPartitionResult] = []
    for topic in request.topics:
        yield
        if not topic.partitions:
            continue
        results: list[DeleteRecordsPartitionResult] = []
        # If a partition is named twice, only its last offset counts.
        for wanted in {each.partition_index: each for each in topic.partitions}.values():
            yield
            result = DeleteRecordsPartitionResult(partition_index=wanted.partition_index, low_watermark=-1)
            results.append(result)
            try:
                context.require(Operation.DELETE, ResourceType.TOPIC, topic.name)
                partition = replicas.partition(topic.name, wanted.partition_index)
                if topic.name in INTERNAL_TOPICS:
                    raise InvalidTopicException(f"records of the internal topic {topic.name} stay")
                start_offset = partition.delete_records_before(wanted.offset)
            except Exception as error:  # noqa: BLE001 - each partition has its own answer
                doing = f"deleting records of {topic.name}-{wanted.partition_index}"
                result.error_code = as_kafka_error(error, doing).code
                continue
            pending.append(PendingDeletion(partition, start_offset))
            unfinished.append(result)
        topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=results))
    response = DeleteRecordsResponse(topics=topics)
    if not pending:
        return response

    def respond() -> None:
        for deletion, result in zip(pending, unfinished, strict=True):
            result.error_code = deletion.error_code
            result.low_watermark = deletion.low_watermark
        context.respond(response)

    replicas.await_deletion(request.timeout_ms, pending, respond)
    return None


DELETE_RECORDS = Api(ApiKey.DELETE_RECORDS, handle=handle_delete_records)
