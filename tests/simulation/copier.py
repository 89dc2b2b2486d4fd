"""Copies a topic to another exactly once: records and the offsets they came from are one transaction.

Two copiers share a group. Each has a transactional producer of its own, and its consumer's generation fences
it when the group has given its partitions away.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from barnabas.client import Consumer, Producer, Record
from barnabas.client.core.client_errors import CommitFailed, IllegalState, TransactionAborted
from barnabas.client.core.steps import ClusterUnreachable
from barnabas.core.errors import KafkaError
from barnabas.core.ids import TopicPartition
from tests.chaos.history import Outcome, Transaction, Value
from tests.simulation.clients import TRANSACTION_TIMEOUT_MS, World, draw_fetching
from tests.simulation.groups import MAX_POLL_INTERVAL_MS, SESSION_TIMEOUT_MS, Settings

GROUP = "copiers"
RECORDS_MAX = 20
PAUSE_S = 4.0
BLOCK_MS = 15_000
"""Of one call of a transaction; several of them follow each other."""
FAILURES = (KafkaError, ClusterUnreachable, IllegalState, TransactionAborted, CommitFailed)


class Copier:
    """One life of a copier: it ends with the first error, as a program does that is started again."""

    def __init__(self, world: World, name: str, source: str, target: str, life: int) -> None:
        self._world = world
        self._name = name
        self._source = source
        self._target = target
        self._life = life
        self._attempts = 0

    async def copy_until(self, may_end: Callable[[], bool], protocol: Settings) -> None:
        """Copy to the end of what the group gives it; errors that need a new start are raised."""
        async with self._producer() as producer, self._consumer(protocol) as consumer:
            await producer.init_transactions()
            while True:
                is_last = may_end()
                records = await consumer.poll(timeout_ms=500, max_records=RECORDS_MAX)
                if records:
                    await self._copy(producer, consumer, records)
                    await self._world.pause(0.1 if self._world.is_over() else PAUSE_S)
                elif is_last and await self._is_at_end(consumer):
                    return

    def _producer(self) -> Producer:
        return self._world.producer(
            f"{self._name}-producer",
            transactional_id=self._name,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            max_block_ms=BLOCK_MS,
            delivery_timeout_ms=2 * BLOCK_MS,
            linger_ms=self._world.chance.choice((0, 5)),
            batch_size=self._world.chance.choice((0, 150, 16_384)),
        )

    def _consumer(self, protocol: Settings) -> Consumer:
        settings: dict[str, Any] = {**protocol, **draw_fetching(self._world.chance)}
        return self._world.consumer(
            self._name,
            group=GROUP,
            topics=[self._source],
            enable_auto_commit=False,
            isolation_level="read_committed",
            session_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=1_000,
            max_poll_interval_ms=MAX_POLL_INTERVAL_MS,
            **settings,
        )

    async def _is_at_end(self, consumer: Consumer) -> bool:
        """Every partition of the topic is copied, by whichever member."""
        places = await consumer.partitions_for(self._source)
        ends = await consumer.end_offsets(places)
        committed = await consumer.committed(places)
        reached = {at: 0 if each is None else each.offset for at, each in committed.items()}
        reached |= {at: each.offset for at, each in consumer.positions().items()}
        return all(reached[at] >= end for at, end in ends.items())

    async def _copy(self, producer: Producer, consumer: Consumer, records: Sequence[Record]) -> None:
        self._attempts += 1
        transaction = Transaction(f"{self._name}/{self._life}/{self._attempts}")
        is_ending = False
        began_s = self._world.loop.time()
        try:
            async with producer.transaction():
                self._world.history.transactions.append(transaction)
                for record in records:
                    value = Value.decode(record.value)._replace(transaction=transaction.name)
                    transaction.values.append(value)
                    await producer.send(self._target, value.encode(), partition=record.partition)
                offsets: dict[TopicPartition, int] = {
                    record.topic_partition: record.offset + 1 for record in records
                }
                await producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
                is_ending = True
            transaction.outcome = Outcome.ACKNOWLEDGED
        except FAILURES:
            if not is_ending:
                transaction.outcome = Outcome.REFUSED  # it was never asked to commit
            raise
        finally:
            limit_s = (5 * BLOCK_MS + 2 * BLOCK_MS) / 1_000
            self._world.conduct.waited(self._name, "a transaction", began_s, limit_s)


async def copy(
    world: World, name: str, source: str, target: str, protocol: Settings, may_end: Callable[[], bool]
) -> None:
    """Copy until all records are copied. After any error, start again from the committed offsets."""
    life = 0
    while True:
        life += 1
        try:
            await Copier(world, name, source, target, life).copy_until(may_end, protocol)
        except FAILURES:
            await world.conduct.closed(name)
            await world.pause(1.0)
        else:
            await world.conduct.closed(name)
            return
