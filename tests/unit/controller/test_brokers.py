"""Brokers that come, go, bounce, lose a disk, and shut down."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from barnabas.cluster.znodes.brokers import BrokerIdZnode, BrokerInfo
from barnabas.cluster.znodes.layout import PartitionState, PartitionStateZnode, TopicZnode
from barnabas.cluster.znodes.notifications import LogDirEventZnode
from barnabas.controller.state.replica_states import PartitionReplica, ReplicaStatus
from barnabas.controller.state.store import Written
from barnabas.core.addressing.endpoints import Endpoint, ListenerEndpoint
from barnabas.core.errors import (
    BrokerNotAvailable,
    KafkaError,
    KafkaStorageError,
    NotController,
    StaleBrokerEpoch,
    StaleControllerEpoch,
    UnknownServerError,
)
from barnabas.core.ids import TopicPartition
from barnabas.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from barnabas.protocol.messages.stop_replica import StopReplicaRequest
from barnabas.protocol.messages.update_metadata import UpdateMetadataRequest
from tests.unit.controller.scripted_cluster import Cluster, set_partition_state

T0 = TopicPartition("t", 0)


async def test_a_broker_that_comes_hears_everything_before_it_follows(cluster: Cluster) -> None:
    await cluster.create("t", {0: [2, 3]})
    await cluster.kill(3)
    cluster.forget_requests()
    cluster.brokers[3].metadata.clear()
    await cluster.up(3)
    await cluster.settle()
    kinds = [type(request) for request in cluster.brokers[3].requests]
    assert kinds.index(UpdateMetadataRequest) < kinds.index(LeaderAndIsrRequest)
    assert cluster.brokers[3].metadata[T0].leader == 2
    assert cluster.brokers[3].roles[T0].leader == 2
    assert cluster.brokers[1].known_brokers == {1, 2, 3}
    state = await cluster.state("t")
    assert state.isr == (2,), "it is in sync again only when its leader says so"


async def test_a_partition_without_live_replicas_waits_for_one_in_sync(cluster: Cluster) -> None:
    await cluster.create("t", {0: [2, 3]})
    await cluster.kill(3)
    await cluster.kill(2)
    state = await cluster.state("t")
    assert (state.leader, state.isr) == (-1, (2,)), "who was in sync last is remembered"
    assert cluster.brokers[1].metadata[T0].leader == -1
    await cluster.up(3)
    await cluster.settle()
    assert (await cluster.state("t")).leader == -1, "it was not in sync"
    await cluster.up(2)
    await cluster.settle()
    later = await cluster.state("t")
    assert (later.leader, later.isr) == (2, (2,))
    assert later.leader_epoch > state.leader_epoch


async def test_a_new_partition_whose_brokers_are_all_dead_gets_its_leader_when_one_comes(
    cluster: Cluster,
) -> None:
    await cluster.kill(2)
    await cluster.create("t", {0: [2]})
    assert not await cluster.exists("/brokers/topics/t/partitions/0/state")
    await cluster.up(2)
    await cluster.settle()
    assert (await cluster.state("t")).leader == 2


async def test_a_bounced_broker_is_told_everything_again(cluster: Cluster) -> None:
    await cluster.create("t", {0: [2, 3], 1: [3, 2]})
    former = cluster.brokers[2].epoch
    cluster.forget_requests()
    await cluster.bounce(2)
    assert cluster.brokers[2].epoch > former
    roles = cluster.brokers[2].roles
    assert {partition: state.leader for partition, state in roles.items()} == {
        TopicPartition("t", 0): 3,
        TopicPartition("t", 1): 3,
    }
    assert all(request.broker_epoch > former for request in cluster.brokers[2].requests)  # type: ignore[attr-defined]
    assert (await cluster.state("t")).isr == (3,)


async def test_a_broker_that_moves_to_another_endpoint_is_told_to_all(cluster: Cluster) -> None:
    member = cluster.members[3]
    elsewhere = BrokerInfo(3, (ListenerEndpoint("PLAINTEXT", Endpoint("192.0.2.77", 9_777)),))
    await member.session.set(BrokerIdZnode.path(3), BrokerIdZnode.encode(elsewhere))
    await cluster.settle()
    (known,) = [
        broker
        for broker in cluster.brokers[1].of_kind(UpdateMetadataRequest)[-1].live_brokers
        if broker.id == 3
    ]
    assert (known.endpoints[0].host, known.endpoints[0].port) == ("192.0.2.77", 9_777)
    await member.session.set(BrokerIdZnode.path(3), BrokerIdZnode.encode(elsewhere._replace(rack="r")))
    await cluster.settle()
    assert cluster.term.context.brokers[3].rack == "r", "it is watched again"


async def test_requests_are_sent_until_the_broker_answers(cluster: Cluster) -> None:
    cluster.brokers[3].is_reachable = False
    await cluster.create("t", {0: [2, 3]})
    assert T0 not in cluster.brokers[3].roles
    await cluster.advance(ms=100)
    await cluster.advance(ms=100)
    assert cluster.brokers[3].sends >= 3
    cluster.brokers[3].is_reachable = True
    await cluster.advance(ms=100)
    assert cluster.brokers[3].roles[T0].leader == 2
    assert cluster.brokers[3].metadata[T0].leader == 2


async def test_nothing_is_sent_to_a_broker_that_is_gone(cluster: Cluster) -> None:
    cluster.brokers[3].is_reachable = False
    await cluster.create("t", {0: [2, 3]})
    await cluster.kill(3)
    sends = cluster.brokers[3].sends
    await cluster.advance(ms=1_000)
    assert cluster.brokers[3].sends == sends


async def test_a_replica_leaves_the_isr_even_if_its_leader_wrote_in_between(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.create("t", {0: [1, 2, 3]})
    store = cluster.term.replicas._store
    update_states = store.update_states
    shrunk: list[int] = []

    async def shrink_first(states: Mapping[TopicPartition, PartitionState]) -> Written:
        if not shrunk and states:
            shrunk.append(1)
            await set_partition_state(cluster.admin, "t", 0, (await cluster.state("t"))._replace(isr=(1, 3)))
        return await update_states(states)

    monkeypatch.setattr(store, "update_states", shrink_first)
    await cluster.kill(3)
    assert shrunk
    assert (await cluster.state("t")).isr == (1,)
    assert cluster.brokers[2].roles[T0].isr == [1]


# Orderly shutdown


async def test_controlled_shutdown_moves_leaderships_away(cluster: Cluster) -> None:
    await cluster.create("t", {0: [2, 3], 1: [3, 2], 2: [2]})
    remaining = await cluster.active.controller.controlled_shutdown(2, cluster.brokers[2].epoch)
    await cluster.settle()
    assert remaining == [], "what nobody else has a replica of is not waited for"
    assert [(await cluster.state("t", each)).leader for each in range(3)] == [3, 3, 2]
    assert (await cluster.state("t", 0)).isr == (3,)
    assert (await cluster.state("t", 1)).isr == (3,), "it leaves the ISR of what it follows, too"
    stopped = cluster.brokers[2].of_kind(StopReplicaRequest)
    assert [each.partition_states[0].partition_index for r in stopped for each in r.topic_states] == [1]
    assert cluster.term.context.live_broker_ids == {1, 3}


async def test_a_broker_that_shuts_down_is_told_what_an_heir_may_yet_be_found_for(cluster: Cluster) -> None:
    await cluster.create("t", {0: [2, 3], 1: [2]})
    await cluster.kill(3)
    remaining = await cluster.active.controller.controlled_shutdown(2, cluster.brokers[2].epoch)
    assert remaining == [TopicPartition("t", 0)], "the other replica may come back, and be in sync"


async def test_a_broker_that_shuts_down_is_not_elected(cluster: Cluster) -> None:
    await cluster.create("t", {0: [2, 3]})
    await cluster.active.controller.controlled_shutdown(3, -1)
    await cluster.kill(2)
    assert (await cluster.state("t")).leader == -1
    await cluster.kill(3)
    await cluster.up(3)
    await cluster.settle()
    assert cluster.term.context.live_broker_ids == {1, 3}, "its next life is live again"


async def test_controlled_shutdown_of_a_previous_life_is_refused(cluster: Cluster) -> None:
    with pytest.raises(StaleBrokerEpoch):
        await cluster.active.controller.controlled_shutdown(2, cluster.brokers[2].epoch - 1)
    with pytest.raises(BrokerNotAvailable):
        await cluster.active.controller.controlled_shutdown(9, -1)
    with pytest.raises(NotController):
        await cluster.members[2].controller.controlled_shutdown(2, -1)


# Disks


async def test_a_failed_disk_moves_the_leaderships_on_it(cluster: Cluster) -> None:
    await cluster.create("t", {0: [2, 3], 1: [2, 3]})
    cluster.brokers[2].offline = {T0}
    await cluster.members[2].session.create(
        LogDirEventZnode.CREATE_PATH, LogDirEventZnode.encode(2), sequential=True
    )
    await cluster.settle()
    assert (await cluster.state("t", 0)).leader == 3
    assert (await cluster.state("t", 1)).leader == 2
    assert cluster.term.context.replicas_on_offline_dirs[2] == {T0}
    states = cluster.term.context.replica_states
    assert states[PartitionReplica(T0, 2)] is ReplicaStatus.OFFLINE
    assert cluster.brokers[1].metadata[T0].offline_replicas == [2]
    assert await cluster.admin.children(LogDirEventZnode.PARENT) == []


async def test_a_broker_that_comes_back_has_its_disk_again(cluster: Cluster) -> None:
    await cluster.create("t", {0: [2, 3]})
    cluster.brokers[2].offline = {T0}
    await cluster.members[2].session.create(
        LogDirEventZnode.CREATE_PATH, LogDirEventZnode.encode(2), sequential=True
    )
    await cluster.settle()
    await cluster.kill(2)
    cluster.brokers[2].offline = set()
    await cluster.up(2)
    await cluster.settle()
    assert cluster.term.context.replicas_on_offline_dirs[2] == set()
    assert cluster.brokers[2].roles[T0].leader == 3


@pytest.mark.parametrize(
    ("error", "is_worth_a_line"), [(StaleControllerEpoch, False), (UnknownServerError, True)]
)
async def test_a_replica_that_knows_its_state_already_is_no_trouble(
    cluster: Cluster, caplog: pytest.LogCaptureFixture, error: type[KafkaError], is_worth_a_line: bool
) -> None:
    await cluster.create("t", {0: [2, 3]})
    (topic_id,) = (key for key, name in cluster.term.context.topic_names.items() if name == "t")
    answer = LeaderAndIsrPartitionError(partition_index=0, error_code=error.code)
    topic = LeaderAndIsrTopicError(topic_id=topic_id, partition_errors=[answer])
    caplog.clear()
    await cluster.term.brokers.leader_and_isr_answered(2, LeaderAndIsrResponse(topics=[topic]))
    lines = [record for record in caplog.records if record.levelname == "WARNING"]
    assert bool(lines) == is_worth_a_line
    assert cluster.term.context.replicas_on_offline_dirs[2] == set()


def test_the_error_of_a_lost_disk_is_that_of_storage() -> None:
    assert KafkaStorageError.code == 56


# Replicas that a broker has, and those it has lost

CHANGES, ALL = 1, 2


def lists(cluster: Cluster, broker_id: int) -> list[tuple[int, set[TopicPartition]]]:
    """The LeaderAndIsr requests that a broker got: of which type, and what they name."""
    return [
        (
            request.type,
            {
                TopicPartition(topic.topic_name, state.partition_index)
                for topic in request.topic_states
                for state in topic.partition_states
            },
        )
        for request in cluster.brokers[broker_id].of_kind(LeaderAndIsrRequest)
    ]


async def test_a_broker_that_comes_is_told_all_that_it_has(cluster: Cluster) -> None:
    await cluster.create("t", {0: [2, 3], 1: [1, 2]})
    await cluster.create("u", {0: [3, 1]})
    await cluster.kill(3)
    cluster.forget_requests()
    await cluster.up(3)
    await cluster.settle()
    everything = {TopicPartition("t", 0), TopicPartition("u", 0)}
    assert lists(cluster, 3) == [(ALL, everything)]
    cluster.forget_requests()
    await cluster.bounce(3)
    assert lists(cluster, 3) == [(ALL, everything)]
    cluster.forget_requests()
    await cluster.create("v", {0: [3]})
    assert lists(cluster, 3) == [(CHANGES, {TopicPartition("v", 0)})]


async def test_a_new_controller_tells_every_broker_all_that_it_has(cluster: Cluster) -> None:
    await cluster.create("t", {0: [2, 3], 1: [1, 2]})
    cluster.forget_requests()
    await cluster.kill(1)
    assert lists(cluster, 2)[0] == (ALL, {TopicPartition("t", 0), TopicPartition("t", 1)})
    assert lists(cluster, 3)[0] == (ALL, {TopicPartition("t", 0)})


@pytest.mark.parametrize("path", [TopicZnode.path("t"), PartitionStateZnode.path("t", 0)])
async def test_a_list_that_may_lack_something_is_not_called_complete(cluster: Cluster, path: str) -> None:
    """A broker would put away a replica of what the controller cannot read."""
    await cluster.create("t", {0: [2, 3]})
    await cluster.create("u", {0: [2, 3]})
    good, _ = await cluster.admin.get(path)
    await cluster.admin.set(path, b"{")
    await cluster.kill(1)
    assert {kind for kind, _ in lists(cluster, 3)[1:]} <= {CHANGES}
    cluster.forget_requests()
    await cluster.bounce(3)
    assert lists(cluster, 3) == [(CHANGES, {TopicPartition("u", 0)})]
    await cluster.admin.set(path, good)
    await cluster.settle()
    await cluster.bounce(3)
    cluster.forget_requests()
    await cluster.bounce(3)
    assert (ALL, {TopicPartition("t", 0), TopicPartition("u", 0)}) in lists(cluster, 3)


async def test_everyone_hears_of_every_partition_from_a_new_controller(cluster: Cluster) -> None:
    """Including partitions that no replica can lead: a new broker must not take them for deleted."""
    await cluster.create("t", {0: [2, 3], 1: [3]})
    await cluster.create("gone", {0: [1]})
    cluster.forget_requests()
    for broker in cluster.brokers.values():
        broker.metadata.clear()
    await cluster.kill(1)
    for broker_id in (2, 3):
        assert cluster.brokers[broker_id].metadata.keys() == {
            TopicPartition("t", 0),
            TopicPartition("t", 1),
            TopicPartition("gone", 0),
        }
        assert cluster.brokers[broker_id].metadata[TopicPartition("gone", 0)].leader == -1
