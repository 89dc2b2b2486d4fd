"""OffsetCommit (8), v0-10. Gaps: none.

Topics and partitions that do not exist are refused one by one; the rest is committed in one batch.
Version 10 names topics by id. Version 0 is older than the coordinator: see `stored_offsets`.
"""

from __future__ import annotations

from barnabas.core.errors import (
    InvalidCommitOffsetSize,
    KafkaError,
    MessageTooLarge,
    RecordListTooLarge,
)
from barnabas.core.limits import DECISION_ELEMENTS_MAX
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from barnabas.requests.context import RequestContext
from barnabas.requests.offset_topics import merge, sort_out
from barnabas.requests.registry import Api
from barnabas.requests.stored_offsets import commit_stored_offsets

VERSION_WITH_TOPIC_IDS = 10


def handle_offset_commit(request: OffsetCommitRequest, context: RequestContext) -> None:
    if context.api_version == 0:
        context.answer_with(commit_stored_offsets(request, context))
        return
    by_id = context.api_version >= VERSION_WITH_TOPIC_IDS
    valid, refused = sort_out(request.topics, context, _refused, by_id=by_id, keeps_empty=True)
    if not valid and refused:
        context.respond(OffsetCommitResponse(topics=refused))
        return
    request.topics = valid

    def respond(response: OffsetCommitResponse) -> None:
        merge(response.topics, refused, lambda topic: (topic.name, topic.topic_id))
        context.respond(response)

    caller = context.caller()
    context.broker.groups.run(
        request.group_id,
        lambda shard: shard.offset_requests.commit(request, caller),
        respond,
        lambda error: respond(all_refused(request, error)),
    )


def all_refused(request: OffsetCommitRequest, error: KafkaError) -> OffsetCommitResponse:
    code = as_commit_error(error).code
    return OffsetCommitResponse(topics=[_refused(topic, topic.partitions, code) for topic in request.topics])


def as_commit_error(error: KafkaError) -> KafkaError:
    """A commit of more partitions than fit into one batch has an error of its own."""
    if isinstance(error, MessageTooLarge | RecordListTooLarge):
        return InvalidCommitOffsetSize(error.message)
    return error


def _refused(
    topic: OffsetCommitRequestTopic, partitions: list[OffsetCommitRequestPartition], code: int
) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
            for each in partitions
        ],
    )


OFFSET_COMMIT = Api(
    ApiKey.OFFSET_COMMIT,
    handle=handle_offset_commit,
    refused=lambda request, error, _: all_refused(request, error),
    elements_max=DECISION_ELEMENTS_MAX,
)
