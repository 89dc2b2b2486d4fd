"""What requests about a group's offsets share: topics that do not exist, or that whoever asks may not read,
are refused one by one; the coordinator hears of the rest, and all are answered together.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any, Protocol, TypeVar

from barnabas.core.errors import TopicAuthorizationFailed, UnknownTopicId, UnknownTopicOrPartition
from barnabas.core.ids import Uuid
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
    refuse: Callable[[T, list[Any], int], A],
    *,
    by_id: bool,
    keeps_empty: bool,
) -> tuple[list[T], list[A]]:
    """What can be committed, under its name, and the answer to the rest. A topic of which nothing is asked
    is in neither, unless `keeps_empty`."""
    metadata = context.broker.metadata
    valid: list[T] = []
    refused: list[A] = []
    for topic in topics:
        known = metadata.topic_by_id(topic.topic_id) if by_id else metadata.topic(topic.name)
        name = known.name if by_id and known is not None else topic.name
        if (known is not None or not by_id) and not context.allows(Operation.READ, ResourceType.TOPIC, name):
            refused.append(refuse(topic, topic.partitions, TopicAuthorizationFailed.code))
            continue
        if known is None:
            if topic.partitions or keeps_empty:
                code = UnknownTopicId.code if by_id else UnknownTopicOrPartition.code
                refused.append(refuse(topic, topic.partitions, code))
            continue
        topic.name = known.name
        count = len(known.partitions)
        missing = [each for each in topic.partitions if not 0 <= each.partition_index < count]
        if missing:
            refused.append(refuse(topic, missing, UnknownTopicOrPartition.code))
            topic.partitions = [each for each in topic.partitions if 0 <= each.partition_index < count]
        if topic.partitions or (keeps_empty and not missing):
            valid.append(topic)
    return valid, refused


def merge(topics: list[A], refused: Iterable[A], key: Callable[[A], Hashable]) -> None:
    """A topic of which some partitions were refused is answered once."""
    known = {key(topic): topic for topic in topics}
    for topic in refused:
        same = known.get(key(topic))
        if same is None:
            topics.append(topic)
        else:
            same.partitions.extend(topic.partitions)
