"""Copies a topic to another exactly once: records and the offsets they came from are one transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.aio.consumer import Consumer, Fetched, list_offsets
from barnabas.client.core import transaction_steps
from barnabas.client.core.steps import ClusterUnreachable
from barnabas.core.errors import KafkaError
from barnabas.core.ids import TopicPartition
from tests.chaos.history import ALL_REPLICAS, Outcome, Transaction, Value
from tests.simulation.clients import TRANSACTION_TIMEOUT_MS, Batches, World

LATEST = -1
COMMITTED_ONLY = 1
RECORDS_MAX = 20
PAUSE_S = 4.0


class Copier:
    def __init__(
        self, world: World, name: str, source: str, target: str, partitions: int, cluster: ClusterClient
    ) -> None:
        self._world = world
        self._name = name
        self._source = source
        self._target = target
        self._partitions = range(partitions)
        self._cluster = cluster
        self._batches = Batches(cluster, target, ALL_REPLICAS, world.clock.now_ms)
        self._attempts = 0

    async def copy_until(self, may_end: Callable[[], bool]) -> None:
        """Copy from the committed offsets to the end; errors that need a new start are raised."""
        places = [TopicPartition(self._source, number) for number in self._partitions]
        committed = await self._cluster.run(
            transaction_steps.committed_metadata(self._cluster.state, self._name, places)
        )
        positions = {
            number: committed.get(TopicPartition(self._source, number), (0, ""))[0]
            for number in self._partitions
        }
        async with Consumer(self._cluster, self._source, positions, read_committed=True) as consumer:
            while True:
                is_last = may_end()
                records = await consumer.poll()
                if records:
                    for start in range(0, len(records), RECORDS_MAX):
                        await self._copy(records[start : start + RECORDS_MAX])
                    await self._world.pause(PAUSE_S)
                elif is_last and await self._is_at_end(consumer):
                    return

    async def _is_at_end(self, consumer: Consumer) -> bool:
        ends = await list_offsets(
            self._cluster, self._source, self._partitions, LATEST, isolation_level=COMMITTED_ONLY
        )
        return all(consumer.positions[number] >= ends[number] for number in self._partitions)

    async def _copy(self, records: Sequence[Fetched]) -> None:
        self._attempts += 1
        transaction = Transaction(f"{self._name}/{self._attempts}")
        cluster, state = self._cluster, self._cluster.state
        txn = await cluster.run(transaction_steps.begin(state, self._name, TRANSACTION_TIMEOUT_MS))
        self._world.history.transactions.append(transaction)
        self._batches.identify(txn.producer_id, txn.epoch)
        is_ending = False
        try:
            places = [TopicPartition(self._target, number) for number in self._partitions]
            await cluster.run(transaction_steps.add_partitions(state, txn, places))
            offsets: dict[TopicPartition, int] = {}
            for partition, record in records:
                read = Value.decode(bytes(record.value or b""))
                value = read._replace(transaction=transaction.name)
                transaction.values.append(value)
                await self._batches.write(value, partition, self._name)
                offsets[TopicPartition(self._source, partition)] = record.offset + 1
            await cluster.run(transaction_steps.commit_offsets(state, txn, self._name, offsets, ""))
            is_ending = True
            await cluster.run(transaction_steps.end(state, txn, commit=True))
            transaction.outcome = Outcome.ACKNOWLEDGED
        except (KafkaError, ClusterUnreachable):
            if not is_ending:
                transaction.outcome = Outcome.REFUSED  # it was never asked to commit
            raise


async def copy(
    world: World, name: str, source: str, target: str, partitions: int, may_end: Callable[[], bool]
) -> None:
    """Copy until all records are copied. After any error, start again from the committed offsets."""
    cluster = await world.open(name)
    copier = Copier(world, name, source, target, partitions, cluster)
    while True:
        try:
            await copier.copy_until(may_end)
        except (KafkaError, ClusterUnreachable):
            await world.pause(1.0)
        else:
            return
