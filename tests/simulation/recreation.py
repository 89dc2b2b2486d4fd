"""A topic that is deleted and created again under its name, while groups commit offsets for it.

Offsets of a previous topic mean nothing to the next one, and are gone at the end. Those of many groups do not
fit into one batch of `__consumer_offsets`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from contextlib import suppress

from barnabas.client.admin.groups import Groups
from barnabas.client.admin.topics_and_configs import TopicAdmin
from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.core.steps import ClusterUnreachable
from barnabas.core.errors import KafkaError, TopicAlreadyExists, UnknownTopicOrPartition
from barnabas.core.ids import TopicPartition
from barnabas.protocol.config_numbers import ResourceType
from tests.chaos.checker import offsets_of_deleted_topics
from tests.chaos.history import History, Life
from tests.simulation.cast import Client, Part, Stage
from tests.simulation.clients import World

TOPIC = "again"
PARTITIONS = 12
GROUPS = 4
PER_COMMIT = 6
OFFSETS_BATCH_BYTES = 1_024
PAUSE_S = 4.0
GONE_S = 60.0


class Recreation(Part):
    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)
        self._history = History()

    def clients(self, stage: Stage) -> Iterator[Client]:
        yield "recreator", self._recreate(stage.world("recreator", self._history))

    async def _recreate(self, world: World) -> None:
        cluster = await world.open("recreator")
        with suppress(KafkaError, ClusterUnreachable):
            changes = {"max.message.bytes": str(OFFSETS_BATCH_BYTES)}
            await TopicAdmin(cluster).alter_configs(ResourceType.TOPIC, "__consumer_offsets", changes=changes)
        lives = self._history.lives
        while not world.is_over():
            try:
                await self._make_again(cluster)
            except (KafkaError, ClusterUnreachable):
                await world.pause(PAUSE_S)
                continue
            for former in lives:
                former.is_over = True
            life = Life(TOPIC, len(lives))
            lives.append(life)
            for number in range(GROUPS):
                await self._commit(cluster, life, f"again-{life.number}-{number}")
            await world.pause(PAUSE_S)

    async def _make_again(self, cluster: ClusterClient) -> None:
        """Only a creation that succeeds says that the topic was gone."""
        admin = TopicAdmin(cluster)
        with suppress(UnknownTopicOrPartition):
            await admin.delete_topic(TOPIC)
        while True:
            try:
                await admin.create_topic(TOPIC, partitions=PARTITIONS, replication_factor=1, configs={})
            except TopicAlreadyExists:
                await asyncio.sleep(0.5)  # its deletion is under way
                with suppress(UnknownTopicOrPartition):
                    await admin.delete_topic(TOPIC)
            else:
                return

    async def _commit(self, cluster: ClusterClient, life: Life, group: str) -> None:
        try:
            for first in range(0, PARTITIONS, PER_COMMIT):
                wanted = {
                    TopicPartition(TOPIC, each): 1_000 + life.number
                    for each in range(first, first + PER_COMMIT)
                }
                await Groups(cluster).commit(group, wanted)
        except (KafkaError, ClusterUnreachable):
            return  # it may come to count in a later life, so nothing is said of this group
        life.groups.append(group)

    async def look(self, stage: Stage) -> None:
        world = stage.world("recreation-look", self._history)
        groups = Groups(await world.open("recreation-look"))
        left = [group for life in self._history.lives if life.is_over for group in life.groups]
        deadline_s = world.loop.time() + GONE_S
        while left:
            offsets = {group: await groups.offsets(group) for group in left}
            left = [group for group in left if offsets[group]]
            if left and world.loop.time() > deadline_s:
                self._history.final_offsets = {
                    group: {(place.topic, place.partition): at for place, at in offsets[group].items()}
                    for group in left
                }
                return
            if left:
                await asyncio.sleep(1.0)

    def complaints(self) -> list[str]:
        return list(offsets_of_deleted_topics(self._history))
