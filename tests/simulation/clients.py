"""Clients of the cluster. They record their requests and responses, and never decide which are right."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from contextlib import suppress

from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.aio.consumer import Consumer
from barnabas.client.core import transaction_steps
from barnabas.client.core.steps import ClusterUnreachable
from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.clock import Clock
from barnabas.core.errors import (
    DuplicateSequenceNumber,
    KafkaError,
    NetworkException,
    UnknownTopicOrPartition,
    error_for,
)
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas.records.builder import BatchBuilder
from tests.chaos.history import History, Outcome, Reading, Value, Write
from tests.simulation.loop import SimulatedLoop

REQUEST_TIMEOUT_MS = 5_000
VERSION_BEFORE_JOINING = 11
"""Of Produce: later ones add a partition to the transaction by themselves, this one has it verified."""
QUIET_PAUSE_S = 10.0
TRANSACTION_TIMEOUT_MS = 10_000
ATTEMPTS_MAX = 400

Stopping = Callable[[], bool]
Row = tuple[bytes | None, bytes | None]


class World:
    """World and tools of a client."""

    def __init__(
        self,
        loop: SimulatedLoop,
        clock: Clock,
        chance: random.Random,
        bootstrap: Sequence[Endpoint],
        history: History,
        is_over: Stopping,
        pace: Callable[[float], float] = lambda _: 1.0,
    ) -> None:
        """`pace` is how many times as long as at their busiest clients pause at that time."""
        self.loop = loop
        self.clock = clock
        self.chance = chance
        self.history = history
        self.is_over = is_over
        self._bootstrap = bootstrap
        self._pace = pace

    async def open(self, name: str) -> ClusterClient:
        return ClusterClient(
            self.chance.sample(self._bootstrap, len(self._bootstrap)),
            clock=self.clock,
            randomness=self.chance,
            client_id=name,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
        )

    async def pause(self, longest_s: float) -> None:
        """Frequent work is rarer in quiet times; rare work stays as it is."""
        pause_s = self.chance.uniform(0, longest_s)
        if not self.is_over():
            pause_s = max(pause_s, min(pause_s * self._pace(self.loop.now_s), QUIET_PAUSE_S))
        await asyncio.sleep(pause_s)


class Batches:
    """The numbered batches of one producer id."""

    def __init__(self, cluster: ClusterClient, topic: str, acks: int, now_ms: Callable[[], int]) -> None:
        self._cluster = cluster
        self._topic = topic
        self._acks = acks
        self._now_ms = now_ms
        self.producer_id = self.epoch = -1
        self.joins_by_itself = False
        """Whether transactions are those of version 2 (KIP-890)."""
        self._sequences: dict[int, int] = {}
        self._sent: dict[int, bytes] = {}
        """The last batch of each partition."""

    def identify(self, producer_id: int, epoch: int) -> None:
        self.producer_id, self.epoch = producer_id, epoch
        self._sequences.clear()

    async def write(self, value: Value, partition: int, transactional_id: str | None = None) -> int:
        """The offset; the same batch is sent until it is answered. Raises what cannot pass."""
        return await self.write_rows([(None, value.encode())], partition, transactional_id)

    async def write_rows(
        self, rows: Sequence[Row], partition: int, transactional_id: str | None = None
    ) -> int:
        """Keys and values, in one batch; the offset of the first."""
        number = self._sequences.get(partition, 0)
        records = self._batch(rows, number, transactional_id)
        for attempt in range(ATTEMPTS_MAX):
            try:
                offset = await self._attempt(bytearray(records), partition, transactional_id)
            except ClusterUnreachable:
                await self._cluster.pause(200)
            except KafkaError as error:
                if not error.retriable or attempt == ATTEMPTS_MAX - 1:
                    raise
                self._cluster.state.forget_topic(self._topic)
                await self._cluster.pause(100)
            else:
                self._sequences[partition] = number + len(rows)
                self._sent[partition] = records
                return offset
        raise NetworkException("nobody answers")

    async def again(self, partition: int) -> int:
        """Send the last batch once more, as a producer does that has not got the answer."""
        return await self._attempt(bytearray(self._sent[partition]), partition, None)

    def ready(self, value: Value, partition: int, transactional_id: str) -> bytes:
        """A batch of this epoch, to be sent whenever."""
        return self._batch([(None, value.encode())], self._sequences.get(partition, 0), transactional_id)

    async def throw(self, batch: bytes, partition: int, transactional_id: str, late_s: float) -> None:
        """Send it once. The caller does not wait for the response, and writes nothing more in its epoch."""
        await asyncio.sleep(late_s)
        with suppress(KafkaError, ClusterUnreachable):
            await self._attempt(bytearray(batch), partition, transactional_id)

    def _batch(self, rows: Sequence[Row], number: int, transactional_id: str | None) -> bytes:
        builder = BatchBuilder(
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=number,
            is_transactional=transactional_id is not None,
        )
        for key, value in rows:
            builder.append(key, value, (), self._now_ms())
        return bytes(builder.build())

    async def _attempt(self, records: bytearray, partition: int, transactional_id: str | None) -> int:
        cluster = self._cluster
        topic = await cluster.run(cluster.state.topic(self._topic))
        if partition >= len(topic.partitions):
            raise UnknownTopicOrPartition(f"the broker has not heard of partition {partition} yet")
        data = [PartitionProduceData(index=partition, records=records)]
        request = ProduceRequest(
            transactional_id=transactional_id,
            acks=self._acks,
            timeout_ms=REQUEST_TIMEOUT_MS - 500,
            topic_data=[TopicProduceData(name=topic.name, topic_id=topic.topic_id, partition_data=data)],
        )
        channel = await cluster.channel_to(topic.partitions[partition].leader_id)
        is_named = transactional_id is not None and not self.joins_by_itself
        version_max = VERSION_BEFORE_JOINING if is_named else None
        answer = await channel.send(request, ProduceResponse, version_max=version_max)
        row = answer.responses[0].partition_responses[0]
        if row.error_code not in (0, DuplicateSequenceNumber.code):
            raise error_for(row.error_code, row.error_message or "")
        return row.base_offset


async def produce(world: World, name: str, topic: str, partitions: int, acks: int) -> None:
    """An idempotent producer that writes numbered values, one at a time and in turn to every partition."""
    cluster = await world.open(name)
    batches = Batches(cluster, topic, acks, world.clock.now_ms)
    is_identified = False
    number = 0
    while not world.is_over():
        write = Write(Value(name, number), topic, number % partitions, acks=acks, began_s=world.loop.time())
        try:
            if not is_identified:
                batches.identify(*await cluster.run(transaction_steps.idempotent_producer(cluster.state)))
                is_identified = True
            world.history.writes.append(write)
            write.began_s = world.loop.time()
            offset = await batches.write(write.value, write.partition)
        except (KafkaError, ClusterUnreachable):
            is_identified = False  # its numbers are missing: the next needs a new id
        else:
            write.answered_s = world.loop.time()
            write.outcome = Outcome.ACKNOWLEDGED
            write.offset = offset if offset >= 0 else None
        number += 1
        await world.pause(0.3)


async def read_all(world: World, name: str, topic: str, partitions: int) -> None:
    await _read(world, name, topic, partitions, committed=False)


async def read_committed(world: World, name: str, topic: str, partitions: int) -> None:
    await _read(world, name, topic, partitions, committed=True)


async def _read(world: World, name: str, topic: str, partitions: int, *, committed: bool) -> None:
    """Reads everything from the start, in order. A reader that has to start over begins a new reading."""
    cluster = await world.open(name)
    while not world.is_over():
        readings = {n: Reading(name, topic, n) for n in range(partitions)}
        world.history.readings += readings.values()
        try:
            async with Consumer(
                cluster, topic, dict.fromkeys(range(partitions), 0), read_committed=committed
            ) as consumer:
                while not world.is_over():
                    for partition, record in await consumer.poll():
                        readings[partition].seen.append(
                            (record.offset, Value.decode(bytes(record.value or b"")))
                        )
        except (KafkaError, ClusterUnreachable):
            await world.pause(1.0)
