"""Random histories of brokers, topics and requests: what must hold holds after every one of them.

Some steps follow each other before the cluster came to rest, so that events meet. After a rest:
one controller; every partition with a live replica in sync is led by one such; leader and
controller epochs never go back; no leader comes from outside the ISR; live brokers know their roles.
"""

from __future__ import annotations

import random
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import pytest

from barnabas.cluster.coordination.contract import BadVersion, CoordinationError
from barnabas.cluster.stores.topics import (
    StoredTopic,
    add_partitions,
    create_topic,
    mark_for_deletion,
    read_topics,
)
from barnabas.cluster.znodes.layout import PartitionState
from barnabas.cluster.znodes.notifications import IsrChangeZnode
from barnabas.controller.controller import KafkaController
from barnabas.controller.machines.partition_machine import Election
from barnabas.core.errors import KafkaError, NotController
from barnabas.core.ids import TopicPartition, Uuid
from tests.support.embedded_sessions import expire_session, renew_session
from tests.unit.controller.scripted_cluster import Cluster, set_partition_state

BROKERS = (1, 2, 3, 4)
TOPICS = ("a", "b", "c")
STEPS = 40


class History:
    def __init__(self, cluster: Cluster, chance: random.Random) -> None:
        self.cluster = cluster
        self.chance = chance
        self.controller_epoch = 0
        self.seen: dict[tuple[Uuid | None, int], PartitionState] = {}
        self.script: list[str] = []

    async def step(self) -> None:
        actions = (
            self.up, self.down, self.bounce, self.create, self.create, self.delete, self.grow,
            self.reassign, self.cancel, self.elect, self.expand, self.expand, self.shrink,
            self.depose, self.expire, self.shut_down,
        )  # fmt: skip
        action = self.chance.choice(actions)
        self.script.append(action.__name__)
        with suppress(KafkaError, CoordinationError):
            await action()

    # Events

    def _some_replicas(self) -> list[int]:
        return self.chance.sample(BROKERS, self.chance.randint(1, 3))

    def _controller(self) -> KafkaController:
        for member in self.cluster.members.values():
            if member.controller.is_active:
                return member.controller
        raise NotController("there is none at the moment")

    async def up(self) -> None:
        missing = [each for each in BROKERS if each not in self.cluster.members]
        if missing:
            await self.cluster.up(self.chance.choice(missing))

    async def down(self) -> None:
        if len(self.cluster.members) > 1:
            await self.cluster.down(self.chance.choice(list(self.cluster.members)))

    async def bounce(self) -> None:
        await self.cluster.bounce(self.chance.choice(list(self.cluster.members)))

    async def create(self) -> None:
        assignment = {number: self._some_replicas() for number in range(self.chance.randint(1, 3))}
        topic_id = Uuid.generate(self.chance)
        await create_topic(self.cluster.admin, self.chance.choice(TOPICS), topic_id, assignment, {})

    async def delete(self) -> None:
        await mark_for_deletion(self.cluster.admin, self.chance.choice(TOPICS))

    async def grow(self) -> None:
        topic = self.chance.choice(TOPICS)
        stored = (await read_topics(self.cluster.admin)).get(topic)
        if stored is not None:
            count = len(stored.info.assignment)
            await add_partitions(self.cluster.admin, topic, {count: self._some_replicas()})

    async def _partition(self) -> tuple[StoredTopic, int] | None:
        topics = list((await read_topics(self.cluster.admin)).values())
        if not topics:
            return None
        topic = self.chance.choice(topics)
        return topic, self.chance.choice(list(topic.info.assignment))

    async def reassign(self) -> None:
        found = await self._partition()
        if found is not None:
            target = {TopicPartition(found[0].name, found[1]): self._some_replicas()}
            await self._controller().alter_partition_reassignments(target)

    async def cancel(self) -> None:
        found = await self._partition()
        if found is not None:
            target = {TopicPartition(found[0].name, found[1]): None}
            await self._controller().alter_partition_reassignments(target)

    async def elect(self) -> None:
        await self._controller().elect_leaders(Election.PREFERRED, None)

    async def expand(self) -> None:
        """A leader finds all its live followers in sync."""
        await self._rewrite_isr(lambda _, live: live)

    async def shrink(self) -> None:
        await self._rewrite_isr(lambda state, _: [state.leader])

    async def _rewrite_isr(self, choose: object) -> None:
        found = await self._partition()
        if found is None:
            return
        topic, number = found
        state = topic.states.get(number)
        if state is None or state.leader not in self.cluster.members:
            return
        replicas = topic.info.assignment[number].replicas
        live = [each for each in replicas if each in self.cluster.members]
        isr = tuple(dict.fromkeys((state.leader, *choose(state, live))))  # type: ignore[operator]
        with suppress(BadVersion):
            await set_partition_state(self.cluster.admin, topic.name, number, state._replace(isr=isr))
            note = IsrChangeZnode.encode([TopicPartition(topic.name, number)])
            await self.cluster.admin.create(IsrChangeZnode.CREATE_PATH, note, sequential=True)

    async def depose(self) -> None:
        await self.cluster.admin.delete("/controller")

    async def expire(self) -> None:
        """A broker's session ends and a new one begins."""
        member = self.chance.choice(list(self.cluster.members.values()))
        await expire_session(member.session)
        member.controller.session_expired()
        self.cluster.brokers[member.id].roles.clear()
        renew_session(member.session)
        await self.cluster.register(member)
        member.controller.session_renewed()

    async def shut_down(self) -> None:
        if len(self.cluster.members) > 1:
            broker_id = self.chance.choice(list(self.cluster.members))
            with suppress(KafkaError):
                await self._controller().controlled_shutdown(broker_id, -1)
            await self.cluster.down(broker_id)

    # Invariants

    async def check(self) -> None:
        await self.cluster.settle()
        epoch = self.cluster.active.controller.epoch
        assert epoch >= self.controller_epoch
        self.controller_epoch = epoch
        deleting = self.cluster.term.context.topics_to_be_deleted
        for topic in (await read_topics(self.cluster.admin)).values():
            for number, state in topic.states.items():
                self._check_epochs(topic, number, state)
                if topic.name not in deleting:
                    self._check_leader(topic, number, state)

    def _check_epochs(self, topic: StoredTopic, number: int, state: PartitionState) -> None:
        former = self.seen.get((topic.info.topic_id, number))
        self.seen[topic.info.topic_id, number] = state
        assert state.controller_epoch <= self.controller_epoch
        if former is not None:
            assert state.leader_epoch >= former.leader_epoch
            assert state.controller_epoch >= former.controller_epoch
            if state.leader != former.leader:
                assert state.leader_epoch > former.leader_epoch

    def _check_leader(self, topic: StoredTopic, number: int, state: PartitionState) -> None:
        live = self.cluster.members.keys()
        replicas = topic.info.assignment[number].replicas
        partition = TopicPartition(topic.name, number)
        assert state.isr
        if live & set(state.isr) & set(replicas):
            assert state.leader in live, (partition, state, replicas)
            assert state.leader in state.isr
            assert state.leader in replicas
        else:
            assert state.leader == -1, (partition, state)
        assert state.leader_recovery_state == 0, "nobody asked for an unclean election"
        for broker_id in live:
            broker = self.cluster.brokers[broker_id]
            assert broker.metadata[partition].leader == state.leader, (partition, broker_id)
            assert broker.known_brokers == set(live)
            if broker_id in replicas:
                assert broker.roles[partition].leader == state.leader, (partition, broker_id)
                assert broker.roles[partition].leader_epoch == state.leader_epoch


@pytest.mark.parametrize("seed", range(8))
async def test_what_must_hold_holds_in_any_history(tmp_path: Path, seed: int) -> None:
    async with AsyncExitStack() as stack:
        cluster = Cluster(tmp_path / "store", stack, seed=seed)
        await cluster.start(*BROKERS)
        history = History(cluster, random.Random(seed))
        try:
            for _ in range(STEPS):
                await history.step()
                if history.chance.random() < 0.5:
                    await history.check()
            await history.check()
        except AssertionError as error:
            raise AssertionError(f"after {' '.join(history.script)}: {error}") from error
