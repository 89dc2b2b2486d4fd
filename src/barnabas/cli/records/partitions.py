"""Partitions that the options of a command choose."""

from __future__ import annotations

from collections.abc import Collection

from barnabas.cli.support.exit_codes import Failure
from barnabas.client.admin.admin import Admin
from barnabas.core.errors import InvalidPartitions
from barnabas.core.ids import TopicPartition


async def partitions_of(admin: Admin, topic: str, numbers: Collection[int] = ()) -> list[TopicPartition]:
    """Partitions of an existing topic: these, or all of them."""
    count = len((await admin.describe_topics([topic]))[topic].partitions)
    chosen = sorted(set(numbers)) or range(count)
    if chosen[-1] >= count:
        raise Failure(f"{topic} has partitions 0 to {count - 1}, not {chosen[-1]}")
    return [TopicPartition(topic, number) for number in chosen]


async def check_partition(
    admin: Admin, topic: str, partition: int | None, *, auto_create: bool = False
) -> bool:
    """Check that topic and partition exist; returns True. With `auto_create` the broker may create it."""
    count = len((await admin.cluster.topic(topic, auto_create=auto_create)).partitions)
    if partition is not None and partition >= count:
        raise InvalidPartitions(f"{topic} has partitions 0 to {count - 1}, not {partition}")
    return True
