"""Positions of a pipeline: the next offset to read in each partition of its source.

The checkpoint of the pipeline's generation is authoritative: the last micro-batch that Spark has committed. A
topic sink commits the group's offsets with its output. Where a driver died between that and Spark's commit,
the group is ahead, and right. Progress reports come later than both; they count only where the checkpoint is
not on this machine.

A partition that no micro-batch has read begins where the generation begins (`Stored.starting_offsets`).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from barnabas.core.ids import TopicPartition
from barnabas.pipelines.service.checkpoints import committed_offsets
from barnabas.pipelines.service.errors import ServiceError
from barnabas.pipelines.service.store import Stored
from barnabas.pipelines.spec.model import Delivery, PipelineSpec
from barnabas.pipelines.state.progress import Progress, partition_offsets
from barnabas.protocol.offset_numbers import EARLIEST, LATEST

Offsets = dict[TopicPartition, int]


class GroupOffsets(Protocol):
    """Offsets of consumer groups, as in `client.admin.groups.Groups`."""

    async def offsets(self, group_id: str) -> Offsets: ...
    async def commit(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None: ...
    async def delete(self, group_id: str) -> None: ...


class Positions:
    def __init__(self, groups: GroupOffsets, state_location: str) -> None:
        self._groups = groups
        self._state_location = state_location

    async def document(self, stored: Stored, progress: Progress | None) -> Mapping[str, Any]:
        """Position in the source's own form; empty before its first micro-batch."""
        checkpoint = f"{self._state_location.rstrip('/')}/{stored.name}/{stored.generation}/checkpoint"
        committed = await asyncio.to_thread(committed_offsets, checkpoint)
        return committed or (progress.offsets if progress is not None else {})

    async def of_topics(self, stored: Stored, spec: PipelineSpec, progress: Progress | None) -> Offsets:
        """Positions in a topic source. A partition may begin at EARLIEST or LATEST, which are negative."""
        found = _flat(stored.starting_offsets or {})
        found |= _flat(partition_offsets(await self.document(stored, progress)))
        is_in_transaction = spec.sink.type == "topic" and spec.guarantee is Delivery.EXACTLY_ONCE
        if is_in_transaction or not found:
            for topic_partition, offset in (await self._groups.offsets(spec.group_id)).items():
                if found.get(topic_partition, 0) >= 0:  # the group keeps the old offset of a reset partition
                    found[topic_partition] = max(found.get(topic_partition, offset), offset)
        return found


def altered(
    offsets: Mapping[TopicPartition, int], rows: Sequence[Mapping[str, Any]], spec: PipelineSpec
) -> Offsets:
    """`offsets` with the changes of a request; raises ServiceError for an invalid change."""
    found = dict(offsets)
    topics = spec.source.get("topics")
    for row in rows:
        topic, partition, offset = _parse_offset_row(row)
        if topics is not None and topic not in topics:
            raise ServiceError(
                400, f"The connector does not read topic {topic}; it reads {', '.join(topics)}"
            )
        topic_partition = TopicPartition(topic, partition)
        found[topic_partition] = _start(topic_partition, spec) if offset is None else offset
    return found


def offset_row(topic: str, partition: int, offset: int) -> dict[str, Any]:
    """Offset in the form of Connect's REST interface."""
    return {
        "partition": {"kafka_topic": topic, "kafka_partition": partition},
        "offset": {"kafka_offset": offset},
    }


def _parse_offset_row(row: Mapping[str, Any]) -> tuple[str, int, int | None]:
    """Topic, partition and offset of a row. As in Connect, a null offset means the spec's start."""
    try:
        coordinates, offset = row["partition"], row["offset"]
        found = None if offset is None else int(offset["kafka_offset"])
        partition = int(coordinates["kafka_partition"])
        if partition < 0 or (found is not None and found < 0):
            raise ValueError
        return str(coordinates["kafka_topic"]), partition, found
    except (KeyError, TypeError, ValueError):
        raise ServiceError(
            400,
            "An offset is {'partition': {'kafka_topic': …, 'kafka_partition': …},"
            f" 'offset': {{'kafka_offset': …}}}}, or 'offset': null; found {row}",
        ) from None


def by_topic(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Offsets in the form of `Stored.starting_offsets`."""
    found: dict[str, dict[str, int]] = {}
    for topic_partition, offset in sorted(offsets.items()):
        found.setdefault(topic_partition.topic, {})[str(topic_partition.partition)] = offset
    return found


def _flat(offsets: Mapping[str, Mapping[Any, int]]) -> Offsets:
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in offsets.items()
        for partition, offset in partitions.items()
    }


def _start(topic_partition: TopicPartition, spec: PipelineSpec) -> int:
    """Offset at which the spec lets a partition begin."""
    if spec.source.get("starting_timestamp") is not None:
        raise ServiceError(
            400, "A partition of a source with starting_timestamp cannot be reset alone: reset all offsets"
        )
    text = str(spec.source.get("starting_offsets", "earliest"))
    if text.startswith("{"):
        return int(
            json.loads(text).get(topic_partition.topic, {}).get(str(topic_partition.partition), EARLIEST)
        )
    return LATEST if text == "latest" else EARLIEST
