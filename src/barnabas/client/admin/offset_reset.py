"""Offset reset of a consumer group: target offsets, as `kafka-consumer-groups --reset-offsets` computes them.

A target always lies within the log of its partition. An offset outside of it would be reset again by the
consumer's `auto.offset.reset`, to a position that the operator has not chosen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum, auto
from typing import NamedTuple

from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.core.ids import NO_OFFSET, TopicPartition
from barnabas.protocol.offset_numbers import EARLIEST, LATEST

Offsets = dict[TopicPartition, int]


class ResetTo(Enum):
    EARLIEST = auto()
    LATEST = auto()
    OFFSET = auto()
    TIMESTAMP = auto()
    SHIFT = auto()
    """By a number of records from the committed offset."""


class OffsetReset(NamedTuple):
    to: ResetTo
    number: int = 0
    """Offset, timestamp in milliseconds, or number of records, as `to` requires."""


def target_offset(
    reset: OffsetReset, *, first: int, end: int, committed: int | None = None, since: int = NO_OFFSET
) -> int:
    """New offset of one partition, whose log reaches from `first` to `end`.

    `since` is the first offset at or after the timestamp of the reset, or NO_OFFSET. A shift without a
    committed offset starts at the first one.
    """
    match reset.to:
        case ResetTo.EARLIEST:
            wanted = first
        case ResetTo.LATEST:
            wanted = end
        case ResetTo.OFFSET:
            wanted = reset.number
        case ResetTo.TIMESTAMP:
            wanted = end if since == NO_OFFSET else since
        case ResetTo.SHIFT:
            wanted = (first if committed is None else committed) + reset.number
    return min(max(wanted, first), end)


async def target_offsets(
    cluster: ClusterClient,
    reset: OffsetReset,
    partitions: Iterable[TopicPartition],
    committed: Mapping[TopicPartition, int],
) -> Offsets:
    """New offsets of these partitions. Nothing is committed."""
    wanted = list(partitions)
    first = await offsets_at(cluster, wanted, EARLIEST)
    end = await offsets_at(cluster, wanted, LATEST)
    since = await offsets_at(cluster, wanted, reset.number) if reset.to is ResetTo.TIMESTAMP else {}
    return {
        each: target_offset(
            reset,
            first=first[each],
            end=end[each],
            committed=committed.get(each),
            since=since.get(each, NO_OFFSET),
        )
        for each in wanted
    }


async def offsets_at(cluster: ClusterClient, partitions: Iterable[TopicPartition], timestamp: int) -> Offsets:
    """First offset at or after a timestamp (or LATEST, EARLIEST) of partitions of several topics."""
    wanted = dict.fromkeys(partitions, timestamp)
    return await cluster.run_with_retries(lambda: cluster.state.list_offsets(wanted))
