"""Members of a classic group that read a topic and commit how far they came."""

from __future__ import annotations

from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.aio.consumer import Consumer
from barnabas.client.core.steps import ClusterUnreachable
from barnabas.client.group_member import GroupMember
from barnabas.core.errors import KafkaError
from tests.chaos.history import Reading, Value
from tests.simulation.clients import World

PAUSE_S = 2.0


class Commits:
    """Acknowledged commits of a group: an acknowledged offset never comes back as a lower one."""

    def __init__(self) -> None:
        self.complaints: list[str] = []
        self._acknowledged: dict[int, int] = {}

    def acknowledged(self, offsets: dict[int, int]) -> None:
        for partition, offset in offsets.items():
            self._acknowledged[partition] = max(offset, self._acknowledged.get(partition, 0))

    def found(self, member: str, offsets: dict[int, int], partitions: list[int]) -> None:
        for partition in partitions:
            known, offset = self._acknowledged.get(partition, 0), offsets.get(partition, 0)
            if offset < known:
                self.complaints.append(
                    f"offset went back: {member} found {offset} for partition {partition}, and {known} was"
                    " acknowledged"
                )


async def read_in_group(world: World, name: str, group: str, topic: str, commits: Commits) -> None:
    cluster = await world.open(name)
    while not world.is_over():
        try:
            async with GroupMember(cluster, group, topic) as member:
                while not world.is_over():
                    await _read_assigned(world, name, cluster, member, topic, commits)
        except (KafkaError, ClusterUnreachable):
            await world.pause(1.0)


async def _read_assigned(
    world: World, name: str, cluster: ClusterClient, member: GroupMember, topic: str, commits: Commits
) -> None:
    """From one assignment to the next."""
    assigned = await member.join()
    committed = await member.committed(assigned)
    commits.found(name, committed, assigned)
    readings = {number: Reading(name, topic, number) for number in assigned}
    world.history.readings += readings.values()
    positions = {number: committed.get(number, 0) for number in assigned}
    async with Consumer(cluster, topic, positions) as consumer:
        while not member.must_rejoin.is_set() and not world.is_over():
            for number, record in await consumer.poll():
                readings[number].seen.append((record.offset, Value.decode(bytes(record.value or b""))))
            reached = dict(consumer.positions)
            await member.commit(reached)
            if not member.must_rejoin.is_set():
                commits.acknowledged(reached)
            await world.pause(PAUSE_S)
