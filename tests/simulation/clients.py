"""Clients of the cluster. They record their requests and responses, and never decide which are right."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from barnabas.client import Consumer, Producer
from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.core import transaction_steps
from barnabas.client.core.steps import ClusterUnreachable
from barnabas.client.producer.delivery import Delivery
from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.clock import Clock
from barnabas.core.errors import (
    DuplicateSequenceNumber,
    KafkaError,
    NetworkException,
    UnknownTopicOrPartition,
    error_for,
)
from barnabas.core.ids import TopicPartition
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas.records.builder import BatchBuilder
from tests.chaos.history import History, Outcome, Reading, Value, Write
from tests.simulation.conduct import Conduct
from tests.simulation.loop import SimulatedLoop

REQUEST_TIMEOUT_MS = 5_000
API_TIMEOUT_MS = 20_000
VERSION_BEFORE_JOINING = 11
"""Of Produce: later ones add a partition to the transaction by themselves, this one has it verified."""
QUIET_PAUSE_S = 10.0
TRANSACTION_TIMEOUT_MS = 10_000
ATTEMPTS_MAX = 400
KEYS = 3
SENDS_OF_A_LIFE = 40
"""Bursts of a producer, before another one continues."""

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
        conduct: Conduct,
        pace: Callable[[float], float] = lambda _: 1.0,
    ) -> None:
        """`pace` is how many times as long as at their busiest clients pause at that time."""
        self.loop = loop
        self.clock = clock
        self.conduct = conduct
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

    def producer(self, name: str, **settings: Any) -> Producer:
        """Producer of the client library, on the clock and the randomness of this world."""
        return Producer(
            self._shuffled(),
            client_id=name,
            clock=self.clock,
            randomness=self.chance,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            **settings,
        )

    def consumer(self, name: str, **settings: Any) -> Consumer:
        """Consumer of the client library, on the clock and the randomness of this world."""
        return Consumer(
            self._shuffled(),
            client_id=name,
            clock=self.clock,
            randomness=self.chance,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            default_api_timeout_ms=API_TIMEOUT_MS,
            auto_offset_reset="earliest",
            **settings,
        )

    def _shuffled(self) -> list[str]:
        return [str(each) for each in self.chance.sample(self._bootstrap, len(self._bootstrap))]

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


async def send(world: World, name: str, topic: str, partitions: int) -> None:
    """The producer of the client library: many records at a time, batches in flight behind each other."""
    number = 0
    while not world.is_over():
        producer = world.producer(name, **draw_sending(world.chance))
        try:
            async with producer:
                for _ in range(SENDS_OF_A_LIFE):
                    for _ in range(world.chance.randint(1, 12)):
                        await _send(world, producer, Write(Value(name, number), topic, number % partitions))
                        number += 1
                    if world.is_over():
                        break
                    await world.pause(1.0)
        except (KafkaError, ClusterUnreachable):
            await world.pause(1.0)
        await world.conduct.closed(name)


def draw_sending(chance: random.Random) -> dict[str, Any]:
    """Settings of a producer: small batches, so that several are in flight; a short life of records, so that
    some expire while they are in flight; little memory, so that senders wait."""
    return {
        "linger_ms": chance.choice((0, 5, 100)),
        "batch_size": chance.choice((0, 150, 16_384)),
        "buffer_memory": chance.choice((700, 32 << 20)),
        "max_block_ms": chance.choice((3_000, 60_000)),
        "delivery_timeout_ms": chance.choice((7_000, 30_000, 120_000)),
        "max_in_flight_requests_per_connection": chance.choice((1, 5, 5)),
        "compression_type": chance.choice(("none", "none", "gzip")),
    }


async def _send(world: World, producer: Producer, write: Write) -> None:
    write.began_s = world.loop.time()
    world.history.writes.append(write)
    settings, conduct, name = producer.settings, world.conduct, write.value.producer
    try:
        value, key = write.value.encode(), b"key %d" % (write.value.number % KEYS)
        delivery = await producer.send(write.topic, value, key=key, partition=write.partition)
    finally:
        conduct.waited(name, "send", write.began_s, settings.max_block_ms / 1_000)
    taken_s = world.loop.time()

    def delivered(delivery: Delivery) -> None:
        if not world.is_over():  # the last ones may wait for `close`, which has its own timeout
            conduct.waited(name, "the delivery", taken_s, settings.delivery_timeout_ms / 1_000)
        if delivery.exception() is None:
            write.answered_s = world.loop.time()
            write.outcome = Outcome.ACKNOWLEDGED
            offset = delivery.result().offset
            write.offset = offset if offset >= 0 else None

    delivery.add_done_callback(delivered)


async def read_all(world: World, name: str, topic: str, partitions: int) -> None:
    await _read(world, name, topic, partitions, "read_uncommitted")


async def read_committed(world: World, name: str, topic: str, partitions: int) -> None:
    await _read(world, name, topic, partitions, "read_committed")


async def _read(world: World, name: str, topic: str, partitions: int, isolation: str) -> None:
    """Reads everything from the start, in order. A reader that has to start over begins a new reading."""
    while not world.is_over():
        readings = {n: Reading(name, topic, n) for n in range(partitions)}
        world.history.readings += readings.values()
        try:
            async with world.consumer(
                name, isolation_level=isolation, **draw_fetching(world.chance)
            ) as consumer:
                await consumer.assign(TopicPartition(topic, number) for number in range(partitions))
                while not world.is_over():
                    began_s = world.loop.time()
                    records = await consumer.poll(timeout_ms=500)
                    world.conduct.waited(name, "poll", began_s, 0.5)
                    for record in records:
                        readings[record.partition].seen.append((record.offset, Value.decode(record.value)))
        except (KafkaError, ClusterUnreachable):
            await world.pause(1.0)
        await world.conduct.closed(name)


def draw_fetching(chance: random.Random) -> dict[str, Any]:
    """Settings of fetches: with small ones an answer ends in the middle of what there is."""
    return {
        "max_poll_records": chance.choice((1, 7, 500)),
        "max_partition_fetch_bytes": chance.choice((1, 600, 1 << 20)),
        "fetch_buffer_bytes": chance.choice((1, 2_000, 64 << 20)),
    }
