"""LeaderAndIsr and StopReplica, in time and too late."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from barnabas.client.aio.channel import Channel
from barnabas.cluster.znodes.layout import PartitionState
from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.errors import (
    FencedLeaderEpoch,
    InconsistentTopicId,
    StaleBrokerEpoch,
    StaleControllerEpoch,
    UnknownTopicOrPartition,
)
from barnabas.core.ids import TopicPartition, Uuid
from barnabas.protocol.messages import leader_and_isr, update_metadata
from barnabas.protocol.messages.leader_and_isr import LeaderAndIsrResponse
from tests.scenario.replication.support import TOPIC, ZERO, Listener, eventually, trio


def code_of(answer: LeaderAndIsrResponse) -> int:
    return answer.topics[0].partition_errors[0].error_code


async def test_topic_settings_are_read_before_a_log_is_made(tmp_path: Path) -> None:
    async with trio(tmp_path, 1) as cluster:
        answers = await cluster.lead(1, epoch=0)
        assert code_of(answers[1]) == 0
        assert cluster[1].configs.loaded == [TOPIC]


async def test_old_versions_are_answered_in_their_form(tmp_path: Path) -> None:
    async with trio(tmp_path, 1) as cluster:
        await cluster.lead(1, epoch=0)
        order = cluster.order([ZERO], [1], 1)
        order.type = 0
        order.topic_states[0].partition_states[0].leader_epoch = 1
        answer = await cluster[1].ask(order, LeaderAndIsrResponse, 4)
        assert answer.topics == []
        assert [each.error_code for each in answer.partition_errors] == [0]
        assert cluster[1].partition().leadership.leader_epoch == 1


async def test_a_broker_leads_before_it_follows_and_answers_in_the_order_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [TopicPartition(TOPIC, number) for number in range(40)]
    async with trio(tmp_path, 2) as cluster:
        for key in keys:
            cluster.store.states[key] = PartitionState(
                leader=1 + key.partition % 2, leader_epoch=0, isr=(1, 2), controller_epoch=1, state_version=0
            )
        await cluster.tell_metadata(keys, [1, 2])
        heard: list[str] = []
        replicas = cluster[1].replicas
        elected, follow = replicas.local.elected, replicas.fetchers.follow

        def hears_elected(*given: Any, **more: Any) -> None:
            heard.append("leads")
            elected(*given, **more)

        def hears_follow(*given: Any) -> None:
            heard.append("follows")
            follow(*given)

        monkeypatch.setattr(replicas.local, "elected", hears_elected)
        monkeypatch.setattr(replicas.fetchers, "follow", hears_follow)
        answer = await cluster[1].ask(cluster.order(keys, [1, 2], 1), LeaderAndIsrResponse)
        assert heard == ["leads"] * 20 + ["follows"] * 20
        (topic,) = answer.topics
        assert [each.partition_index for each in topic.partition_errors] == list(range(40))


async def test_a_leader_that_does_not_know_yet_is_complained_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "barnabas.replication.follower.replica_fetcher")
    keys = [TopicPartition(TOPIC, number) for number in range(40)]
    async with trio(tmp_path, 2) as cluster:
        await cluster.lead(2, epoch=0, keys=keys, tell=[1])
        await eventually(lambda: "and 37 more: broker 2 refuses the fetch" in caplog.text)
        await cluster.lead(2, epoch=1, keys=keys)
        produced = await cluster[2].produce(b"record", key=keys[-1])
        assert (produced.error_code, cluster[1].end(keys[-1])) == (0, 1)
        assert caplog.text.count("broker 2 refuses the fetch") < len(keys) / 4


async def test_a_previous_controller_is_refused(tmp_path: Path) -> None:
    async with trio(tmp_path, 1) as cluster:
        cluster.controller_epoch = 5
        await cluster.lead(1, epoch=3)
        cluster.controller_epoch = 4
        order = cluster.order([ZERO], [1], 1)
        assert (await cluster[1].ask(order, LeaderAndIsrResponse)).error_code == StaleControllerEpoch.code
        assert (await cluster.stop_replica(1, delete=True)).error_code == StaleControllerEpoch.code
        metadata = update_metadata.UpdateMetadataRequest(controller_id=8, controller_epoch=4)
        refused = await cluster[1].ask(metadata, update_metadata.UpdateMetadataResponse)
        assert refused.error_code == StaleControllerEpoch.code
        assert cluster[1].metadata.controller_id == 9


async def test_an_order_for_an_earlier_life_of_the_broker_is_refused(tmp_path: Path) -> None:
    async with trio(tmp_path, 1) as cluster:
        await cluster.lead(1, epoch=0)
        cluster[1].epoch = 7
        order = cluster.order([ZERO], [1], 6)
        assert (await cluster[1].ask(order, LeaderAndIsrResponse)).error_code == StaleBrokerEpoch.code


async def test_a_lower_leader_epoch_changes_nothing(tmp_path: Path) -> None:
    async with trio(tmp_path, 2) as cluster:
        await cluster.lead(1, epoch=4)
        answers = await cluster.lead(2, epoch=3)
        assert {code_of(answer) for answer in answers.values()} == {StaleControllerEpoch.code}
        assert cluster[1].partition().leadership.is_leader
        assert cluster[2].partition().leadership.leader_id == 1


async def test_a_replica_that_is_not_assigned_is_not_made(tmp_path: Path) -> None:
    async with trio(tmp_path, 2) as cluster:
        await cluster.lead(1, epoch=0, replicas=[1])
        answer = await cluster[2].ask(cluster.order([ZERO], [1], 1), LeaderAndIsrResponse)
        assert code_of(answer) == UnknownTopicOrPartition.code
        assert cluster[2].logs.get(ZERO) is None


async def test_another_topic_of_the_same_name_is_refused(tmp_path: Path) -> None:
    async with trio(tmp_path, 1) as cluster:
        await cluster.lead(1, epoch=0)
        order = cluster.order([ZERO], [1], 1)
        order.topic_states[0].topic_id = Uuid(bytes(15) + b"\7")
        order.topic_states[0].partition_states[0].leader_epoch = 1
        assert code_of(await cluster[1].ask(order, LeaderAndIsrResponse)) == InconsistentTopicId.code


async def test_coordinators_hear_who_leads_their_partitions(tmp_path: Path) -> None:
    async with trio(tmp_path, 2) as cluster:
        listener = Listener(TOPIC)
        cluster[1].replicas.local.notify_leadership(listener)
        await cluster.lead(1, epoch=0)
        await cluster.lead(2, epoch=1)
        await cluster.lead(1, epoch=2)
        assert listener.heard == [("elected", 0, 0), ("resigned", 0, 1), ("elected", 0, 2)]


async def test_the_controllers_isr_replaces_ours_within_an_epoch(tmp_path: Path) -> None:
    async with trio(tmp_path) as cluster:
        listener = Listener(TOPIC)
        cluster[1].replicas.local.notify_leadership(listener)
        await cluster.lead(1, epoch=0)
        await cluster[1].produce(b"value")
        cluster.cut_link(3, 1)
        await cluster.lead(1, epoch=0, isr=[1, 2])
        assert cluster[1].partition().leadership.isr == {1, 2}
        assert cluster[1].partition().leadership.partition_epoch == 1
        assert listener.heard == [("elected", 0, 0)], "nobody was elected"
        assert (await cluster[1].produce(b"value")).error_code == 0


async def test_a_stopped_replica_neither_leads_nor_follows(tmp_path: Path) -> None:
    async with trio(tmp_path, 2) as cluster:
        await cluster.lead(1, epoch=2)
        await cluster[1].produce(b"value")
        fenced = await cluster.stop_replica(2, delete=True, epoch=1)
        assert fenced.partition_errors[0].error_code == FencedLeaderEpoch.code
        assert cluster[2].end() == 1
        stopped = await cluster.stop_replica(2, delete=False, epoch=2)
        assert stopped.partition_errors[0].error_code == 0
        await cluster[1].produce(b"more", acks=1)
        assert cluster[2].end() == 1
        answers = await cluster.lead(1, epoch=1)
        assert code_of(answers[2]) == StaleControllerEpoch.code, "it remembers its epoch"
        await cluster.lead(1, epoch=3)
        await eventually(lambda: cluster[2].end() == 2)


async def test_a_deleted_replica_leaves_nothing(tmp_path: Path) -> None:
    async with trio(tmp_path, 2) as cluster:
        await cluster.lead(1, epoch=0)
        await cluster[1].produce(b"value")
        await cluster.stop_replica(2, delete=True)
        assert cluster[2].replicas.find(ZERO) is None
        assert cluster[2].logs.get(ZERO) is None
        assert not (tmp_path / "broker-2" / str(ZERO)).exists()


async def test_a_full_list_sets_aside_logs_that_it_does_not_name(tmp_path: Path) -> None:
    async with trio(tmp_path, 1) as cluster:
        await cluster.lead(1, epoch=0, keys=[ZERO, ZERO._replace(partition=1)])
        order = cluster.order([ZERO], [1], 1)
        order.type = 2
        order.topic_states[0].partition_states[0].leader_epoch = 1
        await cluster[1].ask(order, LeaderAndIsrResponse)
        assert [str(log.topic_partition) for log in cluster[1].logs.logs()] == [str(ZERO)]
        assert len(list((tmp_path / "broker-1").glob("*-stray"))) == 1


async def test_a_deleted_topic_leaves_the_metadata(tmp_path: Path) -> None:
    async with trio(tmp_path, 1) as cluster:
        await cluster.lead(1, epoch=0)
        assert TOPIC in cluster[1].metadata
        state = cluster.store.states[ZERO]
        cluster.store.states[ZERO] = state._replace(leader=-2)
        await cluster.tell_metadata([ZERO], [1])
        assert TOPIC not in cluster[1].metadata


@pytest.mark.parametrize("version", range(8))
async def test_every_version_of_the_order_is_understood(tmp_path: Path, version: int) -> None:
    async with trio(tmp_path, 1) as cluster:
        await cluster.lead(1, epoch=0)
        order = cluster.order([ZERO], [1], 1)
        (topic,) = order.topic_states
        (state,) = topic.partition_states
        state.leader_epoch = 9
        if version < 5:
            order.type = 0
        if version < 2:
            state.topic_name = TOPIC
            order.ungrouped_partition_states, order.topic_states = [state], []
        channel = await Channel.connect(Endpoint("127.0.0.1", cluster[1].address.port))
        answer = await channel.send(order, leader_and_isr.LeaderAndIsrResponse, version_max=version)
        channel.close()
        assert answer.error_code == 0
        assert cluster[1].partition().leadership.leader_epoch == 9
