"""Records of a topic at the end of a run, as readers of both kinds get them."""

from __future__ import annotations

import asyncio

from barnabas.client.aio.cluster_client import ClusterClient
from tests.chaos.history import History, Value
from tests.support.plain_consumer import Consumer, list_offsets

LATEST = -1
COMMITTED_ONLY = 1


async def read_topic(cluster: ClusterClient, topic: str, partitions: int, history: History) -> None:
    """Into `final` and `final_committed`, once nothing is undecided any more."""
    numbers = range(partitions)
    ends = await list_offsets(cluster, topic, numbers, LATEST)
    while await list_offsets(cluster, topic, numbers, LATEST, isolation_level=COMMITTED_ONLY) != ends:
        await asyncio.sleep(1.0)  # an open transaction ends by its timeout
        ends = await list_offsets(cluster, topic, numbers, LATEST)
    for committed, into in ((False, history.final), (True, history.final_committed)):
        for number in numbers:
            into[topic, number] = []
        async with Consumer(cluster, topic, dict.fromkeys(numbers, 0), read_committed=committed) as consumer:
            while any(consumer.positions[number] < ends[number] for number in numbers):
                for number, record in await consumer.poll():
                    value = Value.decode(bytes(record.value or b""))
                    into[topic, number].append((record.offset, value))
