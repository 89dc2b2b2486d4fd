"""The exactly-once sink of pipelines: a driver, tasks, and attempts at tasks that die and run twice.

Each batch is a set of rows, divided among tasks by their output partition. The protocol is that of
`pyspark_barnabas.writers.sink` without Spark: who may write into the batch's transaction is decided by the
product's own `claims`, which offsets are committed by its `journal`, and the steps of a transaction are the
client's; only Spark's part is played here, and the copying of what was written beside the transaction. The
rows of a batch come to each attempt in another order, as they do out of a shuffle. Whatever happens, every
row of a committed batch is visible once; and when all is mended, the batch under way is committed.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.core import transaction_steps
from barnabas.client.core.steps import ClusterUnreachable
from barnabas.client.core.transaction_steps import Transaction
from barnabas.core.errors import KafkaError
from barnabas.core.ids import TopicPartition
from pyspark_barnabas.writers.attempts.claims import Claims
from pyspark_barnabas.writers.journal import known_offsets
from tests.chaos.history import ALL_REPLICAS, History, Value
from tests.simulation.cast import Client, Part, Stage, Topic
from tests.simulation.clients import TRANSACTION_TIMEOUT_MS, Batches, World
from tests.simulation.final_reading import read_topic
from tests.simulation.handing_over import HandedOver
from tests.support.plain_consumer import Consumer

TOPIC, SOURCE = "sunk", "sunk-source"
TASKS = 2
ROWS = 4
DIES, RUNS_TWICE = 0.25, 0.2
MARKER = "batch:"
PAUSE_S = 1.0


class AttemptDied(Exception):
    """The task's process is gone; the driver starts another attempt."""


@dataclass(slots=True)
class Written:
    """Report of an attempt at a task to the driver."""

    place: TopicPartition
    is_direct: bool
    rows: list[tuple[int, Value]] = field(default_factory=list)
    """Their offsets."""


class Attempt:
    """At one task of one batch."""

    def __init__(
        self, world: World, name: str, task: int, number: int, transaction: Transaction, rows: list[Value]
    ) -> None:
        self._world = world
        self._name = f"{name}-{task}-{number}"
        self._task = task
        self._number = number
        self._transaction = transaction
        self._rows = world.chance.sample(rows, len(rows))

    async def write(self, *, dies: bool) -> Written:
        cluster = await self._world.open(self._name)
        place = TopicPartition(TOPIC, self._task)
        handed = HandedOver(cluster)
        claims = Claims(handed, self._transaction, task=self._task, attempt=self._number)
        if await handed.call(lambda: claims.claim([place])):
            return await self._write_rows(cluster, self._transaction, Written(place, is_direct=True), dies)
        beside = await cluster.run(
            transaction_steps.begin(
                cluster.state,
                f"{self._transaction.transactional_id}.retry-{self._task}-{self._number}",
                TRANSACTION_TIMEOUT_MS,
            )
        )
        await cluster.run(transaction_steps.add_partitions(cluster.state, beside, [place]))
        written = await self._write_rows(cluster, beside, Written(place, is_direct=False), dies)
        await cluster.run(transaction_steps.end(cluster.state, beside, commit=False))
        return written

    async def _write_rows(
        self, cluster: ClusterClient, transaction: Transaction, written: Written, dies: bool
    ) -> Written:
        batches = Batches(cluster, TOPIC, ALL_REPLICAS, self._world.clock.now_ms)
        batches.identify(transaction.producer_id, transaction.epoch)
        last = self._world.chance.randrange(len(self._rows)) if dies else -1
        for index, row in enumerate(self._rows):
            if index == last:
                raise AttemptDied(self._name)
            offset = await batches.write(row, self._task, transaction.transactional_id)
            written.rows.append((offset, row))
        return written


