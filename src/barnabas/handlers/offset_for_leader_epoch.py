"""OffsetForLeaderEpoch (23), v2-4. Gaps: none.

End offset of a leader epoch in a partition's log. Consumers detect by it that records they have read were
truncated. Followers find by it where their log diverges from the leader's.
"""

from __future__ import annotations

from barnabas.core.errors import KafkaError, TopicAuthorizationFailed
from barnabas.core.steps import Sliced
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from barnabas.requests.context import RequestContext
from barnabas.requests.registry import Api
from barnabas.security.acl.vocabulary import CLUSTER_NAME, Operation, ResourceType


def handle_offset_for_leader_epoch(
    request: OffsetForLeaderEpochRequest, context: RequestContext
) -> Sliced[OffsetForLeaderEpochResponse]:
    topics = []
    is_broker = context.allows(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME, audited=False)
    for topic in request.topics:
        may_describe = is_broker or context.allows(Operation.DESCRIBE, ResourceType.TOPIC, topic.topic)
        partitions = []
        for wanted in topic.partitions:
            partitions.append(_answer(topic.topic, wanted, context, may_describe=may_describe))
            yield
        topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=partitions))
        yield
    return OffsetForLeaderEpochResponse(topics=topics)


def _answer(
    topic: str, wanted: OffsetForLeaderPartition, context: RequestContext, *, may_describe: bool
) -> EpochEndOffset:
    answer = EpochEndOffset(partition=wanted.partition)
    try:
        if not may_describe:
            raise TopicAuthorizationFailed("not authorized")
        partition = context.broker.replicas.partition(topic, wanted.partition)
        partition.leadership.check_leader(wanted.current_leader_epoch)
    except KafkaError as error:
        answer.error_code = error.code
        return answer
    answer.leader_epoch, answer.end_offset = partition.end_offset_for_epoch(wanted.leader_epoch)
    return answer


OFFSET_FOR_LEADER_EPOCH = Api(ApiKey.OFFSET_FOR_LEADER_EPOCH, handle=handle_offset_for_leader_epoch)
