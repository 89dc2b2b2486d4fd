"""A topic that an administrator changes all the time.

Its two replicas move between brokers and directories, its partitions become more, its segments become smaller
than their batches, and records are deleted from its start. Acknowledged records that were not deleted are
there. Deleted records stay deleted, with one exception: a broker may die before it has written the log start
offset to its checkpoint.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from barnabas.client.admin.reassignment import Reassignments
from barnabas.client.admin.topics_and_configs import TopicAdmin
from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.core import transaction_steps
from barnabas.client.core.steps import ClusterUnreachable, Steps, ask, raise_for
from barnabas.core.errors import KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.protocol.config_numbers import ResourceType
from barnabas.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from barnabas.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from tests.chaos.checker import complaints_about
from tests.chaos.history import ALL_REPLICAS, History, Outcome, Value, Write
from tests.simulation.cast import Client, Part, Stage, Topic
from tests.simulation.clients import REQUEST_TIMEOUT_MS, Batches, World
from tests.simulation.final_reading import read_topic
from tests.simulation.machine import DIRECTORIES
from tests.support.plain_consumer import list_offsets

TOPIC = "moving"
REPLICAS = 2
PARTITIONS_MAX = 3
SEGMENT_BYTES = (200, 600, 8_192)
LARGE_BYTES = 900
PAUSE_S = 6.0
EARLIEST = -2
MOVED_S = 60
WRITTEN_DOWN_S = 5.0
"""Ten times `log.flush.start.offset.checkpoint.interval.ms` of the machines: a disk may be slow."""


class Deletion(NamedTuple):
    partition: int
    before: int
    from_s: float
    to_s: float
    """A broker that dies between the two may forget it."""


class Moving(Part):
    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)
        self._history = History()
        self._partitions = 1
        self._deleted: list[Deletion] = []
        self._deaths_s: list[float] = []
        self._starts: dict[int, int] = {}
        self._stuck: list[str] = []

    def topics(self) -> dict[str, Topic]:
        return {TOPIC: Topic(1, REPLICAS)}

    def clients(self, stage: Stage) -> Iterator[Client]:
        yield "moving-writer", self._write(stage.world("moving-writer", self._history))
        yield "mover", self._move(stage.world("mover", self._history), stage.brokers)

    async def _write(self, world: World) -> None:
        name = "moving-writer"
        cluster = await world.open(name)
        batches = Batches(cluster, TOPIC, ALL_REPLICAS, world.clock.now_ms)
        is_identified = False
        number = 0
        while not world.is_over():
            partition = world.chance.randrange(self._partitions)
            write = Write(Value(name, number), TOPIC, partition, began_s=world.loop.time())
            # As JSON spaces say nothing.
            padding = b" " * (LARGE_BYTES if world.chance.random() < 0.1 else 0)
            number += 1
            try:
                if not is_identified:
                    batches.identify(*await cluster.run(transaction_steps.idempotent_producer(cluster.state)))
                    is_identified = True
                self._history.writes.append(write)
                offset = await batches.write_rows([(None, write.value.encode() + padding)], partition)
            except (KafkaError, ClusterUnreachable):
                is_identified = False
            else:
                write.answered_s = world.loop.time()
                write.outcome = Outcome.ACKNOWLEDGED
                write.offset = offset if offset >= 0 else None
            await world.pause(0.2)

    async def _move(self, world: World, brokers: int) -> None:
        cluster = await world.open("mover")
        while not world.is_over():
            await world.pause(PAUSE_S)
            with suppress(KafkaError, ClusterUnreachable):
                await self._act(world, cluster, brokers)

    async def _act(self, world: World, cluster: ClusterClient, brokers: int) -> None:
        chance = world.chance
        partition = chance.randrange(self._partitions)
        what = chance.random()
        if what < 0.2:
            await change_directory(world, cluster, TOPIC, partition)
        elif what < 0.5:
            target = chance.sample(range(1, brokers + 1), REPLICAS)
            await Reassignments(cluster).alter({TopicPartition(TOPIC, partition): target})
        elif what < 0.7:
            changes = {"segment.bytes": str(chance.choice(SEGMENT_BYTES))}
            await TopicAdmin(cluster).alter_configs(ResourceType.TOPIC, TOPIC, changes=changes)
        elif what < 0.8 and self._partitions < PARTITIONS_MAX:
            await TopicAdmin(cluster).add_partitions(TOPIC, self._partitions + 1)
            self._partitions += 1
        else:
            end = (await list_offsets(cluster, TOPIC, [partition], -1))[partition]
            before = chance.randrange(end + 1)
            asked_s = world.loop.time()
            await cluster.run_with_retries(lambda: delete_records(cluster, TOPIC, partition, before))
            self._deleted.append(Deletion(partition, before, asked_s, world.loop.time() + WRITTEN_DOWN_S))

    async def look(self, stage: Stage) -> None:
        cluster = await stage.world("moving-look", self._history).open("moving-look")
        await self._await_moves(cluster)
        self._deaths_s = [moment_s for machine in stage.machines for moment_s in machine.deaths_s]
        self._starts = await list_offsets(cluster, TOPIC, range(self._partitions), EARLIEST)
        await read_topic(cluster, TOPIC, self._partitions, self._history)

    async def _await_moves(self, cluster: ClusterClient) -> None:
        """All brokers are there, so every move comes to its end."""
        for _ in range(MOVED_S):
            under_way = await Reassignments(cluster).ongoing()
            if not under_way:
                return
            await asyncio.sleep(1.0)
        self._stuck = [f"stuck move: {place}, {move}" for place, move in sorted(under_way.items())]

    def complaints(self) -> list[str]:
        found = self._stuck + [
            f"deleted records are back: {TOPIC}-{each.partition} begins at {self._starts[each.partition]},"
            f" and was deleted to {each.before} at {each.from_s:.3f}"
            for each in self._deleted
            if self._starts[each.partition] < each.before
            and not any(each.from_s <= moment_s <= each.to_s for moment_s in self._deaths_s)
        ]
        starts = self._starts
        self._history.writes = [
            each
            for each in self._history.writes
            if each.offset is None or each.offset >= starts.get(each.partition, 0)
        ]
        return found + complaints_about(self._history)


async def change_directory(world: World, cluster: ClusterClient, name: str, partition: int) -> None:
    """One of the replicas goes to another disk of its broker, or stays where it is."""
    topic = await cluster.topic(name)
    partition %= len(topic.partitions)  # the last one may be too new for the broker that was asked
    broker = world.chance.choice(topic.partitions[partition].replicas)
    moved = AlterReplicaLogDirTopic(name=name, partitions=[partition])
    request = AlterReplicaLogDirsRequest(
        dirs=[AlterReplicaLogDir(path=world.chance.choice(DIRECTORIES), topics=[moved])]
    )
    await cluster.run(ask(broker, request, AlterReplicaLogDirsResponse))


def delete_records(cluster: ClusterClient, name: str, partition: int, before: int) -> Steps[None]:
    topic = yield from cluster.state.topic(name)
    request = DeleteRecordsRequest(
        topics=[
            DeleteRecordsTopic(
                name=name, partitions=[DeleteRecordsPartition(partition_index=partition, offset=before)]
            )
        ],
        timeout_ms=REQUEST_TIMEOUT_MS - 500,
    )
    leader = topic.partitions[partition].leader_id
    answer = yield from ask(leader, request, DeleteRecordsResponse)
    raise_for(answer.topics[0].partitions[0].error_code, None, f"deleting records of {name}")