class Driver:
    def __init__(self, world: World, name: str, cluster: ClusterClient) -> None:
        self._world = world
        self._name = name
        self._cluster = cluster

    async def last_committed(self) -> int:
        found = await self._cluster.run(transaction_steps.committed_metadata(self._cluster.state, self._name))
        return max(
            (int(each.removeprefix(MARKER)) for _, each in found.values() if each.startswith(MARKER)),
            default=-1,
        )

    async def run_batch(self, number: int, rows: Sequence[Value]) -> None:
        """Run the batch as Spark would; an error that makes Spark run it again is raised."""
        cluster = self._cluster
        transaction = await cluster.run(
            transaction_steps.begin(cluster.state, self._name, TRANSACTION_TIMEOUT_MS)
        )
        if await self.last_committed() >= number:
            return
        parts = await asyncio.gather(
            *(self._run_task(task, transaction, list(rows[task::TASKS])) for task in range(TASKS))
        )
        settled = await self._settled(transaction, parts)
        source = {TopicPartition(SOURCE, 0): number, TopicPartition(TOPIC, 0): number}
        handed = HandedOver(cluster)
        offsets = await handed.call(lambda: known_offsets(handed, source))
        await cluster.run(
            transaction_steps.commit_offsets(cluster.state, settled, self._name, offsets, f"{MARKER}{number}")
        )
        await cluster.run(transaction_steps.end(cluster.state, settled, commit=True))

    async def _run_task(self, task: int, transaction: Transaction, rows: list[Value]) -> Written:
        """The attempt that counts. A stage that is run again numbers its attempts from 0 again."""
        chance = self._world.chance
        if chance.random() < RUNS_TWICE:
            both = await asyncio.gather(
                *(
                    Attempt(self._world, self._name, task, 0, transaction, rows).write(dies=False)
                    for _ in range(2)
                ),
                return_exceptions=True,
            )
            for each in both[:: chance.choice((1, -1))]:
                if isinstance(each, Written):
                    return each
            raise KafkaError("both attempts failed")
        number = 0
        while True:
            dies = chance.random() < DIES
            try:
                return await Attempt(self._world, self._name, task, number, transaction, rows).write(
                    dies=dies
                )
            except AttemptDied:
                number += 1

    async def _settled(self, transaction: Transaction, parts: Sequence[Written]) -> Transaction:
        """An open transaction with the rows of `parts` and no others."""
        cluster = self._cluster
        claimed = {part.place for part in parts if part.is_direct}
        opened = await cluster.run(transaction_steps.open_partitions(cluster.state, transaction))
        if all(part.is_direct for part in parts) and opened == claimed:
            return transaction
        again = await cluster.run(
            transaction_steps.begin_again(cluster.state, transaction, TRANSACTION_TIMEOUT_MS)
        )
        places = [part.place for part in parts]
        await cluster.run(transaction_steps.add_partitions(cluster.state, again, places))
        batches = Batches(cluster, TOPIC, ALL_REPLICAS, self._world.clock.now_ms)
        batches.identify(again.producer_id, again.epoch)
        for part in parts:
            for row in await self._from_log(part):
                await batches.write(row, part.place.partition, again.transactional_id)
        return again

    async def _from_log(self, part: Written) -> list[Value]:
        wanted = {offset for offset, _ in part.rows}
        found: list[Value] = []
        partition = part.place.partition
        async with Consumer(self._cluster, TOPIC, {partition: min(wanted)}) as consumer:
            while consumer.positions[partition] <= max(wanted):
                found += [
                    Value.decode(bytes(record.value or b""))
                    for _, record in await consumer.poll()
                    if record.offset in wanted
                ]
        return found


class Sink(Part):
    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)
        self._history = History()
        self._has_source = chance.random() < 0.5
        self._committed: list[Value] = []

    def topics(self) -> dict[str, Topic]:
        sunk = {TOPIC: Topic(TASKS)}
        return {**sunk, SOURCE: Topic(1)} if self._has_source else sunk

    def clients(self, stage: Stage) -> Iterator[Client]:
        yield "sink", self._drive(stage.world("sink", self._history))

    async def _drive(self, world: World) -> None:
        name = "sink"
        driver = Driver(world, name, await world.open(name))
        number = 0
        while not world.is_over():
            rows = [Value(name, number * ROWS * TASKS + each) for each in range(ROWS * TASKS)]
            while True:
                try:
                    await driver.run_batch(number, rows)
                    break
                except (KafkaError, ClusterUnreachable):
                    await world.pause(PAUSE_S)
            self._committed += rows
            number += 1
            await world.pause(PAUSE_S)

    async def look(self, stage: Stage) -> None:
        cluster = await stage.world("sink-look", self._history).open("sink-look")
        await read_topic(cluster, TOPIC, TASKS, self._history)

    def complaints(self) -> list[str]:
        visible = Counter(value for rows in self._history.final_committed.values() for _, value in rows)
        return [
            f"sunk wrongly: {row} is visible {visible[row]} times"
            for row in self._committed
            if visible[row] != 1
        ]
