"""All records of a topic, as a consumer outside of any group reads them."""

from __future__ import annotations

import random

from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.clock import SystemClock
from barnabas.protocol.offset_numbers import EARLIEST, LATEST
from barnabas.records.record import Record
from tests.support.plain_consumer import Consumer, list_offsets


async def read_topic(bootstrap: str, topic: str, *, read_committed: bool = False) -> dict[int, list[Record]]:
    """Records by partition, up to the end that the topic has now."""
    cluster = ClusterClient(
        [Endpoint.parse(bootstrap)], clock=SystemClock(), randomness=random.SystemRandom()
    )
    async with cluster:
        partitions = [each.index for each in (await cluster.topic(topic)).partitions]
        starts = await list_offsets(cluster, topic, partitions, EARLIEST)
        ends = await list_offsets(
            cluster, topic, partitions, LATEST, isolation_level=1 if read_committed else 0
        )
        found: dict[int, list[Record]] = {partition: [] for partition in partitions}
        async with Consumer(cluster, topic, starts, read_committed=read_committed) as consumer:
            while any(consumer.positions[partition] < ends[partition] for partition in partitions):
                for fetched in await consumer.poll():
                    found[fetched.partition].append(fetched.record)
    return found


async def read_values(bootstrap: str, topic: str, *, read_committed: bool = False) -> list[bytes | None]:
    """Values of all partitions, one partition after the other."""
    found = await read_topic(bootstrap, topic, read_committed=read_committed)
    return [record.value for records in found.values() for record in records]
