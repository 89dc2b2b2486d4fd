"""Trials of what a broker keeps: histories of disks and power that chance hardly ever brings about.

Like `trials`, each comes last, when all is mended, and may break things by itself.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress

from barnabas.client.admin.reassignment import Reassignments
from barnabas.client.admin.topics_and_configs import TopicAdmin
from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.core.transaction_steps import add_partitions, begin, end, idempotent_producer
from barnabas.core.ids import TopicPartition
from barnabas.protocol.config_numbers import ResourceType
from tests.chaos.checker import complaints_about
from tests.chaos.history import ALL_REPLICAS, History, Outcome, Value, Write
from tests.simulation.cast import Part, Stage, Topic
from tests.simulation.clients import TRANSACTION_TIMEOUT_MS, Batches, World
from tests.simulation.final_reading import COMMITTED_ONLY, LATEST, read_topic
from tests.simulation.machine import Machine
from tests.simulation.trials import NOT_IN_SYNC_S, SERVED_WITHIN_S, leader_of, state_of, until
from tests.support.plain_consumer import Consumer, list_offsets

RECORDS_MAX = 8
SLOW_S = 3.0
SYNC_EACH = {"flush.messages": "1"}


async def write_some(world: World, cluster: ClusterClient, history: History, topic: str, count: int) -> None:
    """Acknowledged by all, and noted."""
    batches = Batches(cluster, topic, ALL_REPLICAS, world.clock.now_ms)
    batches.identify(*await cluster.run(idempotent_producer(cluster.state)))
    for _ in range(count):
        write = Write(Value(topic, len(history.writes)), topic, 0)
        history.writes.append(write)
        write.offset = await batches.write(write.value, 0)
        write.outcome = Outcome.ACKNOWLEDGED


class Blackout(Part):
    """Every machine loses its power in the moment in which a write is acknowledged. The topic syncs each
    record, so every in-sync replica has it on disk."""

    TOPIC = "blackout"
    ROUNDS = 2

    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)
        self._history = History()

    def topics(self) -> dict[str, Topic]:
        return {self.TOPIC: Topic(1, configs=SYNC_EACH)}

    async def look(self, stage: Stage) -> None:
        world = stage.world(self.TOPIC, self._history)
        cluster = await world.open(self.TOPIC)
        for _ in range(self.ROUNDS):
            usual_s = stage.machines[0].sync_s
            for machine in stage.machines:
                machine.sync_s = self.chance.choice((usual_s, 0.3, 1.0))
            await write_some(world, cluster, self._history, self.TOPIC, self.chance.randint(1, RECORDS_MAX))
            for machine in stage.machines:
                machine.cut_power()
                machine.sync_s = usual_s
            await asyncio.sleep(1.0)
            for machine in stage.machines:
                machine.start()
            await stage.in_sync()
        await read_topic(cluster, self.TOPIC, 1, self._history)

    def complaints(self) -> list[str]:
        return complaints_about(self._history)


class Retry(Part):
    """A broker dies while it syncs a batch, which the kernel has. The producer sends the batch again, it is
    acknowledged as written already, and then the power goes."""

    TOPIC = "retry"
    ROUNDS = 3

    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)
        self._history = History()

    def topics(self) -> dict[str, Topic]:
        return {self.TOPIC: Topic(1, replicas=1, configs={**SYNC_EACH, "min.insync.replicas": "1"})}

    async def look(self, stage: Stage) -> None:
        world = stage.world(self.TOPIC, self._history)
        cluster = await world.open(self.TOPIC)
        for number in range(self.ROUNDS):
            machine = leader_of(stage, self.TOPIC)
            batches = Batches(cluster, self.TOPIC, ALL_REPLICAS, world.clock.now_ms)
            batches.identify(*await cluster.run(idempotent_producer(cluster.state)))
            usual_s, machine.sync_s = machine.sync_s, SLOW_S
            write = Write(Value(self.TOPIC, number), self.TOPIC, 0)
            self._history.writes.append(write)
            writing = asyncio.create_task(batches.write(write.value, 0))
            await asyncio.sleep(self.chance.uniform(0.05, 0.5))
            machine.kill()
            machine.sync_s = usual_s
            machine.start()
            write.offset = await writing
            write.outcome = Outcome.ACKNOWLEDGED
            machine.cut_power()
            await asyncio.sleep(1.0)
            machine.start()
            await stage.in_sync()
        await read_topic(cluster, self.TOPIC, 1, self._history)

    def complaints(self) -> list[str]:
        return complaints_about(self._history)


class Sector(Part):
    """The log of one topic cannot be read on its leader, while a follower needs it. The other topic that the
    two brokers share is replicated nevertheless."""

    TOPIC = "sector"
    SPARED = "spared"
    BOTH = (TOPIC, SPARED)

    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)
        self._history = History()
        self._unserved: list[str] = []

    def topics(self) -> dict[str, Topic]:
        return {topic: Topic(1, replicas=2) for topic in self.BOTH}

    async def look(self, stage: Stage) -> None:
        world = stage.world(self.TOPIC, self._history)
        cluster = await world.open(self.TOPIC)
        pair = self.chance.sample(range(1, stage.brokers + 1), 2)
        places = [TopicPartition(topic, 0) for topic in self.BOTH]
        await Reassignments(cluster).alter(dict.fromkeys(places, pair))
        await self._await_pair(stage, pair)
        for topic in self.BOTH:
            await write_some(world, cluster, self._history, topic, RECORDS_MAX)
        leader = leader_of(stage, self.TOPIC)
        (follower,) = (stage.machines[number - 1] for number in pair if number != leader.number)
        if leader_of(stage, self.SPARED) is leader:
            await self._break(stage, world, cluster, leader, follower)
        for topic in self.BOTH:
            await read_topic(cluster, topic, 1, self._history)

    async def _break(
        self, stage: Stage, world: World, cluster: ClusterClient, leader: Machine, follower: Machine
    ) -> None:
        follower.kill()
        await asyncio.sleep(NOT_IN_SYNC_S)
        await self._write_to_leader(world, cluster)
        leader.make_unreadable(f"{self.TOPIC}-0")
        follower.start()
        is_alive = asyncio.create_task(write_some(world, cluster, self._history, self.SPARED, 1))
        done, _ = await asyncio.wait((is_alive,), timeout=SERVED_WITHIN_S)
        if not done:
            self._unserved.append(
                f"not served: {self.SPARED}-0 is not replicated within {SERVED_WITHIN_S:.0f} s,"
                f" as {self.TOPIC}-0 cannot be read on {leader}"
            )
            is_alive.cancel()
        leader.mend_disk()
        leader.kill()
        leader.start()
        await stage.in_sync()

    async def _await_pair(self, stage: Stage, pair: list[int]) -> None:
        def is_there() -> bool:
            states = [state_of(stage, topic) for topic in self.BOTH]
            return all(each is not None and set(each.isr) == set(pair) for each in states)

        await until(is_there)
        await asyncio.sleep(NOT_IN_SYNC_S)

    async def _write_to_leader(self, world: World, cluster: ClusterClient) -> None:
        """Records that the follower has to read."""
        for topic in self.BOTH:
            batches = Batches(cluster, topic, 1, world.clock.now_ms)
            batches.identify(*await cluster.run(idempotent_producer(cluster.state)))
            await batches.write(Value(f"{topic}-alone", 0), 0)

    def complaints(self) -> list[str]:
        return self._unserved + complaints_about(self._history)


class Lowered(Part):
    """A replica is away, and records wait below the high watermark for `min.insync.replicas`. The
    administrator lowers it: readers get the records without another write."""

    TOPIC = "lowered"

    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)
        self._unserved: list[str] = []

    def topics(self) -> dict[str, Topic]:
        return {self.TOPIC: Topic(1, replicas=2, configs={"min.insync.replicas": "2"})}

    async def look(self, stage: Stage) -> None:
        world = stage.world(self.TOPIC, History())
        cluster = await world.open(self.TOPIC)
        leader = leader_of(stage, self.TOPIC)
        state = state_of(stage, self.TOPIC)
        assert state is not None
        (follower,) = (stage.machines[number - 1] for number in state.isr if number != leader.number)
        follower.kill()

        def is_alone() -> bool:
            now = state_of(stage, self.TOPIC)
            return now is not None and now.isr == (leader.number,)

        await until(is_alone)
        batches = Batches(cluster, self.TOPIC, 1, world.clock.now_ms)
        batches.identify(*await cluster.run(idempotent_producer(cluster.state)))
        await batches.write(Value(self.TOPIC, 0), 0)
        await TopicAdmin(cluster).alter_configs(
            ResourceType.TOPIC, self.TOPIC, changes={"min.insync.replicas": "1"}
        )
        with suppress(TimeoutError):
            async with asyncio.timeout(SERVED_WITHIN_S), Consumer(cluster, self.TOPIC, {0: 0}) as consumer:
                while not await consumer.poll():
                    pass
                follower.start()
                return
        self._unserved.append(
            f"not served: {self.TOPIC}-0 shows nothing within {SERVED_WITHIN_S:.0f} s after its"
            " min.insync.replicas was lowered"
        )
        follower.start()

    def complaints(self) -> list[str]:
        return self._unserved


class Rot(Part):
    """A bit of the embedded store's log changes while its broker is away. The broker repairs it or refuses to
    start; it never goes on without what was acknowledged behind it."""

    TOPIC = "rot"
    REFUSES_S = 10.0

    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)
        self._complaints: list[str] = []

    async def look(self, stage: Stage) -> None:
        (machine,) = stage.machines
        world = stage.world(self.TOPIC, History())
        cluster = await world.open(self.TOPIC)
        early = f"{self.TOPIC}-early"
        await TopicAdmin(cluster).create_topic(early, partitions=1, replication_factor=1, configs={})
        used, _ = await cluster.run(idempotent_producer(cluster.state))
        machine.kill()
        place = machine.rot(self.chance)
        machine.start()
        with suppress(TimeoutError):
            async with asyncio.timeout(self.REFUSES_S):
                await until(lambda: machine.is_serving)
        if not machine.is_serving:
            machine.kill()
            machine.undo_rot(place)
            machine.start()
        await stage.in_sync()
        cluster = await world.open(self.TOPIC)
        if early not in [topic.name for topic in await TopicAdmin(cluster).list_topics()]:
            self._complaints.append(f"lost topic: {early} was acknowledged and is gone")
        again, _ = await cluster.run(idempotent_producer(cluster.state))
        if again <= used:
            self._complaints.append(f"producer id given twice: {again} after {used}")

    def complaints(self) -> list[str]:
        return self._complaints


class Backlog(Part):
    """Compaction of many keys at once, more than the map holds, in transactions of which half abort: each
    pass ends somewhere in the middle of the log."""

    TOPIC = "backlog"
    KEYS = 60
    ROUNDS = 6
    PER_TRANSACTION = 12
    COMPACTED_S = 25.0

    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)
        self._last: dict[bytes, bytes] = {}
        self._seen: dict[bytes, bytes] = {}
        self._aborted: set[bytes] = set()
        self._complaints: list[str] = []
        self._written = 0

    def topics(self) -> dict[str, Topic]:
        configs = {"segment.bytes": "5000", "min.cleanable.dirty.ratio": "0.01", "cleanup.policy": "delete"}
        return {self.TOPIC: Topic(1, configs=configs)}

    async def look(self, stage: Stage) -> None:
        world = stage.world(self.TOPIC, History())
        cluster = await world.open(self.TOPIC)
        for _ in range(self.ROUNDS):
            keys = [f"key-{each}".encode() for each in self.chance.sample(range(self.KEYS), self.KEYS)]
            for first in range(0, self.KEYS, self.PER_TRANSACTION):
                await self._transact(world, cluster, keys[first : first + self.PER_TRANSACTION])
        change = {"cleanup.policy": "compact"}
        await TopicAdmin(cluster).alter_configs(ResourceType.TOPIC, self.TOPIC, changes=change)
        await asyncio.sleep(self.COMPACTED_S)
        async with Consumer(cluster, self.TOPIC, {0: 0}, read_committed=True) as consumer:
            ends = await list_offsets(cluster, self.TOPIC, [0], LATEST, isolation_level=COMMITTED_ONLY)
            while consumer.positions[0] < ends[0]:
                for _, record in await consumer.poll():
                    self._take(bytes(record.key or b""), bytes(record.value or b""))
        for key, value in sorted(self._last.items()):
            if self._seen.get(key) != value:
                self._complaints.append(
                    f"compacted away: of {key!r} {self.TOPIC}-0 shows {self._seen.get(key)!r},"
                    f" and {value!r} was committed last"
                )

    def _take(self, key: bytes, value: bytes) -> None:
        if value in self._aborted:
            self._complaints.append(f"aborted read: {self.TOPIC}-0 shows {value!r} of {key!r}")
        self._seen[key] = value

    async def _transact(self, world: World, cluster: ClusterClient, keys: list[bytes]) -> None:
        commit = self.chance.random() < 0.5
        txn = await cluster.run(begin(cluster.state, self.TOPIC, TRANSACTION_TIMEOUT_MS))
        await cluster.run(add_partitions(cluster.state, txn, [TopicPartition(self.TOPIC, 0)]))
        batches = Batches(cluster, self.TOPIC, ALL_REPLICAS, world.clock.now_ms)
        batches.identify(txn.producer_id, txn.epoch)
        values = {}
        for key in keys:
            self._written += 1
            values[key] = str(self._written).encode()
        half = len(keys) // 2
        for part in (keys[:half], keys[half:]):
            await batches.write_rows([(key, values[key]) for key in part], 0, txn.transactional_id)
        await cluster.run(end(cluster.state, txn, commit=commit))
        if commit:
            self._last.update(values)
        else:
            self._aborted.update(values.values())

    def complaints(self) -> list[str]:
        return self._complaints[:5]
