"""Requested leader elections, and new partitions."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from barnabas.cluster.stores.topics import add_partitions
from barnabas.cluster.znodes.layout import PartitionState, PartitionStateZnode
from barnabas.cluster.znodes.notifications import IsrChangeZnode, PreferredReplicaElectionZnode
from barnabas.config.dynamic.changes import Change
from barnabas.config.dynamic.repository import ConfigResource
from barnabas.controller.machines.leader_selection import RECOVERING
from barnabas.controller.machines.partition_machine import Election
from barnabas.controller.state.store import ControllerStore, Written
from barnabas.core.errors import (
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    InvalidTopicException,
    PreferredLeaderNotAvailable,
    UnknownTopicOrPartition,
)
from barnabas.core.ids import TopicPartition
from barnabas.core.reporting.metrics import render_prometheus
from barnabas.protocol.config_numbers import ConfigOperation, ResourceType
from tests.support.embedded_sessions import expire_session
from tests.support.settings import broker_config
from tests.unit.controller.scripted_cluster import Cluster, set_partition_state

T0 = TopicPartition("t", 0)


async def stray(cluster: Cluster) -> None:
    """t-0 is led by 3, and 2, which is preferred, is in sync again."""
    await cluster.create("t", {0: [2, 3]})
    await cluster.kill(2)
    await cluster.up(2)
    await cluster.settle()
    state = await cluster.state("t")
    assert (state.leader, state.isr) == (3, (3,))
    await set_partition_state(cluster.admin, "t", 0, state._replace(isr=(3, 2)))
    await cluster.admin.create(IsrChangeZnode.CREATE_PATH, IsrChangeZnode.encode([T0]), sequential=True)
    await cluster.settle()


async def test_isr_changes_are_told_to_all(cluster: Cluster) -> None:
    await stray(cluster)
    for broker in cluster.brokers.values():
        assert broker.metadata[T0].isr == [3, 2]
    assert cluster.term.context.leadership[T0].isr == (3, 2)
    assert await cluster.admin.children(IsrChangeZnode.PARENT) == []


async def test_the_preferred_replica_is_elected_when_asked_for(cluster: Cluster) -> None:
    await stray(cluster)
    outcomes = await cluster.active.controller.elect_leaders(Election.PREFERRED, [T0])
    await cluster.settle()
    assert outcomes == {T0: await cluster.state("t")}
    assert (await cluster.state("t")).leader == 2
    assert cluster.brokers[3].roles[T0].leader == 2


async def test_an_election_of_many_is_told_in_a_line(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.create("t", {partition: [2, 3] for partition in range(5)})
    await cluster.settle()
    caplog.clear()
    with caplog.at_level("INFO", "barnabas.controller.machines.partition_machine"):
        await cluster.kill(2)
        await cluster.settle()
    told = [each.message for each in caplog.records if each.name.endswith("partition_machine")]
    assert told == ["elected leaders of 5 partitions (election: offline)"]


async def test_an_election_says_why_not(cluster: Cluster) -> None:
    await cluster.create("t", {0: [2, 3]})
    controller = cluster.active.controller

    async def refusal(election: Election, partition: TopicPartition = T0) -> object:
        return type((await controller.elect_leaders(election, [partition]))[partition])

    assert await refusal(Election.PREFERRED) is ElectionNotNeeded
    assert await refusal(Election.OFFLINE_UNCLEAN) is ElectionNotNeeded
    assert await refusal(Election.PREFERRED, TopicPartition("t", 9)) is UnknownTopicOrPartition
    await cluster.kill(2)
    assert await refusal(Election.PREFERRED) is PreferredLeaderNotAvailable
    await cluster.kill(3)
    assert await refusal(Election.OFFLINE_UNCLEAN) is EligibleLeadersNotAvailable
    await cluster.delete("t")
    assert await refusal(Election.PREFERRED) is InvalidTopicException


async def test_an_administrator_may_force_an_unclean_election(cluster: Cluster) -> None:
    await cluster.create("t", {0: [2, 3]})
    await cluster.kill(3)
    await cluster.kill(2)
    await cluster.up(3)
    await cluster.settle()
    assert (await cluster.state("t")).leader == -1
    outcome = (await cluster.active.controller.elect_leaders(Election.OFFLINE_UNCLEAN, None))[T0]
    assert isinstance(outcome, PartitionState)
    assert (outcome.leader, outcome.isr, outcome.leader_recovery_state) == (3, (3,), RECOVERING)
    assert "kafka_controller_unclean_leader_elections_total 1" in render_prometheus(cluster.active.metrics)


async def test_a_topic_may_allow_unclean_elections(cluster: Cluster) -> None:
    await cluster.create("t", {0: [2, 3]}, {"unclean.leader.election.enable": "true"})
    await cluster.kill(3)
    await cluster.kill(2)
    await cluster.up(3)
    await cluster.settle()
    assert (await cluster.state("t")).leader == 3


async def test_all_topics_may_allow_unclean_elections(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        cluster = Cluster(tmp_path / "s", stack, static={"unclean.leader.election.enable": "true"})
        await cluster.start(1, 2, 3)
        await cluster.create("t", {0: [2, 3]})
        await cluster.create("clean", {0: [2, 3]}, {"unclean.leader.election.enable": "false"})
        await cluster.kill(3)
        await cluster.kill(2)
        await cluster.up(3)
        await cluster.settle()
        assert (await cluster.state("t")).leader == 3
        assert (await cluster.state("clean")).leader == -1


@pytest.mark.parametrize("resource", [(ResourceType.TOPIC, "t"), (ResourceType.BROKER, "")])
async def test_allowing_unclean_elections_takes_effect_at_once(
    cluster: Cluster, resource: tuple[int, str]
) -> None:
    await cluster.create("t", {0: [2, 3]})
    await cluster.kill(3)
    await cluster.kill(2)
    await cluster.up(3)
    await cluster.settle()
    assert (await cluster.state("t")).leader == -1
    configs = cluster.active.configs
    await configs.load_topics(["t"])
    change = Change("unclean.leader.election.enable", ConfigOperation.SET, "true")
    await configs.change(ConfigResource(*resource), [change])
    await cluster.settle()
    assert (await cluster.state("t")).leader == 3


async def test_the_znode_asks_for_preferred_leaders_and_goes(cluster: Cluster) -> None:
    await stray(cluster)
    path = PreferredReplicaElectionZnode.PATH
    await cluster.admin.create(path, PreferredReplicaElectionZnode.encode([T0, TopicPartition("x", 0)]))
    await cluster.settle()
    assert (await cluster.state("t")).leader == 2
    assert not await cluster.exists(path)
    await cluster.admin.create(path, b"no json")
    await cluster.settle()
    await cluster.admin.set(path, PreferredReplicaElectionZnode.encode([T0]))
    await cluster.settle()
    assert not await cluster.exists(path), "it is watched again"


async def test_a_new_controller_holds_the_election_that_was_asked_for(cluster: Cluster) -> None:
    await stray(cluster)
    await expire_session(cluster.members[1].session)
    await cluster.admin.create(PreferredReplicaElectionZnode.PATH, PreferredReplicaElectionZnode.encode([T0]))
    cluster.members[1].controller.session_expired()
    await cluster.settle()
    assert cluster.active.id in (2, 3)
    assert not await cluster.exists(PreferredReplicaElectionZnode.PATH)


async def test_leaders_go_back_by_themselves_after_a_while(cluster: Cluster) -> None:
    await stray(cluster)
    await cluster.advance(ms=5_000)
    assert (await cluster.state("t")).leader == 2


async def test_a_leader_that_does_not_answer_is_not_moved_for_the_sake_of_balance(cluster: Cluster) -> None:
    """It would not receive its demotion, and lead beside the new leader."""
    await stray(cluster)
    cluster.brokers[3].is_reachable = False
    await cluster.create("u", {0: [1]})
    await cluster.advance(ms=5_000)
    assert (await cluster.state("t")).leader == 3
    cluster.brokers[3].is_reachable = True
    await cluster.advance(ms=1_000)
    await cluster.advance(ms=299_000)
    assert (await cluster.state("t")).leader == 2


async def test_the_balance_is_restored_again_and_again(cluster: Cluster) -> None:
    await cluster.advance(ms=5_000)
    await stray(cluster)
    await cluster.advance(ms=299_000)
    assert (await cluster.state("t")).leader == 3
    await cluster.advance(ms=1_000)
    assert (await cluster.state("t")).leader == 2


async def test_a_small_imbalance_is_left_alone(tmp_path: Path) -> None:
    settings = broker_config(leader_imbalance_per_broker_percentage=50)
    async with AsyncExitStack() as stack:
        cluster = Cluster(tmp_path / "s", stack, settings=settings)
        await cluster.start(1, 2, 3)
        await cluster.create("balanced", {0: [2]})
        await stray(cluster)
        await cluster.advance(ms=5_000)
        assert (await cluster.state("t")).leader == 3, "one of two is not more than half"


async def test_leaders_stay_where_the_balance_is_disabled(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        cluster = Cluster(tmp_path / "s", stack, settings=broker_config(auto_leader_rebalance_enable=False))
        await cluster.start(1, 2, 3)
        await stray(cluster)
        await cluster.advance(ms=1_000_000)
        assert (await cluster.state("t")).leader == 3


async def test_added_partitions_get_leaders(cluster: Cluster) -> None:
    await cluster.create("t", {0: [2, 3]})
    for number in (1, 2):
        await add_partitions(cluster.admin, "t", {number: [3, number]})
        await cluster.settle()
        assert (await cluster.state("t", number)).leader == 3
    assert cluster.brokers[1].metadata[TopicPartition("t", 2)].leader == 3


async def test_an_election_is_held_again_when_a_leader_wrote_in_between(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ISR shrinks between reading and writing: the write fails, and the new state counts."""
    await cluster.create("t", {0: [2, 1, 3], 1: [2, 3]})
    term = cluster.term
    write = term.partitions._store.write
    shrunk: list[int] = []

    async def shrink_first(operations: list[object]) -> list[object]:
        if not shrunk and any(getattr(each, "path", "").endswith("0/state") for each in operations):
            shrunk.append(1)
            state = await cluster.state("t")
            await set_partition_state(cluster.admin, "t", 0, state._replace(isr=(2, 3)))
        return await write(operations)  # type: ignore[arg-type,return-value]

    monkeypatch.setattr(term.partitions._store, "write", shrink_first)
    await cluster.kill(2)
    assert shrunk
    state = await cluster.state("t")
    assert (state.leader, state.isr) == (3, (3,)), "1 had left the ISR"
    assert (await cluster.state("t", 1)).leader == 3, "the others are elected all the same"


async def test_a_topic_that_disappears_is_forgotten(cluster: Cluster) -> None:
    await cluster.create("t", {0: [2]})
    path = PartitionStateZnode.path("t", 0)
    for gone in (path, path.removesuffix("/state"), "/brokers/topics/t/partitions", "/brokers/topics/t"):
        await cluster.admin.delete(gone)
    await cluster.settle()
    assert "t" not in cluster.term.context.assignments


async def test_an_election_goes_on_however_often_a_leader_writes_in_between(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.create("t", {0: [2, 3, 1]})
    update_states = ControllerStore.update_states
    writes = [(2, 3, 1), (2, 3), (2, 3, 1)]

    async def interrupted(store: ControllerStore, states: Mapping[TopicPartition, PartitionState]) -> Written:
        if states and writes:
            state = await cluster.state("t")
            await set_partition_state(cluster.admin, "t", 0, state._replace(isr=writes.pop()))
        return await update_states(store, states)

    monkeypatch.setattr(ControllerStore, "update_states", interrupted)
    await cluster.kill(2)
    assert not writes
    assert (await cluster.state("t")).leader == 3
