"""Trial of dead letters: a pipeline whose sink is no topic, with a query of its own for the letters.

Some records cannot be decoded, and some break the transforms. The product's own search condemns the latter,
and decides in which order their letters are written and noted; its names of batches decide what is written
already. Only Spark's part is played: batches, their plans and their commits. The driver dies between any two
steps, workers come too late, and brokers are killed. In the end every good record is in the sink once, and
every other one is a dead letter once.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress

from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.core import transaction_steps
from barnabas.client.core.steps import ClusterUnreachable
from barnabas.core.errors import KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.pipelines.spark.recovery.bisect_bad_records import Range, Trial, condemn, record_id
from barnabas.pipelines.spark.recovery.quarantine import letters_id
from pyspark_barnabas.writers.batch_names import batch_marker, last_committed_batch
from tests.chaos.history import ALL_REPLICAS, History, Value
from tests.simulation.cast import Part, Stage, Topic
from tests.simulation.clients import TRANSACTION_TIMEOUT_MS, Batches, World
from tests.simulation.final_reading import read_topic
from tests.simulation.handing_over import HandedOver
from tests.support.plain_consumer import Consumer

GOOD, UNREADABLE, POISONOUS = "good", "unreadable", "poisonous"
ROWS, LETTERS, QUARANTINE = "rows", "letters", "quarantine"
"""The two queries, and what the search writes."""


class DriverDied(Exception):
    """The process is gone; another one continues with what is on disk."""


class Letters(Part):
    SOURCE, SINK, DEAD = "lettered", "lettered-sink", "lettered-dead"
    ROUNDS = 8
    DIES, FAILS = 0.12, 0.15
    LIVES_MAX = 400

    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)
        self._history = History()
        self._written: list[Value] = []
        """Records of the source, by their offsets."""
        self._notes: list[Mapping[str, str]] = []
        """On disk, as the plans and the numbers of what is done."""
        self._plans: dict[str, list[int]] = {ROWS: [0], LETTERS: [0]}
        """Ends of the batches of a query, the first of which is empty."""
        self._done: dict[str, int] = {ROWS: 0, LETTERS: 0}
        self._is_last = False
        self._complaints: list[str] = []

    def topics(self) -> dict[str, Topic]:
        return {self.SOURCE: Topic(1), self.SINK: Topic(1), self.DEAD: Topic(1)}

    async def look(self, stage: Stage) -> None:
        world = stage.world(self.SOURCE, self._history)
        cluster = await world.open(self.SOURCE)
        batches = Batches(cluster, self.SOURCE, ALL_REPLICAS, world.clock.now_ms)
        batches.identify(*await cluster.run(transaction_steps.idempotent_producer(cluster.state)))
        for number in range(self.ROUNDS):
            for _ in range(self.chance.randint(1, 6)):
                kind = self.chance.choice((GOOD, GOOD, GOOD, UNREADABLE, POISONOUS))
                value = Value(kind, len(self._written))
                await batches.write(value, 0)
                self._written.append(value)
            if self.chance.random() < 0.3:
                machine = self.chance.choice(stage.machines)
                machine.kill()
                world.loop.later(self.chance.uniform(0.1, 5.0), machine.start)
            self._is_last = number == self.ROUNDS - 1
            await self._run(world)
        await stage.in_sync()
        for topic in (self.SINK, self.DEAD):
            await read_topic(cluster, topic, 1, self._history)

    async def _run(self, world: World) -> None:
        """Drivers, one after the other, until both queries have everything."""
        for _ in range(self.LIVES_MAX):
            with suppress(DriverDied, KafkaError, ClusterUnreachable):
                await self._live(world, await world.open(self.SOURCE))
            if all(self._plans[each][self._done[each]] == len(self._written) for each in (ROWS, LETTERS)):
                return
            await asyncio.sleep(0.2)
        self._complaints.append("not served: the pipeline makes no progress")

    async def _live(self, world: World, cluster: ClusterClient) -> None:
        """One process, until both queries have everything, or it fails."""
        noted: dict[str, str] = {}
        for each in self._notes:
            noted |= each
        for query in self.chance.sample((ROWS, LETTERS), 2):
            plan = self._plans[query]
            if self._done[query] == len(plan) - 1:
                plan.append(
                    self.chance.randint(plan[-1] + 1, len(self._written))
                    if self._has_more(plan)
                    else plan[-1]
                )
            self._may_die()
            number = self._done[query] + 1
            begin, end = plan[number - 1], plan[number]
            found = await self._read(cluster, begin, end)
            if query == LETTERS:
                bad = [
                    each
                    for at, each in found.items()
                    if each.producer == UNREADABLE and self._id(at) not in noted
                ]
                await self._write(world, cluster, LETTERS, LETTERS, number, self.DEAD, bad)
            else:
                rows = {
                    at: each
                    for at, each in found.items()
                    if each.producer != UNREADABLE and self._id(at) not in noted
                }
                if any(each.producer == POISONOUS for each in rows.values()):
                    await self._search(world, cluster, noted, rows, begin, end)
                    return
                await self._write(world, cluster, ROWS, ROWS, number, self.SINK, list(rows.values()))
            self._may_die()
            self._done[query] = number

    def _has_more(self, plan: Sequence[int]) -> bool:
        return plan[-1] < len(self._written)

    async def _search(
        self,
        world: World,
        cluster: ClusterClient,
        noted: Mapping[str, str],
        rows: Mapping[int, Value],
        begin: int,
        end: int,
    ) -> None:
        """The batch has failed. Trials fail by what they try, and now and then by something else."""
        handed = HandedOver(cluster)

        def attempt(ranges: Sequence[Range]) -> Trial | None:
            if self.chance.random() < self.FAILS:
                return Trial("failed to connect back", is_of_transforms=False, is_elsewhere=True)
            tried = [rows[at] for each in ranges for at in range(each.begin, each.end) if at in rows]
            hit = any(each.producer == POISONOUS for each in tried)
            return Trial("boom", is_of_transforms=True) if hit else None

        def write(found: Mapping[str, str]) -> None:
            letters = [self._written[int(each.rpartition("/")[2])] for each in sorted(found)]
            name = letters_id(ROWS, found)
            self._may_die()
            handed.wait_for(self._write(world, cluster, QUARANTINE, name, 0, self.DEAD, letters))
            self._may_die()

        def note(found: Mapping[str, str]) -> None:
            self._notes.append(dict(found))
            self._may_die()

        failed = [Range(self.SOURCE, 0, begin, end)]
        await handed.call(lambda: condemn(noted, failed, attempt, write=write, note=note))

    async def _write(
        self,
        world: World,
        cluster: ClusterClient,
        purpose: str,
        query_id: str,
        batch_id: int,
        topic: str,
        values: Sequence[Value],
    ) -> None:
        """A batch in one transaction, unless a transaction with its name was committed."""
        group = f"{self.SOURCE}-{purpose}"
        transaction = await cluster.run(transaction_steps.begin(cluster.state, group, TRANSACTION_TIMEOUT_MS))
        handed = HandedOver(cluster)
        last = await handed.call(lambda: last_committed_batch(handed, group, query_id))
        if last >= batch_id or not values:
            return
        place = TopicPartition(topic, 0)
        await cluster.run(transaction_steps.add_partitions(cluster.state, transaction, [place]))
        batches = Batches(cluster, topic, ALL_REPLICAS, world.clock.now_ms)
        batches.identify(transaction.producer_id, transaction.epoch)
        for value in values:
            await batches.write(value, 0, transaction.transactional_id)
        self._may_die()
        marker = batch_marker(query_id, batch_id)
        await cluster.run(
            transaction_steps.commit_offsets(cluster.state, transaction, group, {place: batch_id}, marker)
        )
        await cluster.run(transaction_steps.end(cluster.state, transaction, commit=True))
        self._may_die()

    async def _read(self, cluster: ClusterClient, begin: int, end: int) -> dict[int, Value]:
        found: dict[int, Value] = {}
        if begin == end:
            return found
        async with Consumer(cluster, self.SOURCE, {0: begin}) as consumer:
            while consumer.positions[0] < end:
                for _, record in await consumer.poll():
                    if begin <= record.offset < end:
                        found[record.offset] = Value.decode(bytes(record.value or b""))
        return found

    def _id(self, offset: int) -> str:
        return record_id(self.SOURCE, 0, offset)

    def _may_die(self) -> None:
        if self.chance.random() < self.DIES:
            raise DriverDied

    def complaints(self) -> list[str]:
        final = self._history.final_committed
        for topic, kinds in ((self.SINK, (GOOD,)), (self.DEAD, (UNREADABLE, POISONOUS))):
            seen = Counter(value for _, value in final[topic, 0])
            wanted = [value for value in self._written if value.producer in kinds]
            self._complaints += [
                f"lettered wrongly: {value} is {seen[value]} times in {topic}"
                for value in wanted
                if seen[value] != 1
            ]
            self._complaints += [
                f"lettered wrongly: {value} is in {topic}" for value in sorted(seen.keys() - set(wanted))
            ]
        return self._complaints[:5]
