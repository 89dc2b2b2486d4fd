"""Consumer offsets in ZooKeeper, from before there was an offsets topic.

`/consumers/<group>/offsets/<topic>/<partition>` holds an offset as text. Only version 0 of OffsetCommit and
OffsetFetch uses it. Offsets there and in the offsets topic are independent, as in Kafka.
"""

from __future__ import annotations

from barnabas.cluster.coordination.contract import Coordination, NodeExists, NoNode
from barnabas.cluster.znodes.json_codec import reading


class ConsumerOffsetZnode:
    @staticmethod
    def path(group: str, topic: str, partition: int) -> str:
        return f"/consumers/{group}/offsets/{topic}/{partition}"

    @staticmethod
    def encode(offset: int) -> bytes:
        return str(offset).encode()

    @staticmethod
    def decode(data: bytes) -> int:
        with reading("a consumer offset"):
            return int(data)


async def write_consumer_offset(
    znodes: Coordination, group: str, topic: str, partition: int, offset: int
) -> None:
    path = ConsumerOffsetZnode.path(group, topic, partition)
    data = ConsumerOffsetZnode.encode(offset)
    while True:
        try:
            await znodes.set(path, data)
        except NoNode:
            try:
                await znodes.create(path, data, make_parents=True)
            except NodeExists:
                continue  # another consumer of the group was first
        return


async def read_consumer_offset(znodes: Coordination, group: str, topic: str, partition: int) -> int | None:
    """Committed offset, or None if the group never committed one."""
    try:
        data, _ = await znodes.get(ConsumerOffsetZnode.path(group, topic, partition))
    except NoNode:
        return None
    return ConsumerOffsetZnode.decode(data)
