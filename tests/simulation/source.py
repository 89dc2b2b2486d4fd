"""The source of pipelines: positions in a topic that is deleted and made again, by a driver that dies.

The product's own `StreamReader` says how far a micro-batch goes, what its journal holds and which ranges its
tasks read. Only Spark's part is played here: it journals the end of a batch, runs it, commits it, and runs a
batch again that its driver did not survive. With `failOnDataLoss=false` every record of the topic as it is at
last is read once, and none of an earlier topic of its name is read twice.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from contextlib import suppress
from typing import Any

from pyspark.sql.streaming.datasource import ReadAllAvailable

from barnabas.client.admin.topics_and_configs import TopicAdmin
from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.core.steps import ClusterUnreachable
from barnabas.client.core.transaction_steps import idempotent_producer
from barnabas.core.errors import KafkaError, TopicAlreadyExists, UnknownTopicOrPartition
from pyspark_barnabas.readers.fetch import OffsetRange
from pyspark_barnabas.readers.stream_reader import StreamReader
from pyspark_barnabas.shared.options import Options
from tests.chaos.history import ALL_REPLICAS, History, Value
from tests.simulation.cast import Part, Stage
from tests.simulation.clients import Batches, World
from tests.simulation.handing_over import HandedOver
from tests.support.plain_consumer import Consumer

OPTIONS = {
    "kafka.bootstrap.servers": "10.0.0.1:9092",
    "startingOffsets": "earliest",
    "failOnDataLoss": "false",
}

READ_S = 20.0


class Source(Part):
    TOPIC = "source"
    PARTITIONS = 2
    ROUNDS = 12
    DIES, RECREATED = 0.3, 0.35

    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)
        self._written: list[list[Value]] = []
        """Of each life of the topic."""
        self._read: Counter[Value] = Counter()
        self._start: Any = None
        self._end: Any = None
        """The journal: where the batch under way begins and ends."""
        self._complaints: list[str] = []

    async def look(self, stage: Stage) -> None:
        world = stage.world(self.TOPIC, History())
        cluster = await world.open(self.TOPIC)
        await self._make_again(cluster, stage.brokers)
        reader = await self._new_reader(world)
        for number in range(self.ROUNDS):
            await self._write(world, cluster)
            if number and self.chance.random() < self.RECREATED:
                await self._make_again(cluster, stage.brokers)
                await self._write(world, cluster)
            is_in_the_middle = self.chance.random() < self.RECREATED / 2
            await self._plan(*reader)
            if is_in_the_middle:
                await self._make_again(cluster, stage.brokers)
                await self._write(world, cluster)
            if self.chance.random() < self.DIES:
                reader = await self._new_reader(world)
            await self._run(*reader, cluster)
            if self.chance.random() < self.DIES:
                reader = await self._new_reader(world)
        for _ in range(2):
            await self._plan(*reader)
            await self._run(*reader, cluster)
        self._judge()

    async def _new_reader(self, world: World) -> tuple[StreamReader, HandedOver]:
        """Of a driver that has just begun: all it knows is in the journal."""
        handed = HandedOver(await world.open(self.TOPIC))
        reader = StreamReader(Options({**OPTIONS, "subscribe": self.TOPIC}))
        reader._cluster = handed
        return reader, handed

    async def _make_again(self, cluster: ClusterClient, brokers: int) -> None:
        admin = TopicAdmin(cluster)
        while True:
            with suppress(UnknownTopicOrPartition):
                await admin.delete_topic(self.TOPIC)
            try:
                await admin.create_topic(
                    self.TOPIC, partitions=self.PARTITIONS, replication_factor=min(2, brokers), configs={}
                )
            except TopicAlreadyExists:
                await asyncio.sleep(0.5)
            else:
                break
        self._written.append([])
        cluster.state.forget_topic(self.TOPIC)

    async def _write(self, world: World, cluster: ClusterClient) -> None:
        life = self._written[-1]
        batches = Batches(cluster, self.TOPIC, ALL_REPLICAS, world.clock.now_ms)
        batches.identify(*await cluster.run(idempotent_producer(cluster.state)))
        for _ in range(self.chance.randint(1, 8)):
            value = Value(f"life-{len(self._written)}", len(life))
            await batches.write(value, self.chance.randrange(self.PARTITIONS))
            life.append(value)

    async def _plan(self, reader: StreamReader, handed: HandedOver) -> None:
        """Journal where the next batch ends, unless one is under way."""
        if self._start is None:
            self._start = _journaled(await handed.call(reader.initialOffset))
        if self._end is None:
            end = await handed.call(lambda: reader.latestOffset(self._start, ReadAllAvailable()))
            self._end = None if end == self._start else _journaled(end)

    async def _run(self, reader: StreamReader, handed: HandedOver, cluster: ClusterClient) -> None:
        if self._end is None:
            return
        planned = await handed.call(lambda: reader.partitions(self._start, self._end))
        for task in planned:
            for wanted in task.ranges:  # type: ignore[attr-defined]
                try:
                    async with asyncio.timeout(READ_S):
                        await self._read_range(cluster, wanted)
                except TimeoutError:
                    self._complaints.append(f"not served: {wanted} cannot be read within {READ_S:.0f} s")
        self._start, self._end = self._end, None

    async def _read_range(self, cluster: ClusterClient, wanted: OffsetRange) -> None:
        """As a task does: a range of a topic that is gone has nothing in it."""
        cluster.state.forget_topic(self.TOPIC)
        position = wanted.start
        while position < wanted.end:
            with suppress(KafkaError, ClusterUnreachable):
                topic = await cluster.topic(self.TOPIC)
                if wanted.topic_id and str(topic.topic_id) != wanted.topic_id:
                    return
                async with Consumer(cluster, self.TOPIC, {wanted.partition: position}) as consumer:
                    for _, record in await consumer.poll():
                        if position <= record.offset < wanted.end:
                            self._read[Value.decode(bytes(record.value or b""))] += 1
                            position = record.offset + 1
                    position = max(position, min(consumer.positions[wanted.partition], wanted.end))

    def _judge(self) -> None:
        for value, count in sorted(self._read.items()):
            if count > 1:
                self._complaints.append(f"read twice: {value} of {self.TOPIC}, {count} times")
        missing = [value for value in self._written[-1] if not self._read[value]]
        if missing:
            self._complaints.append(
                f"skipped: {len(missing)} of {len(self._written[-1])} records of {self.TOPIC} were never"
                f" read, the first is {missing[0]}"
            )

    def complaints(self) -> list[str]:
        return self._complaints[:5]


def _journaled(tree: Any) -> Any:
    """As it comes back from the checkpoint."""
    return json.loads(json.dumps(tree))
