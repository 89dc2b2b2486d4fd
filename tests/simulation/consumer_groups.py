"""Members of a group of the consumer protocol (KIP-848), written on the protocol's messages.

A member heartbeats, gives up what it is told to give up before it says so, reads and commits what it has, and
believes that it has it no longer than its session lasts, counted from the sending of the last heartbeat that
was answered: until then nobody else may have been given the same (`Owners`). Now and then one falls silent
for longer than that, or leaves.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from barnabas.client.cluster_client import ClusterClient
from barnabas.client.consumer import Consumer
from barnabas.client.groups import Groups, commit_request
from barnabas.client.steps import ClusterUnreachable, Steps, raise_for
from barnabas.core.errors import (
    FencedMemberEpoch,
    KafkaError,
    StaleMemberEpoch,
    UnknownMemberId,
)
from barnabas.core.ids import TopicPartition, Uuid
from barnabas.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from tests.chaos.history import Reading, Value
from tests.simulation.cast import Client, Part, Stage
from tests.simulation.clients import World
from tests.simulation.groups import Commits

GROUP = "consumers"
MEMBERS = 3
SESSION_S = 6.0
"""`group.consumer.session.timeout.ms` of the machines."""
REBALANCE_TIMEOUT_MS = 20_000
BEAT_S = 1.0
NAP = 0.02
LEAVE = 0.03
LEAVING = -1


@dataclass(slots=True)
class _Owner:
    member: str
    until_s: float


class Owners:
    """Who says that it has which partition."""

    def __init__(self) -> None:
        self.complaints: list[str] = []
        self._owners: dict[int, _Owner] = {}

    def taken(self, member: str, partition: int, now_s: float, until_s: float) -> None:
        owner = self._owners.get(partition)
        if owner is not None and owner.member != member and now_s < owner.until_s:
            self.complaints.append(
                f"two owners: {member} was given partition {partition} at {now_s:.3f}, which {owner.member}"
                f" has until {owner.until_s:.3f}"
            )
        self._owners[partition] = _Owner(member, until_s)

    def renewed(self, member: str, until_s: float) -> None:
        for owner in self._owners.values():
            if owner.member == member:
                owner.until_s = until_s

    def released(self, member: str, partition: int) -> None:
        owner = self._owners.get(partition)
        if owner is not None and owner.member == member:
            del self._owners[partition]


class Member:
    def __init__(
        self, world: World, name: str, topic: str, cluster: ClusterClient, owners: Owners, commits: Commits
    ) -> None:
        self._world = world
        self._name = name
        self._topic = topic
        self._cluster = cluster
        self._groups = Groups(cluster)
        self._owners = owners
        self._commits = commits
        self._id = str(Uuid.generate(world.chance))
        self._epoch = 0
        self._until_s = 0.0
        self._readings: dict[int, Reading] = {}
        self._positions: dict[int, int] = {}
        self._has_news = True

    async def work(self) -> None:
        """Until it leaves; raises what makes it begin anew as another."""
        while not self._world.is_over():
            if self._world.chance.random() < LEAVE:
                break
            if self._world.chance.random() < NAP:
                await self._world.pause(2 * SESSION_S)
                await self._commit()  # as one that does not know that it slept
            await self._beat()
            if self._positions:
                await self._read()
            await asyncio.sleep(self._world.chance.uniform(0, BEAT_S))  # quiet times, too, need a pulse
        self._give_up(set(self._positions))
        with suppress(KafkaError, ClusterUnreachable):
            await self._ask(LEAVING)

    async def _beat(self) -> None:
        sent_s = self._world.loop.time()
        try:
            answer = await self._ask(self._epoch)
        except (FencedMemberEpoch, UnknownMemberId):
            self._give_up(set(self._positions))
            self._epoch, self._has_news = 0, True
            return
        except (KafkaError, ClusterUnreachable):
            if self._world.loop.time() >= self._until_s:
                self._give_up(set(self._positions))
            return
        self._epoch = answer.member_epoch
        self._has_news = False
        self._until_s = sent_s + SESSION_S
        self._owners.renewed(self._name, self._until_s)
        if answer.assignment is not None:
            wanted = {number for each in answer.assignment.topic_partitions for number in each.partitions}
            await self._assign(wanted)

    async def _ask(self, epoch: int) -> ConsumerGroupHeartbeatResponse:
        owned: list[TopicPartitions] | None = None
        if self._has_news or epoch == 0:
            topic = await self._cluster.topic(self._topic)
            owned = [TopicPartitions(topic_id=topic.topic_id, partitions=sorted(self._positions))]
            if not self._positions or epoch == 0:
                owned = []
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self._id,
            member_epoch=epoch,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS if self._has_news else -1,
            subscribed_topic_names=[self._topic] if self._has_news else None,
            topic_partitions=owned,
        )

        def attempt() -> Steps[ConsumerGroupHeartbeatResponse]:
            answer = yield from self._groups.ask(GROUP, request, ConsumerGroupHeartbeatResponse)
            raise_for(answer.error_code, answer.error_message, f"group {GROUP}")
            return answer

        return await self._cluster.run_with_retries(attempt)

    async def _assign(self, wanted: set[int]) -> None:
        gone = set(self._positions) - wanted
        if gone:
            self._has_news = True
            await self._commit()
            self._give_up(gone)
        new = sorted(wanted - set(self._positions))
        if new:
            self._has_news = True
            for partition in new:
                self._owners.taken(self._name, partition, self._world.loop.time(), self._until_s)
            offsets = await self._groups.offsets(GROUP)
            found = {
                each: offset
                for each in new
                if (offset := offsets.get(TopicPartition(self._topic, each))) is not None
            }
            if self._world.loop.time() < self._until_s:
                self._commits.found(self._name, found, new)
            for each in new:
                self._positions[each] = found.get(each, 0)
                self._readings[each] = Reading(self._name, self._topic, each)
                self._world.history.readings.append(self._readings[each])

    def _give_up(self, partitions: set[int]) -> None:
        for each in sorted(partitions):
            self._owners.released(self._name, each)
            del self._positions[each], self._readings[each]

    async def _read(self) -> None:
        with suppress(KafkaError, ClusterUnreachable):
            async with Consumer(self._cluster, self._topic, self._positions) as consumer:
                for number, record in await consumer.poll():
                    self._readings[number].seen.append(
                        (record.offset, Value.decode(bytes(record.value or b"")))
                    )
                self._positions.update(consumer.positions)
        await self._commit()

    async def _commit(self) -> None:
        reached = dict(self._positions)
        offsets = {TopicPartition(self._topic, each): at for each, at in reached.items()}
        request = commit_request(GROUP, offsets, member_id=self._id, generation_id=self._epoch)
        try:
            await self._groups.send_commit(GROUP, request)
        except (FencedMemberEpoch, StaleMemberEpoch, UnknownMemberId):
            return  # the next heartbeat says more
        except (KafkaError, ClusterUnreachable):
            return
        self._commits.acknowledged(reached)


async def be_members(world: World, name: str, topic: str, owners: Owners, commits: Commits) -> None:
    """One member after the other, each with an id of its own."""
    cluster = await world.open(name)
    lives = 0
    while not world.is_over():
        lives += 1
        with suppress(KafkaError, ClusterUnreachable):
            await Member(world, f"{name}/{lives}", topic, cluster, owners, commits).work()
        await world.pause(2.0)


class ConsumerGroup(Part):
    def __init__(self, chance: random.Random, topic: str) -> None:
        super().__init__(chance)
        self._topic = topic
        self._owners = Owners()
        self._commits = Commits()

    def clients(self, stage: Stage) -> Iterator[Client]:
        for number in range(1, MEMBERS + 1):
            name = f"consumer-{number}"
            world = stage.world(name, stage.history)
            yield name, be_members(world, name, self._topic, self._owners, self._commits)

    def complaints(self) -> list[str]:
        return self._owners.complaints + self._commits.complaints
