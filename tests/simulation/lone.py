"""A topic with one replica per partition, of which every acknowledged record is on disk.

No other broker has the records of such a partition. So a log that recovery truncates too far, a flush that
was not awaited or a forgotten producer shows at once. A follower would be brought up to date by its leader.
At the end, when nothing else happens, each machine loses its power right after it acknowledged a write. While
its broker is away the partition has no leader, so a transaction over it is decided before its marker can be
written.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator

from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.core import transaction_steps
from barnabas.core.ids import TopicPartition
from barnabas.replication.partition.partition import Partition
from tests.chaos.checker import complaints_about
from tests.chaos.history import ALL_REPLICAS, History, Outcome, Value, Write
from tests.simulation import clients
from tests.simulation.cast import Client, Part, Stage, Topic
from tests.simulation.clients import Batches
from tests.simulation.final_reading import read_topic
from tests.simulation.machine import Machine
from tests.simulation.transactors import transact

TOPIC = "lone"
PARTITIONS = 3
SEGMENT_BYTES = 1_024
BETRAYED_MAX = 12
"""More than a segment holds."""
SLOW_S = 0.5


class Lone(Part):
    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)
        self.history = History()

    def topics(self) -> dict[str, Topic]:
        configs = {
            "flush.messages": "1",
            "min.insync.replicas": "1",
            "segment.bytes": str(SEGMENT_BYTES),
        }
        return {TOPIC: Topic(PARTITIONS, replicas=1, configs=configs)}

    def clients(self, stage: Stage) -> Iterator[Client]:
        history = self.history
        for name in ("lone-producer-1", "lone-producer-2"):
            yield name, clients.produce(stage.world(name, history), name, TOPIC, PARTITIONS, ALL_REPLICAS)
        yield (
            "lone-transactor",
            transact(stage.world("lone-transactor", history), "lone-transactor", TOPIC, PARTITIONS),
        )

    async def look(self, stage: Stage) -> None:
        cluster = await stage.world("lone-look", self.history).open("lone-look")
        for machine in stage.machines:
            await self._betray(stage, cluster, machine)
        await read_topic(cluster, TOPIC, PARTITIONS, self.history)

    async def _betray(self, stage: Stage, cluster: ClusterClient, machine: Machine) -> None:
        """Take the power from a machine in the moment in which it has acknowledged a write."""
        led = [place.partition for place, each in machine.partitions.items() if _is_led(place, each)]
        if not led:
            return
        name = f"betrayed-{machine.number}"
        world = stage.world(name, self.history)
        batches = Batches(cluster, TOPIC, ALL_REPLICAS, world.clock.now_ms)
        batches.identify(*await cluster.run(transaction_steps.idempotent_producer(cluster.state)))
        usual_s, machine.sync_s = machine.sync_s, SLOW_S  # what was not awaited is far from done
        for number in range(world.chance.randint(1, BETRAYED_MAX)):
            write = Write(Value(name, number), TOPIC, led[0])
            self.history.writes.append(write)
            write.offset = await batches.write(write.value, led[0])
            write.outcome = Outcome.ACKNOWLEDGED
        machine.cut_power()
        machine.sync_s = usual_s
        await asyncio.sleep(1.0)
        machine.start()
        await stage.in_sync()

    def complaints(self) -> list[str]:
        return complaints_about(self.history)


def _is_led(place: TopicPartition, partition: Partition) -> bool:
    return place.topic == TOPIC and partition.leadership.is_leader
