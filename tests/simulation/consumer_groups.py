"""Members of a group of the consumer protocol (KIP-848), written on the protocol's messages.

A member heartbeats, revokes partitions before it says so, and reads and commits its assigned ones. It counts
on an assignment only until its session ends, measured from the send time of the last answered heartbeat.
Until then no other member may own the same partitions (`Owners`). Now and then a member falls silent for
longer than that, or leaves.

A heartbeat without a response may have been carried out. The coordinator sends an assignment once, and again
only to a member that sends all fields of a heartbeat. So the first heartbeat after a failure has all fields,
as in Apache Kafka's consumer. Otherwise the member would never receive the order to revoke a partition, and
the rebalance timeout would remove it from the group, though its session never ended. For the same reason a
member owns its partitions no longer than that timeout, counted from the first heartbeat that may have begun
it.

A coordinator whose store session was ended early is replaced before it knows. It answers heartbeats for a
while, as Apache Kafka's does. Responses from that time count for nothing.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from barnabas.client.admin.groups import Groups, commit_request
from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.core.steps import ClusterUnreachable, Steps, raise_for
from barnabas.core.errors import (
    FencedMemberEpoch,
    KafkaError,
    StaleMemberEpoch,
    UnknownMemberId,
)
from barnabas.core.ids import ZERO_UUID, TopicPartition, Uuid
from barnabas.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from tests.chaos.history import Reading, Value
from tests.simulation.cast import Client, Part, Stage
from tests.simulation.clients import World
from tests.simulation.groups import Commits
from tests.simulation.shape import DRIFT_PPM_MAX
from tests.support.plain_consumer import Consumer

GROUP = "consumers"
MEMBERS = 3
SESSION_S = 6.0
"""`group.consumer.session.timeout.ms` of the machines."""
REBALANCE_TIMEOUT_S = 20.0
FASTEST_CLOCK = 1 + DRIFT_PPM_MAX / 1_000_000
"""A coordinator whose clock is too fast ends sessions and rebalances early by so much."""
BEAT_S = 1.0
NAP = 0.02
LEAVE = 0.03
LEAVING = -1


@dataclass(slots=True)
class _Owner:
    member: str
    until_s: float


class Owners:
    """Partitions that members claim to own."""

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

    def lost(self, member: str, partitions: Iterable[int]) -> list[int]:
        """Partitions that the coordinator has already assigned to another member."""
        owners = {each: self._owners[each].member for each in partitions if each in self._owners}
        return sorted(each for each, owner in owners.items() if owner != member)

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
        self,
        world: World,
        name: str,
        topic: str,
        cluster: ClusterClient,
        forced_s: Callable[[], float],
        owners: Owners,
        commits: Commits,
    ) -> None:
        """`forced_s` says when a session with the store was last made to end."""
        self._world = world
        self._forced_s = forced_s
        self._name = name
        self._topic = topic
        self._cluster = cluster
        self._groups = Groups(cluster)
        self._owners = owners
        self._commits = commits
        self._id = str(Uuid.generate(world.chance))
        self._epoch = 0
        self._topic_id = ZERO_UUID
        self._sent_s = 0.0
        self._unheard_since_s: float | None = None
        """When the first heartbeat was sent that no answer has followed yet."""
        self._until_s = 0.0
        self._readings: dict[int, Reading] = {}
        self._positions: dict[int, int] = {}
        self._has_news = True
        """Whether the next heartbeat has to say everything."""

    async def work(self) -> None:
        """Work until the member leaves; an error that makes it join as another member is raised."""
        while not self._world.is_over():
            if self._world.chance.random() < LEAVE:
                break
            if self._world.chance.random() < NAP:
                await self._world.pause(2 * SESSION_S)
                await self._commit()  # as one that does not know that it slept
            await self.beat()
            if self._positions:
                await self._read()
            await asyncio.sleep(self._world.chance.uniform(0, BEAT_S))  # quiet times, too, need a pulse
        self._give_up(set(self._positions))
        with suppress(KafkaError, ClusterUnreachable):
            await self._ask(LEAVING)

    async def beat(self) -> None:
        try:
            answer = await self._ask(self._epoch)
        except (FencedMemberEpoch, UnknownMemberId):
            self._give_up(set(self._positions))
            self._epoch = 0
            return
        except (KafkaError, ClusterUnreachable):
            if self._world.loop.time() >= self._until_s:
                self._give_up(set(self._positions))
            return
        self._epoch = answer.member_epoch
        assigned = None if answer.assignment is None else answer.assignment.topic_partitions
        wanted = set(self._positions)
        if assigned is not None:
            wanted = {number for each in assigned for number in each.partitions}
        self._heard(must_give_up=not wanted.issuperset(self._positions))
        self._topic_id = assigned[0].topic_id if assigned else self._topic_id
        await self._assign(wanted)

    def _heard(self, *, must_give_up: bool) -> None:
        """The session goes on, but not beyond the time that there is for giving up what must be given up."""
        assert self._unheard_since_s is not None
        if self._sent_s >= self._forced_s() + SESSION_S:
            self._until_s = self._sent_s + SESSION_S / FASTEST_CLOCK
        if must_give_up:
            self._until_s = min(self._until_s, self._unheard_since_s + REBALANCE_TIMEOUT_S / FASTEST_CLOCK)
        self._unheard_since_s = None
        self._owners.renewed(self._name, self._until_s)

    async def _ask(self, epoch: int) -> ConsumerGroupHeartbeatResponse:
        def attempt() -> Steps[ConsumerGroupHeartbeatResponse]:
            request = self._heartbeat(epoch)
            self._has_news = True
            self._sent_s = self._world.loop.time()
            if self._unheard_since_s is None:
                self._unheard_since_s = self._sent_s
            answer = yield from self._groups.ask(GROUP, request, ConsumerGroupHeartbeatResponse)
            raise_for(answer.error_code, answer.error_message, f"group {GROUP}")
            self._has_news = False
            return answer

        return await self._cluster.run_with_retries(attempt)

    def _heartbeat(self, epoch: int) -> ConsumerGroupHeartbeatRequest:
        request = ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id=self._id, member_epoch=epoch)
        if self._has_news and epoch != LEAVING:
            request.rebalance_timeout_ms = int(1_000 * REBALANCE_TIMEOUT_S)
            request.subscribed_topic_names = [self._topic]
            request.topic_partitions = []
            if self._positions:
                owned = TopicPartitions(topic_id=self._topic_id, partitions=sorted(self._positions))
                request.topic_partitions = [owned]
        return request

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
        lost = self._owners.lost(self._name, reached)
        offsets = {TopicPartition(self._topic, each): at for each, at in reached.items()}
        request = commit_request(GROUP, offsets, member_id=self._id, generation_id=self._epoch)
        try:
            await self._groups.send_commit(GROUP, request)
        except (FencedMemberEpoch, StaleMemberEpoch, UnknownMemberId):
            return  # the next heartbeat says more
        except (KafkaError, ClusterUnreachable):
            return
        if lost:
            self._owners.complaints.append(
                f"commit by a previous member: {self._name} was answered that {reached} is committed, and"
                f" partitions {lost} had been given to others before it asked"
            )
        self._commits.acknowledged(reached)


async def be_members(
    world: World,
    name: str,
    topic: str,
    forced_s: Callable[[], float],
    owners: Owners,
    commits: Commits,
) -> None:
    """One member after the other, each with an id of its own."""
    cluster = await world.open(name)
    lives = 0
    while not world.is_over():
        lives += 1
        with suppress(KafkaError, ClusterUnreachable):
            await Member(world, f"{name}/{lives}", topic, cluster, forced_s, owners, commits).work()
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
            yield (
                name,
                be_members(
                    world, name, self._topic, lambda: stage.store.forced_s, self._owners, self._commits
                ),
            )

    def complaints(self) -> list[str]:
        return self._owners.complaints + self._commits.complaints
