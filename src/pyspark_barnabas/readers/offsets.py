"""Subscribed partitions and their start and end offsets, for the driver.

Offsets travel between Spark and the reader in the form of Spark's own connector, `{"topic": {"0": 23}}`. A
checkpoint holds the same form. The ids of the topics stand beside the offsets (`checkpoint_format`). Offsets
alone do not reveal that a topic was deleted and created again under its name.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from barnabas.core.ids import TopicPartition
from barnabas.pipelines.state.checkpoint_format import TOPIC_IDS, without_topic_ids
from barnabas.protocol.offset_numbers import EARLIEST, LATEST
from pyspark_barnabas.shared.cluster import Cluster
from pyspark_barnabas.shared.options import Bound, OptionError, Subscription

Offsets = dict[TopicPartition, int]
OffsetTree = dict[str, dict[str, Any]]
TopicIds = Mapping[str, str]


def to_tree(offsets: Mapping[TopicPartition, int], topic_ids: TopicIds | None = None) -> OffsetTree:
    """Offsets as Spark's tree. Spark compares trees as text, so equal offsets and ids give equal text."""
    tree: OffsetTree = {}
    for topic_partition in sorted(offsets):
        tree.setdefault(topic_partition.topic, {})[str(topic_partition.partition)] = offsets[topic_partition]
    known = {topic: topic_ids[topic] for topic in tree if topic in topic_ids} if topic_ids else {}
    return {**tree, TOPIC_IDS: known} if known else tree


def from_tree(tree: Mapping[str, Mapping[str, Any]]) -> Offsets:
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, rows in without_topic_ids(tree).items()
        for partition, offset in rows.items()
    }


def created_again(before: TopicIds, now: TopicIds) -> list[str]:
    """Topics that were deleted and created again under the same name.

    A topic without an id counts as unchanged: older checkpoints and brokers have none.
    """
    return sorted(topic for topic, known in before.items() if now.get(topic, known) != known)


def subscribed(cluster: Cluster, wanted: Subscription, *, must_exist: bool = True) -> list[TopicPartition]:
    """Partitions of the subscription that exist now."""
    if wanted.assigned:
        existing = cluster.partitions(topic_partition.topic for topic_partition in wanted.assigned)
        return [
            topic_partition
            for topic_partition in wanted.assigned
            if topic_partition.partition < existing.get(topic_partition.topic, 0)
        ]
    topics: Iterable[str] = wanted.topics
    if wanted.pattern is not None:
        pattern = re.compile(wanted.pattern)
        topics = [name for name in cluster.topics() if pattern.fullmatch(name)]
    existing = cluster.partitions(topics)
    missing = [name for name in wanted.topics if name not in existing]
    if missing and must_exist:
        raise OptionError(f"subscribe names topics that do not exist: {', '.join(missing)}")
    return [
        TopicPartition(name, partition) for name in sorted(existing) for partition in range(existing[name])
    ]


def resolve(
    cluster: Cluster,
    topic_partitions: Collection[TopicPartition],
    bound: Bound,
    *,
    isolation: int,
    which: str,
) -> Offsets:
    """Offset that `bound` stands for in each partition."""
    _check_all_named(bound.offsets, topic_partitions, f"{which}Offsets")
    _check_all_named(bound.timestamps_ms, topic_partitions, f"{which}OffsetsByTimestamp")
    wanted: dict[TopicPartition, int] = {}
    found: Offsets = {}
    for topic_partition in topic_partitions:
        offset = bound.offsets.get(topic_partition, bound.default)
        if bound.timestamp_ms is not None:
            wanted[topic_partition] = bound.timestamp_ms
        elif bound.timestamps_ms:
            wanted[topic_partition] = bound.timestamps_ms[topic_partition]
        elif offset in (LATEST, EARLIEST):
            wanted[topic_partition] = offset
        elif offset < 0:
            raise OptionError(
                f"{which}Offsets: {offset} for {topic_partition} is neither an offset, -1 nor -2"
            )
        else:
            found[topic_partition] = offset
    found.update(cluster.list_offsets(wanted, isolation=isolation))
    too_late = [topic_partition for topic_partition, offset in found.items() if offset < 0]
    if too_late:
        if not bound.latest_when_no_match:
            names = ", ".join(map(str, too_late))
            raise OptionError(
                f"no record of {names} is as late as the starting timestamp; "
                "startingOffsetsByTimestampStrategy=latest starts at the end then"
            )
        found.update(cluster.list_offsets(dict.fromkeys(too_late, LATEST), isolation=isolation))
    return found


def _check_all_named(
    named: Mapping[TopicPartition, int], topic_partitions: Collection[TopicPartition], option: str
) -> None:
    if not named:
        return
    missing = [str(topic_partition) for topic_partition in topic_partitions if topic_partition not in named]
    unknown = [
        str(topic_partition) for topic_partition in named if topic_partition not in set(topic_partitions)
    ]
    if missing:
        raise OptionError(f"{option} leaves out {', '.join(missing)}")
    if unknown:
        raise OptionError(
            f"{option} names {', '.join(unknown)}, which is not subscribed to or does not exist"
        )
