"""OffsetFetch (9), v0-10. Gaps: none.

Versions up to 7 ask about one group, later ones about many; version 10 names topics by id. No topics
(null) means all of which the group has committed offsets. Version 1 has no place for an error of the
group, so every partition carries it. Version 0 is older than the coordinator: see `stored_offsets`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import partial

from barnabas.coordinator.gathering import Gathering
from barnabas.core.errors import (
    GroupAuthorizationFailed,
    KafkaError,
    TopicAuthorizationFailed,
    UnknownTopicId,
)
from barnabas.core.ids import NO_OFFSET
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
from barnabas.requests.context import RequestContext
from barnabas.requests.in_chunks import ask_in_chunks
from barnabas.requests.registry import Api
from barnabas.requests.stored_offsets import fetch_stored_offsets
from barnabas.security.acl.vocabulary import Operation, ResourceType

VERSION_WITH_GROUP_ERROR = 2
VERSION_WITH_GROUPS = 8
VERSION_WITH_TOPIC_IDS = 10
PARTITIONS_AT_ONCE_MAX = 1_000
GROUPS_AT_ONCE_MAX = 100

Shaped = Callable[[list[OffsetFetchResponseGroup]], Generator[None, None, OffsetFetchResponse]]


def handle_offset_fetch(request: OffsetFetchRequest, context: RequestContext) -> Generator[None, None, None]:
    if context.api_version == 0:
        context.answer_with(fetch_stored_offsets(request, context))
        return
    unknown: list[list[OffsetFetchResponseTopics]] = []
    groups = [_only_group(request)] if context.api_version < VERSION_WITH_GROUPS else request.groups
    if context.api_version >= VERSION_WITH_TOPIC_IDS:
        for group in groups:
            missing = yield from _names_for_ids(group, context)
            unknown.append(missing)
            yield

    def shaped(found: list[OffsetFetchResponseGroup]) -> Generator[None, None, OffsetFetchResponse]:
        if context.api_version < VERSION_WITH_GROUPS:
            return _as_one_group(found[0], request, context.api_version)
        if context.api_version < VERSION_WITH_TOPIC_IDS:
            return _as_groups(found)
        return _as_groups_by_id(found, unknown, context)

    if is_large(groups):
        context.answer_with(_fetch_large(groups, request, context, shaped))
    else:
        gathering: Gathering[OffsetFetchResponseGroup] = Gathering(
            len(groups), lambda found: context.answer_in_slices(shaped(found))
        )
        for place, group in enumerate(groups):
            fetch_group(group, context, partial(gathering.put, place), require_stable=request.require_stable)


async def _fetch_large(
    groups: list[OffsetFetchRequestGroup],
    request: OffsetFetchRequest,
    context: RequestContext,
    shaped: Shaped,
) -> OffsetFetchResponse:
    found = await fetch_in_pieces(groups, context, require_stable=request.require_stable)
    return await context.spread(shaped(found))


def _only_group(request: OffsetFetchRequest) -> OffsetFetchRequestGroup:
    """Up to version 7 the request is about one group, which is asked for as later versions do."""
    topics = (
        None
        if request.topics is None
        else [
            OffsetFetchRequestTopics(name=each.name, partition_indexes=each.partition_indexes)
            for each in request.topics
        ]
    )
    return OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)


def _as_one_group(
    group: OffsetFetchResponseGroup, request: OffsetFetchRequest, api_version: int
) -> Generator[None, None, OffsetFetchResponse]:
    if group.error_code and api_version < VERSION_WITH_GROUP_ERROR:
        code, group = group.error_code, OffsetFetchResponseGroup()
        for topic in request.topics or ():
            refused = yield from _refused(topic.partition_indexes, code)
            group.topics.append(OffsetFetchResponseTopics(name=topic.name, partitions=refused))
    topics = []
    for answered in group.topics:
        partitions = []
        for each in answered.partitions:
            partitions.append(
                OffsetFetchResponsePartition(
                    partition_index=each.partition_index,
                    committed_offset=each.committed_offset,
                    committed_leader_epoch=each.committed_leader_epoch,
                    metadata=each.metadata,
                    error_code=each.error_code,
                )
            )
            yield
        topics.append(OffsetFetchResponseTopic(name=answered.name, partitions=partitions))
        yield
    return OffsetFetchResponse(error_code=group.error_code, topics=topics)


def _as_groups(found: list[OffsetFetchResponseGroup]) -> Generator[None, None, OffsetFetchResponse]:
    yield
    return OffsetFetchResponse(groups=found)


def _names_for_ids(
    group: OffsetFetchRequestGroup, context: RequestContext
) -> Generator[None, None, list[OffsetFetchResponseTopics]]:
    """Ids become names before the coordinator is asked; the answer to those that nobody knows."""
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
) -> Generator[None, None, OffsetFetchResponse]:
    """Names become ids after the coordinator has answered."""
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
    """False for a topic that is gone: there is no id to name it by."""
    known = context.broker.metadata.topic(topic.name)
    if known is None:
        return False
    topic.topic_id = known.topic_id
    return True


def _refused(
    partitions: Iterable[int], code: int
) -> Generator[None, None, list[OffsetFetchResponsePartitions]]:
    answers = []
    for partition in partitions:
        answers.append(
            OffsetFetchResponsePartitions(
                partition_index=partition, committed_offset=NO_OFFSET, metadata="", error_code=code
            )
        )
        yield
    return answers


# The coordinator looks up what it is asked for in one go. So a large request is divided before it gets there,
# and the answers are put together again. Offsets of different partitions have nothing to do with each other:
# that they are read in different turns changes nothing.


def is_large(groups: Sequence[OffsetFetchRequestGroup]) -> bool:
    if len(groups) > GROUPS_AT_ONCE_MAX:
        return True
    left = PARTITIONS_AT_ONCE_MAX
    for group in groups:
        for topic in group.topics or ():
            left -= 1 + len(topic.partition_indexes)
            if left < 0:
                return True
    return False


async def fetch_in_pieces(
    groups: Sequence[OffsetFetchRequestGroup], context: RequestContext, *, require_stable: bool
) -> list[OffsetFetchResponseGroup]:
    """The answer for each group. All offsets of a group are read once, however often it is named."""

    def fetch(piece: OffsetFetchRequestGroup, respond: Callable[[OffsetFetchResponseGroup], None]) -> None:
        fetch_group(piece, context, respond, require_stable=require_stable)

    whole: dict[tuple[str, str | None, int], OffsetFetchResponseGroup] = {}
    answers = []
    for group in groups:
        name = (group.group_id, group.member_id, group.member_epoch)
        if group.topics is None and name in whole:
            answers.append(whole[name])
            continue
        answer = OffsetFetchResponseGroup(group_id=group.group_id)
        for piece in _pieces(group):
            (found,) = await ask_in_chunks([piece], fetch, context)
            if found.error_code:
                answer = found
                break
            _join(answer, found)
        if group.topics is None:
            whole[name] = answer
        answers.append(answer)
    return answers


def _join(answer: OffsetFetchResponseGroup, found: OffsetFetchResponseGroup) -> None:
    """A topic that was cut into pieces is one topic in the answer."""
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
    """The offsets of one group, in one go; those of topics that the caller may describe."""

    def refuse(error: KafkaError) -> None:
        respond(OffsetFetchResponseGroup(group_id=group.group_id, error_code=error.code))

    if not context.allows(Operation.DESCRIBE, ResourceType.GROUP, group.group_id):
        refuse(GroupAuthorizationFailed(""))
        return
    allowed, denied = _by_right(group, context)

    def answer(found: OffsetFetchResponseGroup) -> None:
        if not found.error_code and not context.broker.authorizer.allows_everything:
            found.topics = [*(topic for topic in found.topics if _may_describe(topic.name, context)), *denied]
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
    """What is asked of topics that the caller may describe, and the answer for the others."""
    if group.topics is None or context.broker.authorizer.allows_everything:
        return group, []
    allowed = [topic for topic in group.topics if _may_describe(topic.name, context)]
    denied = [
        OffsetFetchResponseTopics(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=[
                OffsetFetchResponsePartitions(
                    partition_index=index,
                    committed_offset=NO_OFFSET,
                    metadata="",
                    error_code=TopicAuthorizationFailed.code,
                )
                for index in topic.partition_indexes
            ],
        )
        for topic in group.topics
        if not _may_describe(topic.name, context)
    ]
    return _piece(group, allowed), denied


def _may_describe(topic: str, context: RequestContext) -> bool:
    return context.allows(Operation.DESCRIBE, ResourceType.TOPIC, topic)


def _pieces(group: OffsetFetchRequestGroup) -> Iterator[OffsetFetchRequestGroup]:
    """Always one at least: the coordinator may have an error for a group of which nothing is asked."""
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
