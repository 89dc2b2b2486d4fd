"""OffsetCommit (8), v0-10. Gaps: none.

Topics and partitions that do not exist are refused one by one; the rest is committed in one batch. Version 10
names topics by id. Version 0 predates the group coordinator: see `shared.zookeeper_offsets`.
"""

from __future__ import annotations

from barnabas.core.errors import (
    InvalidCommitOffsetSize,
    KafkaError,
    MessageTooLarge,
    RecordListTooLarge,
)
from barnabas.core.limits import DECISION_ELEMENTS_MAX
from barnabas.core.steps import Sliced
from barnabas.handlers.shared.offset_topics import merge, sort_out
from barnabas.handlers.shared.zookeeper_offsets import commit_stored_offsets
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from barnabas.requests.bounded_loops import each
from barnabas.requests.context import RequestContext
from barnabas.requests.registry import Api

VERSION_WITH_TOPIC_IDS = 10


def handle_offset_commit(request: OffsetCommitRequest, context: RequestContext) -> Sliced[None]:
    if context.api_version == 0:
        context.answer_with(commit_stored_offsets(request, context))
        return
    by_id = context.api_version >= VERSION_WITH_TOPIC_IDS
    valid, refused = yield from sort_out(request.topics, context, _refused, by_id=by_id, keeps_empty=True)
    if not valid and refused:
        context.respond(OffsetCommitResponse(topics=refused))
        return
    request.topics = valid

    def merged(response: OffsetCommitResponse) -> Sliced[OffsetCommitResponse]:
        yield from merge(response.topics, refused, lambda topic: (topic.name, topic.topic_id))
        return response

    def refused_by(error: KafkaError) -> Sliced[OffsetCommitResponse]:
        return (yield from merged((yield from all_refused(request, error))))

    caller = context.caller()
    context.broker.groups.run(
        request.group_id,
        lambda shard: shard.offset_requests.commit(request, caller),
        lambda response: context.answer_in_slices(merged(response)) if refused else context.respond(response),
        lambda error: context.answer_in_slices(refused_by(error)),
    )


def all_refused(request: OffsetCommitRequest, error: KafkaError) -> Sliced[OffsetCommitResponse]:
    code = as_commit_error(error).code
    topics = []
    for topic in request.topics:
        topics.append((yield from _refused(topic, topic.partitions, code)))
        yield
    return OffsetCommitResponse(topics=topics)


def as_commit_error(error: KafkaError) -> KafkaError:
    """INVALID_COMMIT_OFFSET_SIZE for a commit of more partitions than fit into one batch."""
    if isinstance(error, MessageTooLarge | RecordListTooLarge):
        return InvalidCommitOffsetSize(error.message)
    return error


def _refused(
    topic: OffsetCommitRequestTopic, partitions: list[OffsetCommitRequestPartition], code: int
) -> Sliced[OffsetCommitResponseTopic]:
    refused = yield from each(
        partitions,
        lambda asked: OffsetCommitResponsePartition(partition_index=asked.partition_index, error_code=code),
    )
    return OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=refused)


OFFSET_COMMIT = Api(
    ApiKey.OFFSET_COMMIT,
    handle=handle_offset_commit,
    refused=lambda request, error, _: all_refused(request, error),
    elements_max=DECISION_ELEMENTS_MAX,
)
