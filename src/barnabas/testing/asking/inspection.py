"""Questions of a test to its broker: records, committed offsets, the state of groups.

The answers come through Kafka's protocol, as any client gets them. The client of the kit is named
`CLIENT_ID`; no fault rule hits it, and its requests are not among those that the test sees.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import Final, NamedTuple

from barnabas.client.admin.groups import GroupDescription, Groups
from barnabas.client.admin.topics_and_configs import TopicAdmin
from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.consumer.consumer import Consumer
from barnabas.client.core.metadata import Partition, topic_of
from barnabas.core.addressing.endpoints import Endpoint, ListenerEndpoint
from barnabas.core.clock import SystemClock
from barnabas.core.errors import NONE, GroupIdNotFound, KafkaError, LeaderNotAvailable
from barnabas.core.ids import TopicPartition
from barnabas.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)

CLIENT_ID: Final = "barnabas-test-kit"
NO_LEADER: Final = -1
DEAD: Final = "Dead"
_PLAIN: Final = "PLAINTEXT"
_LOOKS_EVERY_S: Final = 0.02
Look = Callable[[TopicPartition], Awaitable[Partition]]
"""Describes a partition now. Each look may ask another broker, because the controller may move."""


class StoredRecord(NamedTuple):
    """A record of a topic as a consumer gets it."""

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def plain_addresses(listeners: Iterable[ListenerEndpoint]) -> list[Endpoint]:
    """Addresses at which the kit asks: it has no certificate and no password. RuntimeError without any, since
    a client without them would try for ever."""
    listeners = list(listeners)
    found = [each.endpoint for each in listeners if each.security_protocol == _PLAIN]
    if listeners and not found:
        names = ", ".join(dict.fromkeys(each.listener_name for each in listeners))
        raise RuntimeError(
            f"the test kit asks in plain text, and the broker has only {names}: give it one more listener,"
            " such as listeners=PLAINTEXT://127.0.0.1:0,SASL_SSL://127.0.0.1:0"
        )
    return found


def kit_client(bootstrap: Sequence[Endpoint]) -> ClusterClient:
    return ClusterClient(
        bootstrap, clock=SystemClock(), randomness=random.SystemRandom(), client_id=CLIENT_ID
    )


async def read_records(cluster: ClusterClient, topic: str, *, committed: bool) -> list[StoredRecord]:
    """All records of a topic, by partition and offset; with `committed`, none of open or aborted
    transactions."""
    await cluster.topic(topic)
    servers = [str(address) for address in cluster.state.brokers.values()]
    isolation = "read_committed" if committed else "read_uncommitted"
    found: list[StoredRecord] = []
    async with Consumer(
        servers, client_id=CLIENT_ID, isolation_level=isolation, auto_offset_reset="earliest"
    ) as consumer:
        ends = await consumer.end_offsets(await consumer.partitions_for(topic))
        await consumer.assign(ends)
        while ends:
            records = await consumer.poll(timeout_ms=_LOOKS_EVERY_S * 1_000)
            before = (each for each in records if each.offset < ends.get(each.topic_partition, 0))
            found += [StoredRecord(*each[1:7]) for each in before]
            for at in [at for at, end in ends.items() if await consumer.position(at) >= end]:
                del ends[at]
                consumer.pause(at)
    return sorted(found, key=lambda each: (each.partition, each.offset))


async def committed_offsets(cluster: ClusterClient, group: str) -> dict[TopicPartition, int]:
    return await Groups(cluster).offsets(group)


async def create_topic(
    cluster: ClusterClient, name: str, partitions: int, configs: dict[str, str], replication_factor: int = -1
) -> None:
    """Create a topic. Returns when every broker knows it and its leaders."""
    await TopicAdmin(cluster).create_topic(
        name, partitions=partitions, replication_factor=replication_factor, configs=configs
    )
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    for broker_id in list(cluster.state.brokers):
        channel = await cluster.channel_to(broker_id)
        while True:
            if _is_led((await channel.send(request, MetadataResponse)).topics):
                break
            await asyncio.sleep(_LOOKS_EVERY_S)


def _is_led(topics: Sequence[MetadataResponseTopic]) -> bool:
    """Whether every partition has a leader."""
    return not any(
        each.error_code or any(partition.error_code for partition in each.partitions) for each in topics
    )


async def await_group(
    cluster: ClusterClient, group: str, *, state: str | None, members: int | None, timeout_s: float
) -> GroupDescription:
    """Wait until a group has this state and number of members, or raise TimeoutError. One that does not exist
    is dead."""
    seen: GroupDescription | None = None
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                try:
                    seen = await Groups(cluster).describe(group)
                except GroupIdNotFound:
                    seen = None
                    if state == DEAD and not members:
                        return GroupDescription(group, DEAD, "", "", NO_LEADER, ())
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


async def partition_of(cluster: ClusterClient, topic: str, partition: int) -> Partition:
    """A partition as a broker describes it now, with or without a leader."""
    answer = await cluster.refresh([topic])
    for each in answer.topics:
        if each.error_code not in (NONE, LeaderNotAvailable.code):
            raise KafkaError.by_code[each.error_code](f"topic {topic}")
        for found in topic_of(each).partitions:
            if found.index == partition:
                return found
    raise ValueError(f"topic {topic} has no partition {partition}")


async def await_leader(look: Look, partition: TopicPartition, is_not: int | None, timeout_s: float) -> int:
    """Wait until a partition has a leader, another one than `is_not`."""
    leader = NO_LEADER
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                leader = (await look(partition)).leader_id
                if leader not in (NO_LEADER, is_not):
                    return leader
                await asyncio.sleep(_LOOKS_EVERY_S)
    except TimeoutError:
        now = "no leader" if leader == NO_LEADER else f"leader {leader}"
        raise TimeoutError(f"{partition} has {now} after {timeout_s:g} s") from None


async def await_in_sync(
    look: Look, partition: TopicPartition, replicas: Sequence[int] | None, timeout_s: float
) -> None:
    """Wait until the in-sync replicas of a partition are `replicas`, or all."""
    seen: tuple[int, ...] = ()
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                found = await look(partition)
                seen = found.isr
                if set(seen) == set(found.replicas if replicas is None else replicas):
                    return
                await asyncio.sleep(_LOOKS_EVERY_S)
    except TimeoutError:
        raise TimeoutError(
            f"the in-sync replicas of {partition} are {sorted(seen)} after {timeout_s:g} s"
        ) from None


async def await_brokers(cluster: ClusterClient, ids: Collection[int], timeout_s: float) -> None:
    """Wait until these brokers, and no others, are in the cluster."""
    seen: set[int] = set()
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                seen = {each.node_id for each in (await cluster.refresh([])).brokers}
                if seen == set(ids):
                    return
                await asyncio.sleep(_LOOKS_EVERY_S)
    except TimeoutError:
        raise TimeoutError(
            f"brokers {sorted(seen)} are up after {timeout_s:g} s, not {sorted(ids)}"
        ) from None


def _is_as_wanted(group: GroupDescription, state: str | None, members: int | None) -> bool:
    return state in (None, group.state) and members in (None, len(group.members))
