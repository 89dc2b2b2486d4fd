"""Offsets of very many partitions or groups, asked for piece by piece.

The coordinator looks up what it is asked for in one go. So a large request is divided before it
gets there, and the answers are put together again. Offsets of different partitions have nothing
to do with each other: that they are read in different turns changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
)
from barnabas.requests.context import RequestContext
from barnabas.requests.in_chunks import ask_in_chunks

PARTITIONS_AT_ONCE_MAX = 1_000
GROUPS_AT_ONCE_MAX = 100


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
    """The offsets of one group, in one go."""
    context.broker.groups.run(
        group.group_id,
        lambda shard: shard.offset_requests.fetch(group, require_stable=require_stable),
        respond,
        lambda error: respond(OffsetFetchResponseGroup(group_id=group.group_id, error_code=error.code)),
    )


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
