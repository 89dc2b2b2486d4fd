"""OffsetFetch (9), v0-10. Gaps: none.

Versions up to 7 ask about one group, later ones about many. Version 10 names topics by id. A null list of
topics means all topics with committed offsets. Version 1 has no error field for the group, so every partition
carries the error. Version 0 predates the group coordinator: see `shared.zookeeper_offsets`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

from barnabas.core.errors import (
    GroupAuthorizationFailed,
    KafkaError,
    TopicAuthorizationFailed,
    UnknownTopicId,
)
from barnabas.core.ids import NO_OFFSET
from barnabas.core.steps import Sliced
from barnabas.handlers.shared.chunked_queries import ask_in_chunks
from barnabas.handlers.shared.zookeeper_offsets import fetch_stored_offsets
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
from barnabas.requests.bounded_loops import distinct, each, matching
from barnabas.requests.context import RequestContext
from barnabas.requests.registry import Api
from barnabas.security.acl.vocabulary import Operation, ResourceType

VERSION_WITH_GROUP_ERROR = 2
VERSION_WITH_GROUPS = 8
VERSION_WITH_TOPIC_IDS = 10
PARTITIONS_AT_ONCE_MAX = 1_000


async def handle_offset_fetch(request: OffsetFetchRequest, context: RequestContext) -> OffsetFetchResponse:
    if context.api_version == 0:
        return await fetch_stored_offsets(request, context)
    groups, unknown = await context.spread(_asked(request, context))
    found = await fetch_in_pieces(groups, context, require_stable=request.require_stable)
    return await context.spread(_response(request, groups, unknown, found, context))


def _asked(
    request: OffsetFetchRequest, context: RequestContext
) -> Sliced[tuple[list[OffsetFetchRequestGroup], list[list[OffsetFetchResponseTopics]]]]:
    """Groups of the request, with topics by name; and for each group the response for unknown topic ids."""
    if context.api_version < VERSION_WITH_GROUPS:
        groups = [(yield from _only_group(request))]
    else:
        groups = yield from distinct(request.groups, _identity)
    unknown: list[list[OffsetFetchResponseTopics]] = []
    if context.api_version >= VERSION_WITH_TOPIC_IDS:
        for group in groups:
            missing = yield from _names_for_ids(group, context)
            unknown.append(missing)
            yield
    return groups, unknown


def _response(
    request: OffsetFetchRequest,
    groups: Sequence[OffsetFetchRequestGroup],
    unknown: list[list[OffsetFetchResponseTopics]],
    found: list[OffsetFetchResponseGroup],
    context: RequestContext,
) -> Sliced[OffsetFetchResponse]:
    yield from _hide(groups, found, context)
    if context.api_version < VERSION_WITH_GROUPS:
        return (yield from _as_one_group(found[0], request, context.api_version))
    if context.api_version < VERSION_WITH_TOPIC_IDS:
        return OffsetFetchResponse(groups=found)
    return (yield from _as_groups_by_id(found, unknown, context))


def _identity(group: OffsetFetchRequestGroup) -> Hashable:
    """A group whose offsets are all requested is answered once, however often it is named."""
    if group.topics is not None:
        return id(group)
    return group.group_id, group.member_id, group.member_epoch


def _only_group(request: OffsetFetchRequest) -> Sliced[OffsetFetchRequestGroup]:
    """The single group of versions up to 7, in the form of later versions."""
    topics = None
    if request.topics is not None:
        topics = yield from each(
            request.topics,
            lambda asked: OffsetFetchRequestTopics(
                name=asked.name, partition_indexes=asked.partition_indexes
            ),
        )
    return OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)


def _hide(
    groups: Sequence[OffsetFetchRequestGroup],
    found: Sequence[OffsetFetchResponseGroup],
    context: RequestContext,
) -> Sliced[None]:
    """Leave out topics that the client may not describe, where all offsets of a group are requested."""
    if context.broker.authorizer.allows_everything:
        return
    for asked, answer in zip(groups, found, strict=True):
        if asked.topics is None and not answer.error_code:
            answer.topics = yield from matching(
                answer.topics, lambda topic: _may_describe(topic.name, context)
            )
        yield


def _as_one_group(
    group: OffsetFetchResponseGroup, request: OffsetFetchRequest, api_version: int
) -> Sliced[OffsetFetchResponse]:
    if group.error_code and api_version < VERSION_WITH_GROUP_ERROR:
        code, group = group.error_code, OffsetFetchResponseGroup()
        for topic in request.topics or ():
            refused = yield from _refused(topic.partition_indexes, code)
            group.topics.append(OffsetFetchResponseTopics(name=topic.name, partitions=refused))
    topics = []
    for answered in group.topics:
        partitions = []
        for stored in answered.partitions:
            partitions.append(
                OffsetFetchResponsePartition(
                    partition_index=stored.partition_index,
                    committed_offset=stored.committed_offset,
                    committed_leader_epoch=stored.committed_leader_epoch,
                    metadata=stored.metadata,
                    error_code=stored.error_code,
                )
            )
            yield
        topics.append(OffsetFetchResponseTopic(name=answered.name, partitions=partitions))
        yield
    return OffsetFetchResponse(error_code=group.error_code, topics=topics)


def _names_for_ids(
    group: OffsetFetchRequestGroup, context: RequestContext
) -> Sliced[list[OffsetFetchResponseTopics]]:
    """Replace topic ids by names before the coordinator is asked; return the response for unknown ids."""
    missing: list[OffsetFetchResponseTopics] = []
    if group.topics is None:
        return missing
    known_topics: list[OffsetFetchRequestTopics] = []
    for topic in group.topics:
        known = context.broker.metadata.topic_by_id(topic.topic_id)
        if known is None:
            refused = yield from _refused(topic.partition_indexes, UnknownTopicId.code)
            missing.append(OffsetFetchResponseTopics(topic_id=topic.topic_id, partitions=refused))
        else:
            topic.name = known.name
            known_topics.append(topic)
        yield
    group.topics = known_topics
    return missing


def _as_groups_by_id(
    found: list[OffsetFetchResponseGroup],
    unknown: list[list[OffsetFetchResponseTopics]],
    context: RequestContext,
) -> Sliced[OffsetFetchResponse]:
    """Replace names by topic ids after the coordinator has answered."""
    for group, missing in zip(found, unknown, strict=True):
        topics = []
        for topic in group.topics:
            if _name_by_id(topic, context):
                topics.append(topic)
            yield
        if not group.error_code:
            topics.extend(missing)
        group.topics = topics
        yield
    return OffsetFetchResponse(groups=found)


def _name_by_id(topic: OffsetFetchResponseTopics, context: RequestContext) -> bool:
    """False for a deleted topic, which has no id."""
    known = context.broker.metadata.topic(topic.name)
    if known is None:
        return False
    topic.topic_id = known.topic_id
    return True


def _refused(partitions: Iterable[int], code: int) -> Sliced[list[OffsetFetchResponsePartitions]]:
    answers = []
    for partition in partitions:
        answers.append(
            OffsetFetchResponsePartitions(
                partition_index=partition, committed_offset=NO_OFFSET, metadata="", error_code=code
            )
        )
        yield
    return answers


async def fetch_in_pieces(
    groups: Sequence[OffsetFetchRequestGroup], context: RequestContext, *, require_stable: bool
) -> list[OffsetFetchResponseGroup]:
    """Response for each group.

    The coordinator looks up all offsets of a query in one turn. So a group with many named partitions is
    divided into pieces, and their responses are joined. Offsets of different partitions are independent:
    reading them in different turns changes nothing. Offsets that the request does not name spend its budget,
    because a group has many, and may be named under many members.
    """

    def fetch(piece: OffsetFetchRequestGroup, respond: Callable[[OffsetFetchResponseGroup], None]) -> None:
        fetch_group(piece, context, respond, require_stable=require_stable)

    answers: list[OffsetFetchResponseGroup] = []
    for together in _turns(groups):
        if len(together) > 1:
            answers += await ask_in_chunks(together, fetch, context)
            continue
        (group,) = together
        answer = OffsetFetchResponseGroup(group_id=group.group_id)
        for piece in _pieces(group):
            (found,) = await ask_in_chunks([piece], fetch, context)
            if found.error_code:
                answer = found
                break
            _join(answer, found)
        if group.topics is None and len(groups) > 1:
            context.budget.spend_elements(sum([len(topic.partitions) for topic in answer.topics]))
        answers.append(answer)
    return answers


def _turns(groups: Sequence[OffsetFetchRequestGroup]) -> Iterator[Sequence[OffsetFetchRequestGroup]]:
    """Groups that are asked at the same time, because together they name few partitions."""
    together: list[OffsetFetchRequestGroup] = []
    left = PARTITIONS_AT_ONCE_MAX
    for group in groups:
        size = _size(group)
        if together and size > left:
            yield together
            together, left = [], PARTITIONS_AT_ONCE_MAX
        together.append(group)
        left -= size
    if together:
        yield together


def _size(group: OffsetFetchRequestGroup) -> int:
    """Number of named topics and partitions; above PARTITIONS_AT_ONCE_MAX for a group that is asked alone."""
    if group.topics is None:
        return PARTITIONS_AT_ONCE_MAX + 1
    size = 0
    for topic in group.topics:
        size += 1 + len(topic.partition_indexes)
        if size > PARTITIONS_AT_ONCE_MAX:
            break
    return size


def _join(answer: OffsetFetchResponseGroup, found: OffsetFetchResponseGroup) -> None:
    """Join the pieces of a topic into one topic of the response."""
    topics = found.topics
    if answer.topics and topics and answer.topics[-1].name == topics[0].name:
        answer.topics[-1].partitions += topics[0].partitions
        topics = topics[1:]
    answer.topics += topics


def fetch_group(
    group: OffsetFetchRequestGroup,
    context: RequestContext,
    respond: Callable[[OffsetFetchResponseGroup], None],
    *,
    require_stable: bool,
) -> None:
    """Offsets of one group in one turn, for topics that the client may describe."""

    def refuse(error: KafkaError) -> None:
        respond(OffsetFetchResponseGroup(group_id=group.group_id, error_code=error.code))

    if not context.allows(Operation.DESCRIBE, ResourceType.GROUP, group.group_id):
        refuse(GroupAuthorizationFailed(""))
        return
    allowed, denied = _by_right(group, context)

    def answer(found: OffsetFetchResponseGroup) -> None:
        if not found.error_code:
            found.topics += denied
        respond(found)

    context.broker.groups.run(
        group.group_id,
        lambda shard: shard.offset_requests.fetch(allowed, require_stable=require_stable),
        answer,
        refuse,
    )


def _by_right(
    group: OffsetFetchRequestGroup, context: RequestContext
) -> tuple[OffsetFetchRequestGroup, list[OffsetFetchResponseTopics]]:
    """Topics that the client may describe, and the response for the others."""
    if group.topics is None or context.broker.authorizer.allows_everything:
        return group, []
    allowed, denied = [], []
    for topic in group.topics[:PARTITIONS_AT_ONCE_MAX]:  # no piece has more
        if _may_describe(topic.name, context):
            allowed.append(topic)
            continue
        indexes = topic.partition_indexes
        refused = [_denied(index) for index in indexes[:PARTITIONS_AT_ONCE_MAX]]
        denied.append(OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id, partitions=refused))
    return _piece(group, allowed), denied


def _denied(index: int) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=NO_OFFSET,
        metadata="",
        error_code=TopicAuthorizationFailed.code,
    )


def _may_describe(topic: str, context: RequestContext) -> bool:
    return context.allows(Operation.DESCRIBE, ResourceType.TOPIC, topic)


def _pieces(group: OffsetFetchRequestGroup) -> Iterator[OffsetFetchRequestGroup]:
    """Pieces of the query, at least one: the coordinator may have an error for a group without topics."""
    if not group.topics:
        yield group
        return
    asked: list[OffsetFetchRequestTopics] = []
    left = PARTITIONS_AT_ONCE_MAX
    for topic in group.topics:
        indexes = topic.partition_indexes
        for start in range(0, max(len(indexes), 1), PARTITIONS_AT_ONCE_MAX):
            some = indexes[start : start + PARTITIONS_AT_ONCE_MAX]
            if left < 1 + len(some) and asked:
                yield _piece(group, asked)
                asked, left = [], PARTITIONS_AT_ONCE_MAX
            left -= 1 + len(some)
            asked.append(
                OffsetFetchRequestTopics(name=topic.name, topic_id=topic.topic_id, partition_indexes=some)
            )
    yield _piece(group, asked)


def _piece(group: OffsetFetchRequestGroup, topics: list[OffsetFetchRequestTopics]) -> OffsetFetchRequestGroup:
    return OffsetFetchRequestGroup(
        group_id=group.group_id, member_id=group.member_id, member_epoch=group.member_epoch, topics=topics
    )


OFFSET_FETCH = Api(ApiKey.OFFSET_FETCH, handle=handle_offset_fetch)
