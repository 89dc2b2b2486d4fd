"""Trials of moves between the log directories of a broker: what a move may not lose, and not bring back.

Like `trials`, each comes last, when all is mended, and may break things by itself.
"""

from __future__ import annotations

import asyncio
import random
from functools import partial

from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.core.steps import ask
from barnabas.core.ids import TopicPartition
from barnabas.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from tests.chaos.checker import complaints_about
from tests.chaos.history import History
from tests.simulation.cast import Part, Stage, Topic
from tests.simulation.clients import World
from tests.simulation.compaction_trials import COMPACTED, Keyed, read_keys, wrong_keys
from tests.simulation.final_reading import read_topic
from tests.simulation.machine import DIRECTORIES, Machine
from tests.simulation.moving import EARLIEST, WRITTEN_DOWN_S, delete_records
from tests.simulation.storage_trials import SYNC_EACH, write_some
from tests.simulation.trials import SERVED_WITHIN_S, leader_of, state_of
from tests.support.plain_consumer import list_offsets

POLL_S = 0.002


def home_of(machine: Machine, topic: str) -> str | None:
    """The log directory that has the replica now, if the broker has opened it."""
    partition = machine.partitions.get(TopicPartition(topic, 0))
    return None if partition is None else partition.log.log_directory.path


async def begin_move(cluster: ClusterClient, machine: Machine, topic: str) -> str:
    """To the other log directory of its broker; returns which."""
    (target,) = (each for each in DIRECTORIES if each != home_of(machine, topic))
    moved = AlterReplicaLogDirTopic(name=topic, partitions=[0])
    request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=target, topics=[moved])])
    await cluster.run(ask(machine.number, request, AlterReplicaLogDirsResponse))
    return target


class Relocation(Part):
    """A replica moves to the other log directory of its broker: beside compaction, with its follower away,
    and with a crash in the moment in which it has moved."""

    TOPIC, KEYED, PAIR = "relocation", "relocation-keyed", "relocation-pair"
    KEYS = 5
    FILLER_BYTES, SMALL_BYTES = 28_000, 1_100
    BETWEEN = 90
    """Batches between a value and its tombstone. The copy syncs each of them, which takes the disk a while:
    the cleaner has the time for two passes meanwhile."""
    SLOW_S = 1.0
    PASS_S = 20.0

    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)
        self._history = History()
        self._complaints: list[str] = []

    def topics(self) -> dict[str, Topic]:
        single = {**SYNC_EACH, "min.insync.replicas": "1"}
        keyed = {**COMPACTED, "segment.bytes": "40000", "delete.retention.ms": "0"}
        keyed |= {"min.insync.replicas": "1", "flush.messages": "1000000"}  # the disk is slow for the copy
        return {
            self.TOPIC: Topic(1, replicas=1, configs={**single, "segment.bytes": "600"}),
            self.KEYED: Topic(1, replicas=1, configs=keyed),
            self.PAIR: Topic(1, replicas=2, configs={"min.insync.replicas": "1"}),
        }

    async def look(self, stage: Stage) -> None:
        world = stage.world(self.TOPIC, self._history)
        cluster = await world.open(self.TOPIC)
        await self._while_follower_is_away(stage, world, cluster)
        await self._beside_compaction(stage, world, cluster)
        await self._with_a_crash(stage, world, cluster)
        for topic in (self.TOPIC, self.PAIR):
            await read_topic(cluster, topic, 1, self._history)

    async def _while_follower_is_away(self, stage: Stage, world: World, cluster: ClusterClient) -> None:
        """It stands still, and is in sync: only the leader knows what is committed."""
        await write_some(world, cluster, self._history, self.PAIR, 4)
        leader, state = leader_of(stage, self.PAIR), state_of(stage, self.PAIR)
        assert state is not None
        others = [stage.machines[number - 1] for number in state.isr if number != leader.number]
        for other in others:
            other.pause()
        await self._move(cluster, leader, self.PAIR)
        await asyncio.sleep(1.0)
        for other in others:
            other.resume()

    async def _beside_compaction(self, stage: Stage, world: World, cluster: ClusterClient) -> None:
        """The copy has values of keys whose tombstones it has not come to yet."""
        keyed = Keyed(world, cluster, self.KEYED)
        await keyed.identify()
        keys = [f"key-{each}".encode() for each in range(self.KEYS)]
        machine = leader_of(stage, self.KEYED)
        await keyed.write([(key, b"value") for key in keys])
        for number in range(self.BETWEEN):
            await self._fill(keyed, 10 + number, self.SMALL_BYTES)  # each stays, as the last of its key
        await keyed.write([(key, None) for key in keys])
        for number in range(2):
            await self._fill(keyed, number)
        usual_s, machine.sync_s = machine.sync_s, self.SLOW_S
        target = await begin_move(cluster, machine, self.KEYED)
        for number in range(2):
            await asyncio.sleep(self.PASS_S)
            await self._fill(keyed, number)
        await asyncio.sleep(self.PASS_S)
        machine.sync_s = usual_s
        await self._await_move(machine, self.KEYED, target)
        for number in range(2):
            await asyncio.sleep(16.0)
            await self._fill(keyed, number)
        self._complaints += wrong_keys(self.KEYED, keyed.last, await read_keys(cluster, self.KEYED))

    async def _fill(self, keyed: Keyed, number: int, size_bytes: int = FILLER_BYTES) -> None:
        await keyed.write([(b"filler-%d" % number, b"%*d" % (size_bytes, number))])

    async def _with_a_crash(self, stage: Stage, world: World, cluster: ClusterClient) -> None:
        machine = leader_of(stage, self.TOPIC)
        deleted = 0
        for crash in (machine.kill, machine.cut_power, machine.kill):
            await write_some(world, cluster, self._history, self.TOPIC, self.chance.randint(4, 9))
            usual_s, machine.sync_s = machine.sync_s, 1.0
            end_offset = (await list_offsets(cluster, self.TOPIC, [0], -1))[0]
            target = await begin_move(cluster, machine, self.TOPIC)
            if crash == machine.kill:
                deleted = self.chance.randint(deleted, end_offset - 1)
                await cluster.run_with_retries(partial(delete_records, cluster, self.TOPIC, 0, deleted))
                if home_of(machine, self.TOPIC) == target:
                    await asyncio.sleep(WRITTEN_DOWN_S)  # as every deletion is from time to time
            await self._await_move(machine, self.TOPIC, target)
            crash()
            machine.sync_s = usual_s
            await asyncio.sleep(1.0)
            machine.start()
            await stage.in_sync()
            begins = (await list_offsets(cluster, self.TOPIC, [0], EARLIEST))[0]
            if begins < deleted:
                self._complaints.append(
                    f"deleted records are back: {self.TOPIC}-0 begins at {begins}, and was deleted to"
                    f" {deleted}"
                )
        self._history.writes = [
            each for each in self._history.writes if each.topic != self.TOPIC or (each.offset or 0) >= deleted
        ]

    async def _move(self, cluster: ClusterClient, machine: Machine, topic: str) -> None:
        await self._await_move(machine, topic, await begin_move(cluster, machine, topic))

    async def _await_move(self, machine: Machine, topic: str, target: str) -> None:
        """Until the moment in which the copy takes the place of the log."""
        try:
            async with asyncio.timeout(SERVED_WITHIN_S):
                while home_of(machine, topic) != target:  # noqa: ASYNC110 - the broker does not say
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            self._complaints.append(f"stuck move: {topic}-0 on {machine} to {target}")

    def complaints(self) -> list[str]:
        return self._complaints + complaints_about(self._history)
