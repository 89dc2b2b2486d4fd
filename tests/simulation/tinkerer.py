"""An administrator who changes the settings of topics in use.

Every change keeps the promises of the topic: what is acknowledged with acks=all by the in-sync replicas of
that moment stays. `min.insync.replicas` goes down and up again, syncs come and go, segments become small. The
trace tells each change, since a promise is judged by the settings of its moment.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Sequence
from contextlib import suppress

from barnabas.client.admin.topics_and_configs import TopicAdmin
from barnabas.client.core.steps import ClusterUnreachable
from barnabas.core.errors import KafkaError
from barnabas.protocol.config_numbers import ResourceType
from tests.chaos.history import History
from tests.simulation.cast import Client, Part, Stage
from tests.simulation.clients import World
from tests.simulation.trace import Trace

PAUSE_S = 8.0
PAUSE_S_MIN = 2.0
"""Longer than a look of the judge lasts."""
CHANGES = (
    {"min.insync.replicas": "1"},
    {"min.insync.replicas": "2"},
    {"flush.messages": "1"},
    {"flush.messages": "1000000"},
    {"segment.bytes": "600"},
    {"segment.ms": "2000"},
    {"compression.type": "gzip"},
    {"compression.type": "producer"},
    {"index.interval.bytes": "0"},
    {"message.timestamp.type": "LogAppendTime"},
    {"message.timestamp.type": "CreateTime"},
    {"leader.replication.throttled.replicas": "*", "follower.replication.throttled.replicas": "*"},
)
WITH_FOLLOWERS = ({"min.insync.replicas": "1"}, {"min.insync.replicas": "2"}, {"flush.messages": "1000000"})
"""Changes that keep a promise only while other replicas have the records."""


def changes_of(brokers: int) -> tuple[dict[str, str], ...]:
    """Changes that keep the promises of a cluster of this size.

    A broker without followers is the only one that has a record. A power cut spares the record only if it is
    synced before it is acknowledged, so this broker always syncs each write.
    """
    return CHANGES if brokers > 1 else tuple(each for each in CHANGES if each not in WITH_FOLLOWERS)


class Tinkerer(Part):
    def __init__(self, chance: random.Random, topics: Sequence[str]) -> None:
        super().__init__(chance)
        self._topics = topics

    def clients(self, stage: Stage) -> Iterator[Client]:
        world = stage.world("tinkerer", History())
        yield "tinkerer", self._tinker(world, changes_of(stage.brokers), stage.network.trace)

    async def _tinker(self, world: World, changes: Sequence[dict[str, str]], trace: Trace) -> None:
        cluster = await world.open("tinkerer")
        while not world.is_over():
            await asyncio.sleep(PAUSE_S_MIN)
            await world.pause(PAUSE_S)
            change = world.chance.choice(changes)
            with suppress(KafkaError, ClusterUnreachable):
                topic = world.chance.choice(self._topics)
                trace.tell(f"the administrator alters {topic}: {_rendered(change)}")
                await TopicAdmin(cluster).alter_configs(ResourceType.TOPIC, topic, changes=change)


def _rendered(change: dict[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in change.items())
