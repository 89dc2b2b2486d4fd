"""Trials of compaction: what it may not touch, and what it may not forget.

Like `trials`, each comes last, when all is mended, and may break things by itself.
"""

from __future__ import annotations

import asyncio
import random

from barnabas.client.admin.topics_and_configs import TopicAdmin
from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.core.transaction_steps import add_partitions, begin, end, idempotent_producer
from barnabas.core.ids import TopicPartition
from barnabas.protocol.config_numbers import ResourceType
from tests.chaos.history import ALL_REPLICAS, History
from tests.simulation.cast import Part, Stage, Topic
from tests.simulation.clients import Batches, Row, World
from tests.simulation.final_reading import COMMITTED_ONLY, LATEST
from tests.support.plain_consumer import Consumer, list_offsets

COMPACTED_S = 35.0
"""Longer than the slowest cleaner takes to come back, and a pass."""
LONG_TRANSACTION_MS = 120_000
COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}


class Keyed:
    """A producer of one partition of keyed records, which knows what it wrote last."""

    def __init__(self, world: World, cluster: ClusterClient, topic: str) -> None:
        self._cluster = cluster
        self._topic = topic
        self._batches = Batches(cluster, topic, ALL_REPLICAS, world.clock.now_ms)
        self.last: dict[bytes, bytes | None] = {}

    async def identify(self) -> None:
        self._batches.identify(*await self._cluster.run(idempotent_producer(self._cluster.state)))

    async def write(self, rows: list[Row]) -> None:
        """In one batch, acknowledged by all."""
        await self._batches.write_rows(rows, 0)
        self.last.update({key: value for key, value in rows if key is not None})


async def read_keys(cluster: ClusterClient, topic: str, start: int = 0) -> dict[bytes, bytes | None]:
    """The last committed value of each key, as a reader gets it; a tombstone is None."""
    seen: dict[bytes, bytes | None] = {}
    end_offset = (await list_offsets(cluster, topic, [0], LATEST, isolation_level=COMMITTED_ONLY))[0]
    async with Consumer(cluster, topic, {0: start}, read_committed=True) as consumer:
        while consumer.positions[0] < end_offset:
            for _, record in await consumer.poll():
                seen[bytes(record.key or b"")] = None if record.value is None else bytes(record.value)
    return seen


def wrong_keys(topic: str, wanted: dict[bytes, bytes | None], seen: dict[bytes, bytes | None]) -> list[str]:
    """A deleted key shows nothing or a tombstone; each other key its last value."""
    found = []
    for key, value in sorted(wanted.items()):
        if value is None and seen.get(key) is not None:
            found.append(f"deleted key is back: {topic}-0 shows {seen[key]!r} of {key!r}")
        elif value is not None and seen.get(key) != value:
            found.append(
                f"compacted away: of {key!r} {topic}-0 shows {seen.get(key)!r}, and {value!r} was"
                " committed last"
            )
    return found


class Undecided(Part):
    """A transaction is open for as long as compaction takes, and then decided. Compaction leaves alone what
    is not decided: were it to count, an abort would leave keys without any value."""

    TOPIC = "undecided"
    KEYS = 10
    FILLERS = 12

    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)
        self._complaints: list[str] = []

    def topics(self) -> dict[str, Topic]:
        return {self.TOPIC: Topic(1, configs={**COMPACTED, "segment.bytes": "700"})}

    async def look(self, stage: Stage) -> None:
        world = stage.world(self.TOPIC, History())
        cluster = await world.open(self.TOPIC)
        keyed = Keyed(world, cluster, self.TOPIC)
        await keyed.identify()
        keys = [f"key-{each}".encode() for each in range(self.KEYS)]
        await keyed.write([(key, b"decided") for key in keys])
        txn = await cluster.run(begin(cluster.state, self.TOPIC, LONG_TRANSACTION_MS))
        await cluster.run(add_partitions(cluster.state, txn, [TopicPartition(self.TOPIC, 0)]))
        batches = Batches(cluster, self.TOPIC, ALL_REPLICAS, world.clock.now_ms)
        batches.identify(txn.producer_id, txn.epoch)
        await batches.write_rows([(key, b"undecided") for key in keys], 0, txn.transactional_id)
        for number in range(self.FILLERS):
            await keyed.write([(f"filler-{number % 3}".encode(), b"%100d" % number)])
        await asyncio.sleep(COMPACTED_S)
        commit = self.chance.random() < 0.3
        await cluster.run(end(cluster.state, txn, commit=commit))
        if commit:
            keyed.last.update(dict.fromkeys(keys, b"undecided"))
        await asyncio.sleep(1.0)
        self._complaints += wrong_keys(self.TOPIC, keyed.last, await read_keys(cluster, self.TOPIC))

    def complaints(self) -> list[str]:
        return self._complaints[:5]


class Graves(Part):
    """Keys are deleted in a backlog that is larger than the map of the cleaner, and tombstones expire at
    once. Each pass ends in the middle of the log: what is behind its end has not been looked at."""

    TOPIC = "graves"
    KEYS = 48
    PER_BATCH = 8
    PASSES = 3

    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)
        self._complaints: list[str] = []

    def topics(self) -> dict[str, Topic]:
        configs = {
            **COMPACTED,
            "cleanup.policy": "delete",
            "segment.bytes": "1500",
            "delete.retention.ms": "0",
        }
        return {self.TOPIC: Topic(1, replicas=1, configs={**configs, "min.insync.replicas": "1"})}

    async def look(self, stage: Stage) -> None:
        world = stage.world(self.TOPIC, History())
        cluster = await world.open(self.TOPIC)
        keyed = Keyed(world, cluster, self.TOPIC)
        await keyed.identify()
        keys = [f"key-{each}".encode() for each in range(self.KEYS)]
        for value in (b"first", None):
            for at in range(0, self.KEYS, self.PER_BATCH):
                await keyed.write([(key, value) for key in keys[at : at + self.PER_BATCH]])
        change = {"cleanup.policy": "compact"}
        await TopicAdmin(cluster).alter_configs(ResourceType.TOPIC, self.TOPIC, changes=change)
        for number in range(self.PASSES):
            for each in range(20):
                await keyed.write([(b"filler-%d" % (each % 2), b"%100d" % number)])
            await asyncio.sleep(COMPACTED_S)
        self._complaints += wrong_keys(self.TOPIC, keyed.last, await read_keys(cluster, self.TOPIC))

    def complaints(self) -> list[str]:
        return self._complaints[:5]
