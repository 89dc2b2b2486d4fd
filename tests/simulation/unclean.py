"""A topic that would rather lose records than wait: it must be served and consistent.

After an unclean election the replicas become equal to the leader's, and readers get no record twice.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress

from barnabas.client.admin.elections import ElectionType, elect_leaders
from barnabas.client.core.steps import ClusterUnreachable
from barnabas.core.errors import KafkaError
from barnabas.core.ids import TopicPartition
from tests.chaos.checker import duplicated
from tests.chaos.history import History
from tests.simulation import clients, judge
from tests.simulation.cast import Client, Part, Stage, Topic
from tests.simulation.clients import World
from tests.simulation.final_reading import read_topic

TOPIC = "unclean"
PARTITIONS = 1
PAUSE_S = 8.0


class Unclean(Part):
    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)
        self._history = History()
        self._differences: list[str] = []

    def topics(self) -> dict[str, Topic]:
        configs = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
        return {TOPIC: Topic(PARTITIONS, configs=configs)}

    def clients(self, stage: Stage) -> Iterator[Client]:
        name = "careless"
        yield name, clients.produce(stage.world(name, self._history), name, TOPIC, PARTITIONS, 1)
        yield "elector", self._elect(stage.world("elector", self._history))

    async def _elect(self, world: World) -> None:
        cluster = await world.open("elector")
        while not world.is_over():
            await world.pause(PAUSE_S)
            with suppress(KafkaError, ClusterUnreachable):
                await elect_leaders(cluster, ElectionType.UNCLEAN, [TopicPartition(TOPIC, 0)])

    async def look(self, stage: Stage) -> None:
        cluster = await stage.world("unclean-look", self._history).open("unclean-look")
        await read_topic(cluster, TOPIC, PARTITIONS, self._history)
        for partition in range(PARTITIONS):
            self._differences += judge.differing_replicas(stage.machines, TOPIC, partition)

    def complaints(self) -> list[str]:
        return [*self._differences, *duplicated(self._history)]
