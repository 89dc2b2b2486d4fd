"""Who uses the cluster: they write down what they did and saw, and never decide what is right."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence

from barnabas.client import transaction_steps
from barnabas.client.cluster_client import ClusterClient
from barnabas.client.consumer import Consumer
from barnabas.client.steps import ClusterUnreachable
from barnabas.core.clock import Clock
from barnabas.core.endpoints import Endpoint
from barnabas.core.errors import DuplicateSequenceNumber, KafkaError, NetworkException, error_for
from barnabas.core.ids import TopicPartition
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas.records.builder import BatchBuilder
from tests.chaos.history import ALL_REPLICAS, History, Outcome, Reading, Transaction, Value, Write
from tests.simulation.loop import SimulatedLoop

REQUEST_TIMEOUT_MS = 5_000
TRANSACTION_TIMEOUT_MS = 10_000
ATTEMPTS_MAX = 400

Stopping = Callable[[], bool]


class World:
    """What every client is given."""

    def __init__(
        self,
        loop: SimulatedLoop,
        clock: Clock,
        chance: random.Random,
        bootstrap: Sequence[Endpoint],
        history: History,
        is_over: Stopping,
    ) -> None:
        self.loop = loop
        self.clock = clock
        self.chance = chance
        self.history = history
        self.is_over = is_over
        self._bootstrap = bootstrap

    async def open(self, name: str) -> ClusterClient:
        return ClusterClient(
            self.chance.sample(self._bootstrap, len(self._bootstrap)),
            clock=self.clock,
            randomness=self.chance,
            client_id=name,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
        )

    async def pause(self, longest_s: float) -> None:
        await asyncio.sleep(self.chance.uniform(0, longest_s))


class Batches:
    """The numbered batches of one producer id."""

    def __init__(self, cluster: ClusterClient, topic: str, acks: int, now_ms: Callable[[], int]) -> None:
        self._cluster = cluster
        self._topic = topic
        self._acks = acks
        self._now_ms = now_ms
        self.producer_id = self.epoch = -1
        self._sequences: dict[int, int] = {}

    def identify(self, producer_id: int, epoch: int) -> None:
        self.producer_id, self.epoch = producer_id, epoch
        self._sequences.clear()

    async def write(self, value: Value, partition: int, transactional_id: str | None = None) -> int:
        """The offset; the same batch is sent until it is answered. Raises what cannot pass."""
        number = self._sequences.get(partition, 0)
        builder = BatchBuilder(
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=number,
            is_transactional=transactional_id is not None,
        )
        builder.append(None, value.encode(), (), self._now_ms())
        records = builder.build()
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
                self._sequences[partition] = number + 1
                return offset
        raise NetworkException("nobody answers")

    async def _attempt(self, records: bytearray, partition: int, transactional_id: str | None) -> int:
        cluster = self._cluster
        topic = await cluster.run(cluster.state.topic(self._topic))
        data = [PartitionProduceData(index=partition, records=records)]
        request = ProduceRequest(
            transactional_id=transactional_id,
            acks=self._acks,
            timeout_ms=REQUEST_TIMEOUT_MS - 500,
            topic_data=[TopicProduceData(name=topic.name, topic_id=topic.topic_id, partition_data=data)],
        )
        channel = await cluster.channel_to(topic.partitions[partition].leader_id)
        row = (await channel.send(request, ProduceResponse)).responses[0].partition_responses[0]
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
    """Reads everything from the start, in order; begins a new reading when it had to begin anew."""
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


async def transact(world: World, name: str, topic: str, partitions: int) -> None:
    """Writes in transactions over several partitions, and commits some and aborts others."""
    cluster = await world.open(name)
    batches = Batches(cluster, topic, ALL_REPLICAS, world.clock.now_ms)
    number = 0
    while not world.is_over():
        transaction = Transaction(f"{name}/{number}")
        is_ending = False
        try:
            txn = await cluster.run(transaction_steps.begin(cluster.state, name, TRANSACTION_TIMEOUT_MS))
            world.history.transactions.append(transaction)
            batches.identify(txn.producer_id, txn.epoch)
            places = [TopicPartition(topic, each) for each in range(partitions)]
            await cluster.run(transaction_steps.add_partitions(cluster.state, txn, places))
            for partition in range(partitions):
                number += 1
                value = Value(name, number, transaction.name)
                transaction.values.append(value)
                await batches.write(value, partition, name)
                await world.pause(0.05)
            commit = world.chance.random() < 0.7
            is_ending = True
            await cluster.run(transaction_steps.end(cluster.state, txn, commit=commit))
            transaction.outcome = Outcome.ACKNOWLEDGED if commit else Outcome.REFUSED
        except (KafkaError, ClusterUnreachable):
            if not is_ending:
                transaction.outcome = Outcome.REFUSED  # it was never asked to commit
        number += 1
        await world.pause(0.5)
