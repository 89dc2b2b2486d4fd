"""Which partitions, from which offset to which: the answers that the driver needs.

Offsets travel between Spark and the reader as Spark's own connector writes them,
`{"topic": {"0": 23}}`, which is also what a checkpoint holds.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

from barnabas.core.ids import TopicPartition
from barnabas.protocol.offset_numbers import EARLIEST, LATEST
from pyspark_barnabas.cluster import Cluster
from pyspark_barnabas.options import Bound, OptionError, Subscription

Offsets = dict[TopicPartition, int]
OffsetTree = dict[str, dict[str, int]]


def to_tree(offsets: Mapping[TopicPartition, int]) -> OffsetTree:
    tree: OffsetTree = {}
    for place in sorted(offsets):
        tree.setdefault(place.topic, {})[str(place.partition)] = offsets[place]
    return tree


def from_tree(tree: Mapping[str, Mapping[str, int]]) -> Offsets:
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, rows in tree.items()
        for partition, offset in rows.items()
    }


def subscribed(cluster: Cluster, wanted: Subscription, *, must_exist: bool = True) -> list[TopicPartition]:
    """The partitions there are now."""
    if wanted.assigned:
        existing = cluster.partitions(place.topic for place in wanted.assigned)
        return [place for place in wanted.assigned if place.partition < existing.get(place.topic, 0)]
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
    cluster: Cluster, places: Collection[TopicPartition], bound: Bound, *, isolation: int, which: str
) -> Offsets:
    """The offset of each partition that `bound` stands for."""
    _check_all_named(bound.offsets, places, f"{which}Offsets")
    _check_all_named(bound.timestamps_ms, places, f"{which}OffsetsByTimestamp")
    wanted: dict[TopicPartition, int] = {}
    found: Offsets = {}
    for place in places:
        offset = bound.offsets.get(place, bound.default)
        if bound.timestamp_ms is not None:
            wanted[place] = bound.timestamp_ms
        elif bound.timestamps_ms:
            wanted[place] = bound.timestamps_ms[place]
        elif offset in (LATEST, EARLIEST):
            wanted[place] = offset
        elif offset < 0:
            raise OptionError(f"{which}Offsets: {offset} for {place} is neither an offset, -1 nor -2")
        else:
            found[place] = offset
    found.update(cluster.list_offsets(wanted, isolation=isolation))
    too_late = [place for place, offset in found.items() if offset < 0]
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
    named: Mapping[TopicPartition, int], places: Collection[TopicPartition], option: str
) -> None:
    if not named:
        return
    missing = [str(place) for place in places if place not in named]
    unknown = [str(place) for place in named if place not in set(places)]
    if missing:
        raise OptionError(f"{option} leaves out {', '.join(missing)}")
    if unknown:
        raise OptionError(
            f"{option} names {', '.join(unknown)}, which is not subscribed to or does not exist"
        )
