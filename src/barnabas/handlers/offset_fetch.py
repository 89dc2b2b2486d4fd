"""OffsetFetch (9), v0-10. Gaps: none.

Versions up to 7 ask about one group, later ones about many; version 10 names topics by id. No topics
(null) means all of which the group has committed offsets. Version 1 has no place for an error of the
group, so every partition carries it. Version 0 is older than the coordinator: see `stored_offsets`.
"""

from __future__ import annotations

from barnabas.core.errors import UnknownTopicId
from barnabas.handlers.context import RequestContext
from barnabas.handlers.registry import Api
from barnabas.handlers.stored_offsets import fetch_stored_offsets
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

VERSION_WITH_GROUP_ERROR = 2
VERSION_WITH_GROUPS = 8
VERSION_WITH_TOPIC_IDS = 10
NO_OFFSET = -1


def handle_offset_fetch(request: OffsetFetchRequest, context: RequestContext) -> None:
    if context.api_version == 0:
        context.answer_with(fetch_stored_offsets(request, context))
    elif context.api_version < VERSION_WITH_GROUPS:
        _fetch_one_group(request, context)
    elif context.api_version < VERSION_WITH_TOPIC_IDS:
        context.broker.groups.fetch_offsets(
            request.groups,
            require_stable=request.require_stable,
            respond=lambda groups: context.respond(OffsetFetchResponse(groups=groups)),
        )
    else:
        _fetch_by_id(request, context)


def _fetch_one_group(request: OffsetFetchRequest, context: RequestContext) -> None:
    def respond(groups: list[OffsetFetchResponseGroup]) -> None:
        context.respond(_as_one_group(groups[0], request, context.api_version))

    asked = request.topics
    topics = (
        None
        if asked is None
        else [OffsetFetchRequestTopics(name=t.name, partition_indexes=t.partition_indexes) for t in asked]
    )
    context.broker.groups.fetch_offsets(
        [OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)],
        require_stable=request.require_stable,
        respond=respond,
    )


def _as_one_group(
    group: OffsetFetchResponseGroup, request: OffsetFetchRequest, api_version: int
) -> OffsetFetchResponse:
    if group.error_code and api_version < VERSION_WITH_GROUP_ERROR:
        return OffsetFetchResponse(
            topics=[
                OffsetFetchResponseTopic(
                    name=topic.name,
                    partitions=[
                        OffsetFetchResponsePartition(
                            partition_index=partition,
                            committed_offset=NO_OFFSET,
                            metadata="",
                            error_code=group.error_code,
                        )
                        for partition in topic.partition_indexes
                    ],
                )
                for topic in request.topics or ()
            ]
        )
    return OffsetFetchResponse(
        error_code=group.error_code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=each.partition_index,
                        committed_offset=each.committed_offset,
                        committed_leader_epoch=each.committed_leader_epoch,
                        metadata=each.metadata,
                        error_code=each.error_code,
                    )
                    for each in topic.partitions
                ],
            )
            for topic in group.topics
        ],
    )


def _fetch_by_id(request: OffsetFetchRequest, context: RequestContext) -> None:
    """Ids become names before the coordinator is asked, and names ids after it has answered."""
    metadata = context.broker.metadata
    unknown: list[list[OffsetFetchResponseTopics]] = []
    for group in request.groups:
        missing: list[OffsetFetchResponseTopics] = []
        unknown.append(missing)
        if group.topics is None:
            continue
        known_topics: list[OffsetFetchRequestTopics] = []
        for topic in group.topics:
            known = metadata.topic_by_id(topic.topic_id)
            if known is None:
                missing.append(_unknown(topic))
            else:
                topic.name = known.name
                known_topics.append(topic)
        group.topics = known_topics

    def respond(groups: list[OffsetFetchResponseGroup]) -> None:
        for group, missing in zip(groups, unknown, strict=True):
            group.topics = [topic for topic in group.topics if _name_by_id(topic, context)]
            if not group.error_code:
                group.topics.extend(missing)
        context.respond(OffsetFetchResponse(groups=groups))

    context.broker.groups.fetch_offsets(
        request.groups, require_stable=request.require_stable, respond=respond
    )


def _name_by_id(topic: OffsetFetchResponseTopics, context: RequestContext) -> bool:
    """False for a topic that is gone: there is no id to name it by."""
    known = context.broker.metadata.topic(topic.name)
    if known is None:
        return False
    topic.topic_id = known.topic_id
    return True


def _unknown(topic: OffsetFetchRequestTopics) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        topic_id=topic.topic_id,
        partitions=[
            OffsetFetchResponsePartitions(
                partition_index=partition,
                committed_offset=NO_OFFSET,
                metadata="",
                error_code=UnknownTopicId.code,
            )
            for partition in topic.partition_indexes
        ],
    )


OFFSET_FETCH = Api(ApiKey.OFFSET_FETCH, versions=range(11), handle=handle_offset_fetch)
