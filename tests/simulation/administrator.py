"""An administrator, who makes and deletes topics, moves partitions and asks for elections meanwhile."""

from __future__ import annotations

from contextlib import suppress

from barnabas.client.admin.elections import ElectionType, elect_leaders
from barnabas.client.admin.reassignment import Reassignments
from barnabas.client.admin.topics_and_configs import TopicAdmin
from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.core.steps import ClusterUnreachable
from barnabas.core.errors import KafkaError
from barnabas.core.ids import TopicPartition
from tests.simulation.clients import World

PAUSE_S = 6.0
REPLICAS = 3


async def administrate(world: World, name: str, topics: dict[str, int], brokers: int) -> None:
    cluster = await world.open(name)
    number = 0
    while not world.is_over():
        number += 1
        with suppress(KafkaError, ClusterUnreachable):  # whether it was done does not matter
            await _act(world, cluster, topics, brokers, number)
        await world.pause(PAUSE_S)


async def _act(
    world: World, cluster: ClusterClient, topics: dict[str, int], brokers: int, number: int
) -> None:
    chance = world.chance.random()
    if chance < 0.3:
        await elect_leaders(cluster, ElectionType.PREFERRED, None)
    elif chance < 0.6:
        topic = world.chance.choice(sorted(topics))
        place = TopicPartition(topic, world.chance.randrange(topics[topic]))
        replicas = world.chance.sample(range(1, brokers + 1), REPLICAS)
        await Reassignments(cluster).alter({place: replicas})
    else:
        name = f"passing-{number}"
        await TopicAdmin(cluster).create_topic(name, partitions=1, replication_factor=REPLICAS, configs={})
        await world.pause(PAUSE_S)
        await TopicAdmin(cluster).delete_topic(name)
