"""Positions of a declarative pipeline: which topics its flows read, up to where, and what is unread.

Spark keeps a checkpoint for each flow below the project's `storage`. A full refresh begins a new one, with a
higher number. The offsets of a topic are beside its id, so a topic of the same name in another cluster is not
mistaken for one of ours. Checkpoints of Spark's own Kafka source have no ids; its topics are found by name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from barnabas.core.errors import UnknownTopicOrPartition
from barnabas.core.ids import TopicPartition
from barnabas.pipelines.service.declarative.log_ends import LogEnds
from barnabas.pipelines.state.checkpoint_format import source_offsets, source_topic_ids
from barnabas.pipelines.state.committed_offsets import committed_text
from barnabas.pipelines.state.durable_files import local_path
from barnabas.pipelines.state.progress import partition_offsets
from barnabas.protocol.offset_numbers import EARLIEST, LATEST

CHECKPOINTS: Final = "_checkpoints"
FLOWS_MAX: Final = 10_000
"""Checkpoints that are read of one project."""

Offsets = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Reached:
    """Positions that every flow has reached, and the ids of their topics."""

    positions: Offsets = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    flows: int = 0


def reached(storage: str) -> Reached:
    """Positions in the checkpoints below `storage`; none if it is not on this machine."""
    root = local_path(storage)
    if root is None:
        return Reached()
    positions: dict[TopicPartition, int] = {}
    topic_ids: dict[str, str] = {}
    flows = 0
    for checkpoint in _checkpoints(root / CHECKPOINTS):
        text = committed_text(checkpoint)
        if text is None:
            continue
        flows += 1
        topic_ids |= source_topic_ids(text)
        for source in source_offsets(text):
            for topic, partitions in partition_offsets(source).items():
                for partition, offset in partitions.items():
                    topic_partition = TopicPartition(topic, partition)
                    # Of several flows that read a topic, the slowest one counts.
                    positions[topic_partition] = min(positions.get(topic_partition, offset), offset)
    return Reached(positions, topic_ids, flows)


def _checkpoints(root: Path) -> Iterator[Path]:
    """Latest checkpoint of every flow: a numbered directory with `offsets`."""
    found: dict[Path, int] = {}
    for offsets in root.rglob("offsets"):
        number = offsets.parent.name
        if number.isdecimal() and offsets.is_dir():
            flow = offsets.parent.parent
            found[flow] = max(found.get(flow, -1), int(number))
        if len(found) >= FLOWS_MAX:
            break
    return (flow / str(number) for flow, number in sorted(found.items()))


async def unread_records(found: Reached, named: Collection[str], ends: LogEnds) -> int | None:
    """Number of unread records; None where a topic is not in this cluster, or no topic is known.

    Topics that the project names and has not read count from their begin: its first record is still to come.
    """
    known = {each.topic for each in found.positions}
    if not known and not named:
        return None
    total = 0
    for topic in sorted(known):
        unread = await _unread(topic, found, ends)
        if unread is None:
            return None
        total += unread
    unseen = [await _unread(topic, found, ends) for topic in sorted(set(named) - known)]
    if not known and None in unseen:
        return None
    return total + sum(each or 0 for each in unseen)


async def _unread(topic: str, found: Reached, ends: LogEnds) -> int | None:
    """Unread records of a topic; None if it is not in this cluster."""
    try:
        known = found.topic_ids.get(topic)
        if known is not None and await ends.topic_id(topic) != known:
            return None
        last = await ends.offsets(topic, LATEST)
        begins: Offsets = {}
        if any(each not in found.positions for each in last):
            begins = await ends.offsets(topic, EARLIEST)
    except UnknownTopicOrPartition:
        return None
    return sum(max(0, end - found.positions.get(each, begins.get(each, 0))) for each, end in last.items())


async def read_since(before: Reached, after: Reached, ends: LogEnds) -> int:
    """Number of records between two readings. A partition that was not read before counts from its begin."""
    total = 0
    for topic in sorted({each.topic for each in after.positions}):
        new = [each for each in after.positions if each.topic == topic and each not in before.positions]
        begins: Offsets = {}
        if new:
            try:
                begins = await ends.offsets(topic, EARLIEST)
            except UnknownTopicOrPartition:
                begins = {}
        for each, offset in after.positions.items():
            if each.topic == topic:
                start = before.positions.get(each, begins.get(each, offset))
                total += max(0, offset - start)
    return total
