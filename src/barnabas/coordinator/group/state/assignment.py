"""Assignment of the consumer protocol: partitions by topic id."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from barnabas.coordinator.group.state.record_schemas import TopicPartitions
from barnabas.core.ids import Uuid

Assignment = Mapping[Uuid, frozenset[int]]
"""Immutable by convention; each topic in it has at least one partition."""

NO_PARTITIONS: Assignment = {}


def from_record(topics: Iterable[TopicPartitions]) -> Assignment:
    return {topic.topic_id: frozenset(topic.partitions) for topic in topics if topic.partitions}


def to_record(assignment: Assignment) -> list[TopicPartitions]:
    return [
        TopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
        for topic_id, partitions in sorted(assignment.items())
    ]


def merge(left: Assignment, right: Assignment) -> Assignment:
    merged = dict(left)
    for topic_id, partitions in right.items():
        merged[topic_id] = merged.get(topic_id, frozenset()) | partitions
    return merged


def contains(whole: Assignment, part: Assignment) -> bool:
    return all(partitions <= whole.get(topic_id, frozenset()) for topic_id, partitions in part.items())


def overlap(left: Assignment, right: Assignment) -> bool:
    return any(not partitions.isdisjoint(right.get(topic_id, ())) for topic_id, partitions in left.items())
