"""Members of groups, by the consumer of the client library: readers that commit, and `process`.

The seed draws the protocol of a group. A member lives for a while, closes or is abandoned without a word, and
another takes its place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from barnabas.client import ConsumerInterceptor, KafkaError, RebalanceListener, Record, Retry
from barnabas.client.consumer.consumer import Consumer
from barnabas.client.core.client_errors import CommitFailed
from barnabas.client.core.steps import ClusterUnreachable
from barnabas.client.processing.core.lanes import ORDERS, Order
from barnabas.core.ids import TopicPartition
from tests.chaos.history import Reading, Value
from tests.simulation.clients import API_TIMEOUT_MS, World, draw_fetching
from tests.simulation.conduct import KeyTurns

PAUSE_S = 2.0
LIFE_S = 25.0
SESSION_TIMEOUT_MS = 8_000
MAX_POLL_INTERVAL_MS = 20_000
CLOSE_TIMEOUT_S = 30.0
SLEEP_S = 1.2 * MAX_POLL_INTERVAL_MS / 1_000
HANDLER_S = 0.4
Settings = Mapping[str, Any]
PROTOCOLS: tuple[Settings, ...] = (
    {"group_protocol": "consumer"},
    {"group_protocol": "classic"},
    {"group_protocol": "classic", "partition_assignment_strategy": ["cooperative-sticky"]},
)


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


class _Member(RebalanceListener, ConsumerInterceptor):
    """Records that one member was given, and offsets that its coordinator has acknowledged."""

    def __init__(self, world: World, name: str, group: str, topic: str) -> None:
        self.name = name
        self.group = group
        self.topic = topic
        self._world = world
        self._readings: dict[int, Reading] = {}
        self._known: dict[int, int] = {}
        """Offsets that were acknowledged to the group before this member got the partition."""

    def on_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        for _, number in sorted(partitions):
            self._readings[number] = Reading(self.name, self.topic, number)
            self._known[number] = self._world.conduct.committed_offset(self.group, self.topic, number)
            self._world.history.readings.append(self._readings[number])

    def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        for _, number in partitions:
            self._readings.pop(number, None)

    def on_commit(self, offsets: Any) -> None:
        for at, offset in offsets.items():
            self._world.conduct.committed(self.group, at.topic, at.partition, offset)

    def given(self, record: Record) -> None:
        conduct, number = self._world.conduct, record.partition
        reading = self._readings.get(number)
        if reading is None:
            conduct.complain(f"not assigned: {self.name} was given {number}@{record.offset}")
            return
        known = self._known.pop(number, 0)
        if record.offset < known:
            conduct.complain(
                f"offset went back: {self.name} begins {number} at {record.offset}, and {known} was"
                " acknowledged"
            )
        reading.seen.append((record.offset, Value.decode(record.value)))
        conduct.dealt(self.group, record.topic, number, record.offset)


class _Handling(_Member):
    """A member that handles records by `process`."""

    def __init__(self, world: World, name: str, group: str, topic: str) -> None:
        super().__init__(world, name, group, topic)
        self.order: Order = world.chance.choice(ORDERS)
        self._turns = KeyTurns(name, world.conduct)

    def on_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        self._turns.forget({number for _, number in partitions})
        for _, number in partitions:
            self._known[number] = self._world.conduct.committed_offset(self.group, self.topic, number)

    async def handle(self, record: Record) -> None:
        key = None if self.order == "none" else record.key
        world, place = self._world, (record.partition, key, record.offset)
        if record.offset < self._known.get(record.partition, 0):
            world.conduct.complain(f"handled again: {self.name} got {record.partition}@{record.offset}")
        self._turns.begin(*place)
        is_done = False
        try:
            await asyncio.sleep(world.chance.choice((0.0, 0.02, HANDLER_S)))
            if world.chance.random() < 0.1:
                raise ValueError("the handler fails")
            is_done = True
        finally:
            self._turns.end(*place, is_done=is_done)
        world.conduct.dealt(self.group, record.topic, record.partition, record.offset)


async def read_in_group(world: World, name: str, group: str, topic: str, protocol: Settings) -> None:
    """Reads and commits, by itself or in the background. Now and then it takes nothing for too long."""
    while not world.is_over():
        member = _Member(world, name, group, topic)
        by_itself = world.chance.random() < 0.5
        consumer = _consumer(
            world,
            member,
            **protocol,
            **draw_fetching(world.chance),
            enable_auto_commit=not by_itself,
            auto_commit_interval_ms=1_000,
        )
        until_s = world.loop.time() + world.chance.uniform(0.2, 1.0) * LIFE_S
        try:
            async with consumer:
                await consumer.subscribe([topic], listener=member)
                while not world.is_over() and world.loop.time() < until_s:
                    await _read_some(world, consumer, member, by_itself=by_itself)
                    sleeps = world.chance.random() < 0.03
                    await (asyncio.sleep(SLEEP_S) if sleeps else world.pause(PAUSE_S))
                closing_s = world.loop.time()
            world.conduct.waited(name, "close", closing_s, CLOSE_TIMEOUT_S)
        except (KafkaError, ClusterUnreachable):
            await world.pause(1.0)
        await world.conduct.closed(name)


async def _read_some(world: World, consumer: Consumer, member: _Member, *, by_itself: bool) -> None:
    began_s = world.loop.time()
    if world.chance.random() < 0.5:
        for record in await consumer.poll(timeout_ms=500, max_records=20):
            member.given(record)
    else:
        left = 10
        with suppress(TimeoutError):
            async with asyncio.timeout(0.5):
                async for record in consumer:
                    member.given(record)
                    if not (left := left - 1):
                        break
    # A rebalance commits first, within the timeout of calls.
    world.conduct.waited(member.name, "poll", began_s, 0.5 + 2 * API_TIMEOUT_MS / 1_000)
    if by_itself:
        began_s = world.loop.time()
        with suppress(CommitFailed):
            await consumer.commit()
        world.conduct.waited(member.name, "commit", began_s, API_TIMEOUT_MS / 1_000)


async def process_in_group(world: World, name: str, group: str, topic: str, protocol: Settings) -> None:
    """Handles records by `process`: some handlers are slow, and some fail at first."""
    while not world.is_over():
        member = _Handling(world, name, group, topic)
        stop = asyncio.Event()
        consumer = _consumer(
            world, member, **protocol, **draw_fetching(world.chance), auto_commit_interval_ms=1_500
        )
        life_s = world.chance.uniform(0.2, 1.0) * LIFE_S
        try:
            async with consumer:
                await consumer.subscribe([topic], listener=member)
                ending = asyncio.create_task(_end(world, stop, life_s))
                try:
                    await consumer.process(
                        member.handle,
                        concurrency=world.chance.choice((1, 3, 64)),
                        order=member.order,
                        retry=Retry(attempts=1_000, first_ms=50, max_ms=500),
                        stop=stop,
                        drain_ms=2_000,
                    )
                finally:
                    ending.cancel()
        except (KafkaError, ClusterUnreachable, CommitFailed):
            await world.pause(1.0)
        await world.conduct.closed(name)


async def _end(world: World, stop: asyncio.Event, life_s: float) -> None:
    until_s = world.loop.time() + life_s
    while not world.is_over() and world.loop.time() < until_s:  # noqa: ASYNC110 - no event tells the end
        await asyncio.sleep(0.5)
    stop.set()


def _consumer(world: World, member: _Member, **settings: Any) -> Consumer:
    return world.consumer(
        member.name,
        group_id=member.group,
        session_timeout_ms=SESSION_TIMEOUT_MS,
        heartbeat_interval_ms=1_000,
        max_poll_interval_ms=MAX_POLL_INTERVAL_MS,
        interceptors=[member],
        **settings,
    )
