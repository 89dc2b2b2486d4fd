"""What a test asks of its broker: records, committed offsets, the state of groups.

The answers come through Kafka's protocol, as any client gets them. The client of the kit is named
`CLIENT_ID`; no fault rule hits it, and its requests are not among those that the test sees.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Final, NamedTuple

from barnabas.client.admin.groups import GroupDescription, Groups
from barnabas.client.admin.topics_and_configs import Admin
from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.aio.consumer import Consumer, list_offsets
from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.clock import SystemClock
from barnabas.core.errors import GroupIdNotFound
from barnabas.core.ids import TopicPartition
from barnabas.protocol.offset_numbers import EARLIEST, LATEST

CLIENT_ID: Final = "barnabas-test-kit"
_LOOKS_EVERY_S: Final = 0.02


class StoredRecord(NamedTuple):
    """A record of a topic as a consumer gets it."""

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def kit_client(bootstrap: Sequence[Endpoint]) -> ClusterClient:
    return ClusterClient(
        bootstrap, clock=SystemClock(), randomness=random.SystemRandom(), client_id=CLIENT_ID
    )


async def read_records(cluster: ClusterClient, topic: str, *, committed: bool) -> list[StoredRecord]:
    """All records of a topic, by partition and offset; with `committed`, none of open or aborted
    transactions."""
    indexes = [each.index for each in (await cluster.topic(topic)).partitions]
    starts = await list_offsets(cluster, topic, indexes, EARLIEST)
    ends = await list_offsets(cluster, topic, indexes, LATEST, isolation_level=int(committed))
    found: list[StoredRecord] = []
    async with Consumer(
        cluster, topic, {index: starts[index] for index in indexes}, read_committed=committed
    ) as consumer:
        while any(consumer.positions[index] < ends[index] for index in indexes):
            for each in await consumer.poll():
                record = each.record
                if record.offset < ends[each.partition]:
                    found.append(StoredRecord(each.partition, *record))
    return sorted(found, key=lambda each: (each.partition, each.offset))


async def committed_offsets(cluster: ClusterClient, group: str) -> dict[TopicPartition, int]:
    return await Groups(cluster).offsets(group)


async def create_topic(cluster: ClusterClient, name: str, partitions: int, configs: dict[str, str]) -> None:
    await Admin(cluster).create_topic(name, partitions=partitions, configs=configs)


async def await_group(
    cluster: ClusterClient, group: str, *, state: str | None, members: int | None, timeout_s: float
) -> GroupDescription:
    """Wait until a group has this state and number of members, or raise TimeoutError."""
    seen: GroupDescription | None = None
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                try:
                    seen = await Groups(cluster).describe(group)
                except GroupIdNotFound:
                    seen = None
                if seen is not None and _is_as_wanted(seen, state, members):
                    return seen
                await asyncio.sleep(_LOOKS_EVERY_S)
    except TimeoutError:
        now = "does not exist" if seen is None else f"is {seen.state} with {len(seen.members)} members"
        wanted = " with ".join(
            each for each in (state, None if members is None else f"{members} members") if each is not None
        )
        raise TimeoutError(
            f"group {group} {now} after {timeout_s:g} s; the test waits for {wanted}"
        ) from None


def _is_as_wanted(group: GroupDescription, state: str | None, members: int | None) -> bool:
    return state in (None, group.state) and members in (None, len(group.members))
