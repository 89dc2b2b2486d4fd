"""Topic checks of requests about a group's offsets.

Topics that do not exist, or that the client may not read, are refused one by one. The coordinator gets the
rest, and one response covers all.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any, Protocol, TypeVar

from barnabas.core.errors import TopicAuthorizationFailed, UnknownTopicId, UnknownTopicOrPartition
from barnabas.core.ids import Uuid
from barnabas.core.steps import Sliced
from barnabas.requests.context import RequestContext
from barnabas.security.acl.vocabulary import Operation, ResourceType


class CommittedTopic(Protocol):
    """A topic of a commit, with the partitions and their offsets."""

    name: str
    topic_id: Uuid
    partitions: list[Any]


class AnsweredTopic(Protocol):
    partitions: list[Any]


T = TypeVar("T", bound=CommittedTopic)
A = TypeVar("A", bound=AnsweredTopic)


def sort_out(
    topics: Iterable[T],
    context: RequestContext,
    refuse: Callable[[T, list[Any], int], Sliced[A]],
    *,
    by_id: bool,
    keeps_empty: bool,
) -> Sliced[tuple[list[T], list[A]]]:
    """Split topics into those to commit, under their names, and responses for the refused ones.

    A topic without partitions is in neither, unless `keeps_empty`.
    """
    metadata = context.broker.metadata
    valid: list[T] = []
    refused: list[A] = []
    for topic in topics:
        yield
        known = metadata.topic_by_id(topic.topic_id) if by_id else metadata.topic(topic.name)
        name = known.name if by_id and known is not None else topic.name
        if (known is not None or not by_id) and not context.allows(Operation.READ, ResourceType.TOPIC, name):
            refused.append((yield from refuse(topic, topic.partitions, TopicAuthorizationFailed.code)))
            continue
        if known is None:
            if topic.partitions or keeps_empty:
                code = UnknownTopicId.code if by_id else UnknownTopicOrPartition.code
                refused.append((yield from refuse(topic, topic.partitions, code)))
            continue
        topic.name = known.name
        count = len(known.partitions)
        missing = [each for each in topic.partitions if not 0 <= each.partition_index < count]
        if missing:
            refused.append((yield from refuse(topic, missing, UnknownTopicOrPartition.code)))
            topic.partitions = [each for each in topic.partitions if 0 <= each.partition_index < count]
        if topic.partitions or (keeps_empty and not missing):
            valid.append(topic)
    return valid, refused


def merge(topics: list[A], refused: Iterable[A], key: Callable[[A], Hashable]) -> Sliced[None]:
    """Merge refused partitions into `topics`, so that each topic appears once in the response."""
    known: dict[Hashable, A] = {}
    for topic in topics:
        known[key(topic)] = topic
        yield
    for topic in refused:
        yield
        same = known.get(key(topic))
        if same is None:
            topics.append(topic)
        else:
            same.partitions.extend(topic.partitions)
