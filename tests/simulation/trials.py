"""Histories that chance hardly ever produces, each played from beginning to end.

Each comes from an earlier fault:
- two brokers that lead in turn and never fetch from each other;
- a broker without a file descriptor at the moment in which it has to create a log;
- a power failure between the deletion of a segment and the sync of its directory;
- a write that the end of its transaction overtakes;
- a transaction that ends while its partition has no leader.

A trial comes last, when everything is repaired and no other client works, so it may cause faults itself.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from barnabas.client.admin.topics_and_configs import TopicAdmin
from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.core.cluster_state import TRANSACTION
from barnabas.client.core.steps import ClusterUnreachable
from barnabas.client.core.transaction_steps import add_partitions, begin, end, idempotent_producer
from barnabas.cluster.znodes.layout import PartitionState, PartitionStateZnode, TopicZnode
from barnabas.core.errors import KafkaError
from barnabas.core.ids import TopicPartition
from tests.chaos.checker import complaints_about, duplicated
from tests.chaos.history import ALL_REPLICAS, History, Outcome, Transaction, Value, Write
from tests.simulation import judge
from tests.simulation.cast import Part, Stage, Topic
from tests.simulation.clients import TRANSACTION_TIMEOUT_MS, Batches, World
from tests.simulation.final_reading import read_topic
from tests.simulation.machine import Machine
from tests.simulation.moving import EARLIEST, delete_records
from tests.simulation.transactors import HASTY, PLAIN, Transactor
from tests.support.plain_consumer import list_offsets

RECORDS_MAX = 5
SERVED_WITHIN_S = 60.0
IDS = 8
"""Transactional ids to choose from, until one has a coordinator elsewhere."""
NOT_IN_SYNC_S = 6.0
"""Longer than `replica.lag.time.max.ms` of the machines."""
SEEN_AND_WRITTEN_DOWN_S = 40.0
"""Longer than `log.retention.check.interval.ms` of the machines, and a checkpoint."""


def state_of(stage: Stage, topic: str, partition: int = 0) -> PartitionState | None:
    """As the store has it."""
    node = stage.store.tree.nodes.get(PartitionStateZnode.path(topic, partition))
    return None if node is None else PartitionStateZnode.decode(node.data, 0)


def leader_of(stage: Stage, topic: str, partition: int = 0) -> Machine:
    state = state_of(stage, topic, partition)
    assert state is not None
    return stage.machines[state.leader - 1]


def assignment_of(stage: Stage, topic: str, partition: int = 0) -> tuple[int, ...]:
    """Replicas in their order; the first one is the preferred leader."""
    node = stage.store.tree.nodes[TopicZnode.path(topic)]
    return tuple(TopicZnode.decode(topic, node.data).assignment[partition].replicas)


def is_led(stage: Stage, topic: str) -> bool:
    state = state_of(stage, topic)
    return state is not None and state.leader >= 0


async def until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110 - what is waited for does not know who waits
        await asyncio.sleep(0.25)


class SeeSaw(Part):
    """Two replicas lead in turn while the other is away. Each has records, and epochs, that the other has
    never seen (KIP-279). When they meet, they become equal."""

    TOPIC = "see-saw"

    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)
        self._history = History()
        self._differences: list[str] = []
        self._written = 0

    def topics(self) -> dict[str, Topic]:
        configs = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
        return {self.TOPIC: Topic(1, replicas=2, configs=configs)}

    async def look(self, stage: Stage) -> None:
        world = stage.world(self.TOPIC, self._history)
        cluster = await world.open(self.TOPIC)
        state = state_of(stage, self.TOPIC)
        assert state is not None
        one = stage.machines[state.leader - 1]
        (other,) = (stage.machines[number - 1] for number in state.isr if number != state.leader)
        await self._write(world, cluster)
        await self._go(stage, other)
        await self._lead(stage, one, after=one)  # in an epoch that the other does not know
        await self._write(world, cluster)
        await self._lead(stage, other, after=one)
        await self._write(world, cluster)
        await self._lead(stage, one, after=other)
        if self.chance.random() < 0.5:  # else what it has ends in an epoch before the other's
            await self._write(world, cluster)
        other.start()
        await stage.in_sync()
        await read_topic(cluster, self.TOPIC, 1, self._history)
        self._differences += judge.differing_replicas(stage.machines, self.TOPIC, 0)

    async def _go(self, stage: Stage, machine: Machine) -> None:
        machine.kill()

        def is_noticed() -> bool:
            state = state_of(stage, self.TOPIC)
            return state is not None and machine.number not in state.isr

        await until(is_noticed)

    async def _lead(self, stage: Stage, machine: Machine, after: Machine) -> None:
        after.kill()
        before = state_of(stage, self.TOPIC)
        machine.start()

        def is_leader() -> bool:
            state = state_of(stage, self.TOPIC)
            return state != before and state is not None and state.leader == machine.number

        await until(is_leader)

    async def _write(self, world: World, cluster: ClusterClient) -> None:
        batches = Batches(cluster, self.TOPIC, 1, world.clock.now_ms)
        batches.identify(*await cluster.run(idempotent_producer(cluster.state)))
        for _ in range(self.chance.randint(1, RECORDS_MAX)):
            write = Write(Value(self.TOPIC, self._written), self.TOPIC, 0, acks=1)
            self._written += 1
            self._history.writes.append(write)
            await batches.write(write.value, 0)

    def complaints(self) -> list[str]:
        return [*self._differences, *duplicated(self._history)]


class Scarcity(Part):
    """A broker has no file descriptor when it has to create the log of a new topic, and none again at its
    first append after a start. It does both as soon as there are some."""

    TOPIC = "scarcity"
    PARTITIONS = 2

    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)
        self._unserved: list[str] = []
        self._written = 0

    async def look(self, stage: Stage) -> None:
        world = stage.world(self.TOPIC, History())
        cluster = await world.open(self.TOPIC)
        machine = self.chance.choice(stage.machines)
        machine.run_out_of_descriptors()
        await self._make(cluster, stage.brokers)
        await asyncio.sleep(self.chance.uniform(0.5, 3.0))
        machine.mend_disk()
        await self._make(cluster, stage.brokers)
        await self._await_sync(stage)
        await self._write(world, cluster)
        machine.kill()
        machine.start()
        await stage.in_sync()
        await self._await_sync(stage)
        machine.run_out_of_descriptors()
        await self._write(world, cluster)
        await asyncio.sleep(NOT_IN_SYNC_S)
        machine.mend_disk()
        await self._await_sync(stage)
        if self.chance.random() < 0.5:
            with suppress(KafkaError, ClusterUnreachable):
                await TopicAdmin(cluster).delete_topic(self.TOPIC)
            path = TopicZnode.path(self.TOPIC)
            await self._await("is not deleted", lambda: path not in stage.store.tree.nodes)

    async def _make(self, cluster: ClusterClient, replicas: int) -> None:
        with suppress(KafkaError, ClusterUnreachable):
            await TopicAdmin(cluster).create_topic(
                self.TOPIC, partitions=self.PARTITIONS, replication_factor=replicas, configs={}
            )

    async def _write(self, world: World, cluster: ClusterClient) -> None:
        """As far as it can be done: their leaders may have no descriptors either."""
        for partition in range(self.PARTITIONS):
            with suppress(KafkaError, ClusterUnreachable, TimeoutError):
                async with asyncio.timeout(NOT_IN_SYNC_S):
                    batches = Batches(cluster, self.TOPIC, 1, world.clock.now_ms)
                    batches.identify(*await cluster.run(idempotent_producer(cluster.state)))
                    self._written += 1
                    await batches.write(Value(self.TOPIC, self._written), partition)

    async def _await_sync(self, stage: Stage) -> None:
        await self._await("is not in sync", lambda: self._is_in_sync(stage))

    def _is_in_sync(self, stage: Stage) -> bool:
        states = [state_of(stage, self.TOPIC, each) for each in range(self.PARTITIONS)]
        return all(
            state is not None and state.leader >= 0 and len(state.isr) == stage.brokers for state in states
        )

    async def _await(self, complaint: str, holds: Callable[[], bool]) -> None:
        try:
            async with asyncio.timeout(SERVED_WITHIN_S):
                await until(holds)
        except TimeoutError:
            self._unserved.append(f"not served: {self.TOPIC} {complaint} within {SERVED_WITHIN_S:.0f} s")

    def complaints(self) -> list[str]:
        return self._unserved


class Deletion(Part):
    """Records are deleted up to where a segment begins, and the power is cut when their segments are gone,
    though perhaps not from the disk: what was deleted stays so."""

    TOPIC = "deletion"
    SEGMENT_BYTES = 200
    """A batch, and not two."""
    RECORDS = 8

    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)
        self._returned: list[str] = []

    def topics(self) -> dict[str, Topic]:
        configs = {"segment.bytes": str(self.SEGMENT_BYTES), "min.insync.replicas": "1"}
        return {self.TOPIC: Topic(1, replicas=1, configs=configs)}

    async def look(self, stage: Stage) -> None:
        world = stage.world(self.TOPIC, History())
        cluster = await world.open(self.TOPIC)
        batches = Batches(cluster, self.TOPIC, 1, world.clock.now_ms)
        batches.identify(*await cluster.run(idempotent_producer(cluster.state)))
        for number in range(self.RECORDS):
            await batches.write(Value(self.TOPIC, number), 0)
        before = self.chance.randint(1, self.RECORDS - 1)
        await cluster.run_with_retries(lambda: delete_records(cluster, self.TOPIC, 0, before))
        await asyncio.sleep(SEEN_AND_WRITTEN_DOWN_S)
        machine = leader_of(stage, self.TOPIC)
        machine.cut_power()
        await asyncio.sleep(1.0)
        machine.start()
        await stage.in_sync()
        begins = (await list_offsets(cluster, self.TOPIC, [0], EARLIEST))[0]
        if begins < before:
            self._returned.append(
                f"deleted records are back: {self.TOPIC}-0 begins at {begins}, and was deleted to {before}"
            )

    def complaints(self) -> list[str]:
        return self._returned


class Overtaking(Part):
    """The way from a coordinator to a leader is slow: its yes to a write arrives after the marker that ends
    the transaction."""

    TOPIC = "overtaking"
    ROUNDS = 12
    SLOW_S = 1.5

    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)
        self._history = History()

    def topics(self) -> dict[str, Topic]:
        return {self.TOPIC: Topic(1)}

    async def look(self, stage: Stage) -> None:
        world = stage.world(self.TOPIC, self._history)
        cluster = await world.open(self.TOPIC)
        leader = leader_of(stage, self.TOPIC)
        found = await id_coordinated_elsewhere(stage, cluster, self.TOPIC, leader)
        if found is None:
            return
        transactional_id, coordinator = found
        transactor = Transactor(world, self.TOPIC, transactional_id, self.TOPIC, 1, cluster)
        way = (coordinator.host, leader.host)
        for _ in range(self.ROUNDS):
            stage.network.slow_links[way] = self.SLOW_S
            await transactor.one(HASTY)
            await asyncio.sleep(self.SLOW_S)
            del stage.network.slow_links[way]
            await transactor.one(PLAIN)
        await read_topic(cluster, self.TOPIC, 1, self._history)

    def complaints(self) -> list[str]:
        return complaints_about(self._history)


class Orphan(Part):
    """A transaction ends while its partition has no leader. The marker is written when its broker is back."""

    TOPIC = "orphan"

    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)
        self._history = History()

    def topics(self) -> dict[str, Topic]:
        return {self.TOPIC: Topic(1, replicas=1, configs={"min.insync.replicas": "1"})}

    async def look(self, stage: Stage) -> None:
        world = stage.world(self.TOPIC, self._history)
        cluster = await world.open(self.TOPIC)
        leader = leader_of(stage, self.TOPIC)
        found = await id_coordinated_elsewhere(stage, cluster, self.TOPIC, leader)
        if found is None:
            return
        transactional_id, _ = found
        begun = await cluster.run(begin(cluster.state, transactional_id, TRANSACTION_TIMEOUT_MS))
        await cluster.run(add_partitions(cluster.state, begun, [TopicPartition(self.TOPIC, 0)]))
        batches = Batches(cluster, self.TOPIC, ALL_REPLICAS, world.clock.now_ms)
        batches.identify(begun.producer_id, begun.epoch)
        value = Value(self.TOPIC, 0, transactional_id)
        self._history.transactions.append(transaction := Transaction(transactional_id, [value]))
        await batches.write(value, 0, transactional_id)
        leader.kill()
        await until(lambda: not is_led(stage, self.TOPIC))
        commit = self.chance.random() < 0.5
        with suppress(KafkaError, ClusterUnreachable):
            await cluster.run(end(cluster.state, begun, commit=commit))
            transaction.outcome = Outcome.ACKNOWLEDGED if commit else Outcome.REFUSED
        leader.start()
        await stage.in_sync()
        await read_topic(cluster, self.TOPIC, 1, self._history)

    def complaints(self) -> list[str]:
        return complaints_about(self._history)


async def id_coordinated_elsewhere(
    stage: Stage, cluster: ClusterClient, name: str, leader: Machine
) -> tuple[str, Machine] | None:
    """A transactional id whose coordinator is not the leader of what it writes to, if there is one."""
    for number in range(IDS):
        transactional_id = f"{name}-{number}"
        finding = partial(cluster.state.coordinator, transactional_id, TRANSACTION)
        found = await cluster.run_with_retries(finding)
        if found != leader.number:
            return transactional_id, stage.machines[found - 1]
    return None
