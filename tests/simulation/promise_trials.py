"""Trials of settings that change a promise, altered at run time: retention, unclean elections, throttles.

Like `trials`, each comes last, when everything is repaired, and may cause faults itself. Settings of this
kind cannot be drawn for all topics. The judge would not know which records have to be there, or how soon a
replica has to be in sync.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress

from barnabas.client.admin.topics_and_configs import TopicAdmin
from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.core.transaction_steps import idempotent_producer
from barnabas.protocol.config_numbers import ResourceType
from barnabas.protocol.offset_numbers import EARLIEST, LATEST
from tests.chaos.checker import complaints_about
from tests.chaos.history import ALL_REPLICAS, History, Outcome, Value, Write
from tests.simulation import judge
from tests.simulation.cast import Part, Stage, Topic
from tests.simulation.clients import Batches, World
from tests.simulation.final_reading import read_topic
from tests.simulation.machine import Machine
from tests.simulation.trials import (
    SEEN_AND_WRITTEN_DOWN_S,
    SERVED_WITHIN_S,
    is_led,
    leader_of,
    state_of,
    until,
)
from tests.support.plain_consumer import Consumer, list_offsets

TWO_PASSES_S = 70.0
"""Longer than two passes of retention take. The first one rolls a segment that has to go as a whole, and the
second deletes it when the snapshot behind it is synced."""
RATE = 2_000
"""Bytes a second of a throttle."""
NOT_ELECTED_S = 15.0
"""Longer than an election takes after a broker has come back."""


class Writer:
    """A producer of one partition, which knows its records by their offsets."""

    def __init__(self, topic: str, history: History, world: World, cluster: ClusterClient) -> None:
        self.values: dict[int, Value] = {}
        self._topic = topic
        self._history = history
        self._now_ms = world.clock.now_ms
        self._cluster = cluster

    async def write(self, count: int, acks: int = ALL_REPLICAS, padding: bytes = b"") -> None:
        batches = Batches(self._cluster, self._topic, acks, self._now_ms)
        batches.identify(*await self._cluster.run(idempotent_producer(self._cluster.state)))
        for _ in range(count):
            write = Write(Value(self._topic, len(self._history.writes)), self._topic, 0, acks=acks)
            self._history.writes.append(write)
            write.offset = await batches.write_rows([(None, write.value.encode() + padding)], 0)
            write.outcome = Outcome.ACKNOWLEDGED
            self.values[write.offset] = write.value

    async def alter(self, **changes: str) -> None:
        named = {name.replace("_", "."): value for name, value in changes.items()}
        await TopicAdmin(self._cluster).alter_configs(ResourceType.TOPIC, self._topic, changes=named)


def replicas_of(stage: Stage, topic: str) -> tuple[Machine, Machine]:
    """The leader and the follower."""
    leader, state = leader_of(stage, topic), state_of(stage, topic)
    assert state is not None
    (follower,) = (stage.machines[number - 1] for number in state.isr if number != leader.number)
    return leader, follower


async def leave_alone(stage: Stage, topic: str, follower: Machine) -> None:
    """Kill the follower, and wait until the leader alone is in sync."""
    follower.kill()

    def is_alone() -> bool:
        state = state_of(stage, topic)
        return state is not None and follower.number not in state.isr

    await until(is_alone)


class Expiry(Part):
    """The retention of a topic is set while records wait above the high watermark, and then made unlimited.
    What is committed goes, segment by segment, and does not come back after a power failure. What is not
    committed stays, and so does everything that is written later."""

    TOPIC = "expiry"
    COMMITTED = 20
    UNCOMMITTED = 12
    LATER = 8

    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)
        self._complaints: list[str] = []

    def topics(self) -> dict[str, Topic]:
        configs = {"segment.bytes": "400", "min.insync.replicas": "2"}
        return {self.TOPIC: Topic(1, replicas=2, configs=configs)}

    async def look(self, stage: Stage) -> None:
        history = History()
        world = stage.world(self.TOPIC, history)
        cluster = await world.open(self.TOPIC)
        writer = Writer(self.TOPIC, history, world, cluster)
        await writer.write(self.COMMITTED)
        leader, follower = replicas_of(stage, self.TOPIC)
        await leave_alone(stage, self.TOPIC, follower)
        await writer.write(self.UNCOMMITTED, acks=1)
        await writer.alter(**self.chance.choice(({"retention_bytes": "0"}, {"retention_ms": "1000"})))
        await asyncio.sleep(SEEN_AND_WRITTEN_DOWN_S)
        if not 0 < await self._begin(cluster) <= self.COMMITTED:
            self._say(f"begins at {await self._begin(cluster)}, and is committed to {self.COMMITTED}")
        follower.start()
        await stage.in_sync()
        begins = await self._await_deletion(cluster)
        if begins <= self.COMMITTED:
            self._say(f"begins at {begins} long after all of it was committed")
        await writer.alter(retention_bytes="-1", retention_ms="-1")
        await writer.write(self.LATER)
        await asyncio.sleep(TWO_PASSES_S)
        unpowered = self.chance.choice((leader, follower))
        unpowered.cut_power()
        await asyncio.sleep(1.0)
        unpowered.start()
        await stage.in_sync()
        await self._judge(cluster, begins, writer.values)

    async def _await_deletion(self, cluster: ClusterClient) -> int:
        with suppress(TimeoutError):
            async with asyncio.timeout(TWO_PASSES_S):
                while await self._begin(cluster) <= self.COMMITTED:  # noqa: ASYNC110
                    await asyncio.sleep(1.0)
        return await self._begin(cluster)

    async def _begin(self, cluster: ClusterClient) -> int:
        return (await list_offsets(cluster, self.TOPIC, [0], EARLIEST))[0]

    async def _judge(self, cluster: ClusterClient, before: int, written: dict[int, Value]) -> None:
        begins = await self._begin(cluster)
        ends = (await list_offsets(cluster, self.TOPIC, [0], LATEST))[0]
        if begins < before:
            self._say(f"begins at {begins}, and began at {before} before a power failure")
        if begins > self.COMMITTED + self.UNCOMMITTED:
            self._say(f"begins at {begins}, which was written when the retention was unlimited")
        seen: dict[int, Value] = {}
        async with Consumer(cluster, self.TOPIC, {0: begins}) as consumer:
            while consumer.positions[0] < ends:
                for _, record in await consumer.poll():
                    seen[record.offset] = Value.decode(bytes(record.value or b""))
        if seen != {offset: value for offset, value in written.items() if offset >= begins}:
            self._say(f"shows other records from {begins} on than were written")

    def _say(self, what: str) -> None:
        self._complaints.append(f"retained wrongly: {self.TOPIC}-0 {what}")

    def complaints(self) -> list[str]:
        return self._complaints


class Concession(Part):
    """The last in-sync replica of a topic is away, and the other one is back. It does not lead as long as the
    topic forbids unclean elections. It leads soon after the topic allows them, and not the next time, when
    the topic forbids them again."""

    TOPIC = "concession"
    KEY = "unclean.leader.election.enable"

    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)
        self._history = History()
        self._complaints: list[str] = []

    def topics(self) -> dict[str, Topic]:
        return {self.TOPIC: Topic(1, replicas=2, configs={"min.insync.replicas": "1"})}

    async def look(self, stage: Stage) -> None:
        world = stage.world(self.TOPIC, self._history)
        cluster = await world.open(self.TOPIC)
        writer = Writer(self.TOPIC, self._history, world, cluster)
        for is_allowed in (False, True, False):
            await writer.alter(unclean_leader_election_enable="false")
            await writer.write(self.chance.randint(1, 3))
            leader, follower = replicas_of(stage, self.TOPIC)
            await leave_alone(stage, self.TOPIC, follower)
            both = len(self._history.writes)
            await writer.write(self.chance.randint(1, 3))
            leader.kill()
            await until(lambda: not is_led(stage, self.TOPIC))
            follower.start()
            await asyncio.sleep(NOT_ELECTED_S)
            if is_led(stage, self.TOPIC):
                self._complaints.append(f"unclean: {self.TOPIC}-0 is led without its last in-sync replica")
            elif is_allowed:
                del self._history.writes[both:]  # what the election gives up
                await writer.alter(unclean_leader_election_enable="true")
                await self._await_leader(stage)
            leader.start()
            await stage.in_sync()
        await read_topic(cluster, self.TOPIC, 1, self._history)
        self._complaints += judge.differing_replicas(stage.machines, self.TOPIC, 0)

    async def _await_leader(self, stage: Stage) -> None:
        try:
            async with asyncio.timeout(SERVED_WITHIN_S):
                await until(lambda: is_led(stage, self.TOPIC))
        except TimeoutError:
            self._complaints.append(
                f"not served: {self.TOPIC}-0 has no leader {SERVED_WITHIN_S:.0f} s after it was allowed"
                " unclean elections"
            )

    def complaints(self) -> list[str]:
        return [*self._complaints, *complaints_about(self._history)]


class Held(Part):
    """The replication of a topic is throttled. A replica that was away catches up at about that rate. A
    replica in sync is not held back, and the others catch up when the throttle is gone."""

    TOPIC = "held"
    PADDING = b" " * 1_000
    """As JSON spaces say nothing."""
    RECORDS = 40
    AT_LEAST_S = 10.0
    """Half of what `RECORDS` take at the rate."""
    IN_SYNC_S = 15.0
    """Less than `RECORDS` take at the rate."""
    KEYS = ("leader.replication.throttled", "follower.replication.throttled")

    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)
        self._history = History()
        self._complaints: list[str] = []

    def topics(self) -> dict[str, Topic]:
        configs = {"min.insync.replicas": "1"}
        return {self.TOPIC: Topic(1, replicas=2, configs=configs)}

    async def look(self, stage: Stage) -> None:
        loop = asyncio.get_running_loop()
        world = stage.world(self.TOPIC, self._history)
        cluster = await world.open(self.TOPIC)
        writer = Writer(self.TOPIC, self._history, world, cluster)
        await writer.write(1)
        leader, follower = replicas_of(stage, self.TOPIC)
        key = self.chance.choice(self.KEYS)
        await writer.alter(**{f"{key}.replicas": "*"})
        for broker in (leader, follower):
            await TopicAdmin(cluster).alter_configs(
                ResourceType.BROKER, str(broker.number), changes={f"{key}.rate": str(RATE)}
            )
        await leave_alone(stage, self.TOPIC, follower)
        await writer.write(self.RECORDS, padding=self.PADDING)
        began_s = loop.time()
        follower.start()
        await stage.in_sync()
        if loop.time() - began_s < self.AT_LEAST_S:
            self._say(f"is in sync after {loop.time() - began_s:.1f} s")
        began_s = loop.time()
        await writer.write(self.RECORDS, padding=self.PADDING)
        if loop.time() - began_s > self.IN_SYNC_S:
            self._say(f"takes {loop.time() - began_s:.1f} s for writes while it is in sync")
        await read_topic(cluster, self.TOPIC, 1, self._history)

    def _say(self, what: str) -> None:
        self._complaints.append(f"throttled wrongly: {self.TOPIC}-0 {what}, at {RATE} bytes a second")

    def complaints(self) -> list[str]:
        return [*self._complaints, *complaints_about(self._history)]
