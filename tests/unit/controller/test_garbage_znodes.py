"""Malformed znodes of another program: each affects only its own subject, is logged, and deletes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from barnabas.cluster.coordination.contract import Coordination
from barnabas.cluster.znodes.brokers import BrokerIdZnode
from barnabas.cluster.znodes.layout import (
    ConfigZnode,
    ControllerEpochZnode,
    ControllerZnode,
    PartitionState,
    PartitionStateZnode,
    TopicZnode,
)
from barnabas.cluster.znodes.notifications import (
    DeleteTopicsZnode,
    IsrChangeZnode,
    LogDirEventZnode,
    PreferredReplicaElectionZnode,
    ReassignPartitionsZnode,
)
from barnabas.core.errors import UnknownServerError
from barnabas.core.ids import TopicPartition
from tests.unit.controller.scripted_cluster import Cluster
from tests.unit.controller.test_reassignment import assignment, catch_up

T0 = TopicPartition("t", 0)
GARBAGE = b'{"version": 1, '

WRONG_TYPES = [
    GARBAGE,
    b"",
    b"[]",
    b"\xff\xfe",
    b"[" * 100_000,
    b'{"version":1,"brokerid":Infinity,"partitions":[{"topic":"t","partition":0,"replicas":["x"]}]}',
    b'{"version":1,"brokerid":[],"partitions":{"0":["x"]}}',
    b'{"version":1,"brokerid":99999999999,"partitions":{"0":[99999999999]}}',
]


@pytest.fixture(autouse=True)
async def in_time() -> AsyncIterator[None]:
    """A controller that tries the same for ever is never idle."""
    async with asyncio.timeout(30):
        yield


async def put(znodes: Coordination, path: str, data: bytes) -> None:
    if await znodes.exists(path) is None:
        await znodes.create(path, data, make_parents=True)
    else:
        await znodes.set(path, data)


async def assert_in_charge(cluster: Cluster) -> None:
    """There is an active controller, every broker knows it, and it works."""
    await cluster.settle()
    active = cluster.active
    assert {each.controller.active_controller_id for each in cluster.members.values()} == {active.id}
    probe = f"probe-{active.controller.epoch}-{len(cluster.term.context.assignments)}"
    await cluster.create(probe, {0: [active.id]})
    assert (await cluster.state(probe)).leader == active.id


# The controller


@pytest.mark.parametrize("data", WRONG_TYPES)
async def test_a_controller_whose_node_was_spoilt_makes_way_for_an_election(
    cluster: Cluster, data: bytes
) -> None:
    await cluster.admin.set(ControllerZnode.PATH, data)
    await assert_in_charge(cluster)
    assert cluster.active.controller.epoch == 2


async def test_brokers_start_while_the_controllers_node_cannot_be_read(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """A session holds `/controller` with unreadable data: there is no controller while it lives."""
    stranger = cluster.store.connect()
    await cluster.admin.delete(ControllerZnode.PATH)
    await stranger.create(ControllerZnode.PATH, GARBAGE, ephemeral=True)
    await cluster.start(4)
    assert not any(member.controller.is_active for member in cluster.members.values())
    assert cluster.members[4].controller.active_controller_id == -1
    assert "/controller" in caplog.text
    await cluster.store.end_session(stranger.session_id)
    await assert_in_charge(cluster)


async def test_a_spoilt_node_that_belongs_to_no_session_is_put_out_of_the_way(cluster: Cluster) -> None:
    await cluster.kill(1)
    for member in cluster.members.values():
        member.controller.session_expired()
    await cluster.admin.delete(ControllerZnode.PATH)
    await cluster.admin.create(ControllerZnode.PATH, GARBAGE)
    for member in cluster.members.values():
        member.controller.session_renewed()
    await assert_in_charge(cluster)


async def test_an_epoch_that_cannot_be_read_is_not_guessed(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """Every broker would refuse a lower epoch. Once the node is repaired, a controller is elected."""
    await cluster.admin.set(ControllerEpochZnode.PATH, b"one")
    await cluster.kill(1)
    await cluster.start(4)
    assert not any(member.controller.is_active for member in cluster.members.values())
    assert (await cluster.admin.get(ControllerEpochZnode.PATH))[0] == b"one"
    assert "the controller epoch cannot be read" in caplog.text
    await cluster.admin.set(ControllerEpochZnode.PATH, b"7")
    await assert_in_charge(cluster)
    assert cluster.active.controller.epoch == 8


# Brokers


async def test_a_registration_of_no_broker_is_passed_over(cluster: Cluster) -> None:
    await cluster.admin.create(f"{BrokerIdZnode.PARENT}/nobody", b"")
    await cluster.settle()
    await cluster.kill(1)
    await assert_in_charge(cluster)


@pytest.mark.parametrize(
    "data",
    [
        *WRONG_TYPES,
        b'{"version":5,"endpoints":["PLAINTEXT://b:9092"],"rack":"\\ud800"}',
        b'{"version":5,"endpoints":["PLAINTEXT://\\ud800:9092"]}',
        b'{"version":5,"endpoints":["\\ud800://b:9092"]}',
    ],
)
async def test_a_live_broker_does_not_die_of_a_registration_that_cannot_be_read(
    cluster: Cluster, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.create("t", {0: [2, 3]})
    before = await cluster.state("t")
    await cluster.admin.set(BrokerIdZnode.path(2), data)
    await cluster.start(4)
    assert await cluster.state("t") == before
    assert cluster.brokers[3].known_brokers == {1, 2, 3, 4}
    assert "the registration of broker 2 cannot be read" in caplog.text


async def test_a_registration_that_was_mended_is_taken_up(cluster: Cluster) -> None:
    data, _ = await cluster.admin.get(BrokerIdZnode.path(3))
    await cluster.admin.set(BrokerIdZnode.path(3), GARBAGE)
    await cluster.kill(1)
    assert set(cluster.term.context.brokers) == {2}
    await cluster.admin.set(BrokerIdZnode.path(3), data)
    await cluster.settle()
    assert set(cluster.term.context.brokers) == {2, 3}
    await cluster.create("t", {0: [3]})
    assert cluster.brokers[3].roles[T0].leader == 3


# Topics


@pytest.mark.parametrize(
    "data",
    [
        *WRONG_TYPES[:5],
        b'{"version":3,"partitions":{"0":["x"]}}',
        b'{"version":3,"partitions":{"0":"12"}}',
        b'{"version":3,"partitions":{"0":[99999999999]}}',
        b'{"version":3,"partitions":{"0":[1],"2000000000":[1]}}',
        b'{"version":3,"partitions":{"-1":[1]}}',
        b'{"version":3,"partitions":{"0":[1]},"adding_replicas":{"0":[[]]}}',
        b'{"version":3,"partitions":[]}',
        b'{"version":3}',
    ],
)
async def test_a_spoilt_topic_concerns_no_other(
    cluster: Cluster, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.create("t", {0: [2, 3]})
    await cluster.create("other", {0: [1, 2]})
    good, _ = await cluster.admin.get(TopicZnode.path("t"))
    await cluster.admin.set(TopicZnode.path("t"), data)
    await assert_in_charge(cluster)
    await cluster.kill(1)
    await assert_in_charge(cluster)
    assert (await cluster.state("other")).leader == 2
    assert "topic t cannot be read" in caplog.text
    assert not any(broker.deleted for broker in cluster.brokers.values())
    await cluster.admin.set(TopicZnode.path("t"), good)
    await cluster.settle()
    assert cluster.term.context.replicas(T0) == (2, 3)
    await cluster.kill(2)
    assert (await cluster.state("t")).leader == 3


async def test_a_known_topic_goes_on_while_its_node_cannot_be_read(cluster: Cluster) -> None:
    await cluster.create("t", {0: [2, 3]})
    await cluster.admin.set(TopicZnode.path("t"), GARBAGE)
    await cluster.kill(2)
    assert (await cluster.state("t")).leader == 3
    outcome = await cluster.active.controller.alter_partition_reassignments({T0: [1]})
    assert isinstance(outcome[T0], UnknownServerError)
    assert (await cluster.state("t")).leader == 3
    assert not any(broker.deleted for broker in cluster.brokers.values())


async def test_the_mark_of_a_topic_that_cannot_be_read_is_kept(cluster: Cluster) -> None:
    await cluster.create("t", {0: [2, 3]})
    good, _ = await cluster.admin.get(TopicZnode.path("t"))
    await cluster.kill(1)
    await cluster.admin.set(TopicZnode.path("t"), GARBAGE)
    await cluster.settle()
    await cluster.kill(cluster.active.id)
    await cluster.delete("t")
    await assert_in_charge(cluster)
    assert await cluster.exists(DeleteTopicsZnode.path("t"))
    assert await cluster.exists(TopicZnode.path("t"))
    for broker_id in {1, 2, 3} - cluster.members.keys():
        await cluster.up(broker_id)
    await cluster.admin.set(TopicZnode.path("t"), good)
    await cluster.settle()
    assert not await cluster.exists(TopicZnode.path("t"))
    assert not await cluster.exists(DeleteTopicsZnode.path("t"))


@pytest.mark.parametrize(
    "data",
    [
        *WRONG_TYPES[:5],
        b'{"controller_epoch":1,"leader":2,"leader_epoch":0,"isr":["x"]}',
        b'{"controller_epoch":1,"leader":2,"leader_epoch":0,"isr":"23"}',
        b'{"controller_epoch":1,"leader":2,"leader_epoch":99999999999,"isr":[2,3]}',
        b'{"controller_epoch":1,"leader":2,"leader_epoch":2147483647,"isr":[2,3]}',
        b'{"controller_epoch":1,"leader":Infinity,"leader_epoch":0,"isr":[2,3]}',
    ],
)
async def test_a_spoilt_state_concerns_its_partition_alone(
    cluster: Cluster, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.create("t", {0: [2, 3], 1: [2, 3]})
    good, _ = await cluster.admin.get(PartitionStateZnode.path("t", 0))
    await cluster.admin.set(PartitionStateZnode.path("t", 0), data)
    await cluster.kill(1)
    await assert_in_charge(cluster)
    await cluster.kill(2)
    await assert_in_charge(cluster)
    assert (await cluster.state("t", 1)).leader == 3
    assert (await cluster.admin.get(PartitionStateZnode.path("t", 0)))[0] == data, "nobody knows better"
    assert "a partition state cannot be read" in caplog.text
    await cluster.admin.set(PartitionStateZnode.path("t", 0), good)
    await cluster.up(1)
    await cluster.settle()
    assert (await cluster.state("t", 0)).leader == 3


async def test_a_move_whose_state_cannot_be_read_stops_nothing_else(cluster: Cluster) -> None:
    await cluster.up(4)
    await cluster.create("t", {0: [2, 3]})
    await cluster.create("u", {0: [2, 3]})
    u0 = TopicPartition("u", 0)
    await cluster.active.controller.alter_partition_reassignments({T0: [3, 4], u0: [3, 4]})
    await cluster.settle()
    good, _ = await cluster.admin.get(PartitionStateZnode.path("t", 0))
    await cluster.admin.set(PartitionStateZnode.path("t", 0), GARBAGE)
    await cluster.kill(1)
    await assert_in_charge(cluster)
    assert cluster.term.context.partitions_being_reassigned == {T0, u0}
    await cluster.admin.set(PartitionStateZnode.path("t", 0), good)
    await catch_up(cluster, 2, 3, 4)
    assert (await assignment(cluster)).replicas == (3, 4)


async def test_a_state_of_a_controller_that_never_was_concerns_its_partition_alone(
    cluster: Cluster,
) -> None:
    """This controller may not overwrite such a state; the guard fails if there is a later controller."""
    await cluster.create("t", {0: [2, 3], 1: [2, 3]})
    future = PartitionState(2, 5, (2, 3), 1_000)
    await cluster.admin.set(PartitionStateZnode.path("t", 0), PartitionStateZnode.encode(future))
    await cluster.kill(2)
    await assert_in_charge(cluster)
    assert cluster.active.controller.epoch == 1
    assert (await cluster.state("t", 0))[:4] == future[:4]
    assert (await cluster.state("t", 1)).leader == 3
    await cluster.kill(1)
    await assert_in_charge(cluster)
    assert (await cluster.state("t", 0))[:4] == future[:4]


# Requests and notes


@pytest.mark.parametrize(
    "data", [*WRONG_TYPES[:6], b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":3}]}']
)
@pytest.mark.parametrize("path", [ReassignPartitionsZnode.PATH, PreferredReplicaElectionZnode.PATH])
async def test_a_request_that_cannot_be_read_stops_no_other(cluster: Cluster, path: str, data: bytes) -> None:
    await cluster.create("t", {0: [2, 3]})
    await put(cluster.admin, path, data)
    await assert_in_charge(cluster)
    await cluster.kill(1)
    await assert_in_charge(cluster)
    assert (await cluster.state("t")).isr == (2, 3)


async def test_unreadable_notes_stop_no_start(cluster: Cluster) -> None:
    await cluster.create("t", {0: [2, 3]})
    for parent in (IsrChangeZnode.PARENT, LogDirEventZnode.PARENT):
        await cluster.admin.create(f"{parent}/note", GARBAGE)
        await cluster.admin.create(f"{parent}/tree/leaf", GARBAGE, make_parents=True)
    await assert_in_charge(cluster)
    state = await cluster.state("t")
    await cluster.admin.set(
        PartitionStateZnode.path("t", 0), PartitionStateZnode.encode(state._replace(isr=(2,)))
    )
    await cluster.admin.create(IsrChangeZnode.CREATE_PATH, IsrChangeZnode.encode([T0]), sequential=True)
    await cluster.settle()
    assert cluster.brokers[1].metadata[T0].isr == [2]
    await cluster.kill(1)
    await assert_in_charge(cluster)


async def test_settings_that_cannot_be_read_allow_no_unclean_election(cluster: Cluster) -> None:
    await cluster.create("t", {0: [2, 3]}, {"unclean.leader.election.enable": "true"})
    await cluster.create("u", {0: [2, 3]}, {"unclean.leader.election.enable": "true"})
    for topic in ("t", "u"):
        state = await cluster.state(topic)
        await cluster.admin.set(
            PartitionStateZnode.path(topic, 0), PartitionStateZnode.encode(state._replace(isr=(2,)))
        )
    await cluster.admin.set(ConfigZnode.path(ConfigZnode.TOPICS, "t"), GARBAGE)
    await cluster.kill(2)
    await assert_in_charge(cluster)
    assert (await cluster.state("t")).leader == -1
    assert (await cluster.state("u")).leader == 3


# Deleting


async def test_what_others_put_below_a_topic_goes_with_it(cluster: Cluster) -> None:
    await cluster.create("t", {0: [2, 3]})
    for extra in ("partitions/nine", "partitions/0/state/odd", "odd/odder"):
        await cluster.admin.create(f"{TopicZnode.path('t')}/{extra}", make_parents=True)
    await cluster.delete("t")
    assert not await cluster.exists(TopicZnode.path("t"))
    assert not await cluster.exists(DeleteTopicsZnode.path("t"))
