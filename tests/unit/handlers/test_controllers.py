"""Administrative requests in a cluster: only the controller answers, and its outcomes become responses."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from barnabas.cluster.metadata.cache import PartitionMetadata
from barnabas.cluster.znodes.layout import PartitionState, ReplicaAssignment
from barnabas.controller.machines.partition_machine import Election
from barnabas.core.errors import (
    ElectionNotNeeded,
    InvalidReplicaAssignment,
    KafkaError,
    NotController,
    PreferredLeaderNotAvailable,
    RequestTimedOut,
    StaleBrokerEpoch,
    UnknownTopicOrPartition,
)
from barnabas.core.ids import TopicPartition
from barnabas.handlers.alter_partition_reassignments import ALTER_PARTITION_REASSIGNMENTS
from barnabas.handlers.controlled_shutdown import CONTROLLED_SHUTDOWN
from barnabas.handlers.create_partitions import CREATE_PARTITIONS
from barnabas.handlers.create_topics import CREATE_TOPICS
from barnabas.handlers.delete_topics import DELETE_TOPICS
from barnabas.handlers.describe_configs import DESCRIBE_CONFIGS
from barnabas.handlers.elect_leaders import ELECT_LEADERS
from barnabas.handlers.list_partition_reassignments import LIST_PARTITION_REASSIGNMENTS
from barnabas.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas.protocol.messages.controlled_shutdown import ControlledShutdownRequest
from barnabas.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from barnabas.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from tests.unit.handlers.support import Broker

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class ScriptedController:
    """Controller with scripted outcomes, which records its calls."""

    def __init__(self) -> None:
        self.is_active = True
        self.asked: list[Any] = []
        self.answer: Any = None

    def _answer(self, *asked: Any) -> Any:
        self.asked.append(asked)
        if not self.is_active:
            raise NotController("not here")
        if isinstance(self.answer, KafkaError):
            raise self.answer
        return self.answer

    async def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> Any:
        return self._answer(broker_id, broker_epoch)

    async def elect_leaders(self, election: Election, partitions: Collection[TopicPartition] | None) -> Any:
        return self._answer(election, partitions)

    async def alter_partition_reassignments(
        self,
        targets: Mapping[TopicPartition, Sequence[int] | None],
        *,
        allow_replication_factor_change: bool = True,
    ) -> Any:
        return self._answer(targets, allow_replication_factor_change)

    async def list_partition_reassignments(self, partitions: Collection[TopicPartition] | None = None) -> Any:
        return self._answer(partitions)


@pytest.fixture
async def broker(tmp_path: Path) -> Any:
    async with AsyncExitStack() as stack:
        broker = Broker(tmp_path, stack)
        await broker.start()
        real = broker.controller
        broker.controller = broker.services.controller = ScriptedController()  # type: ignore[assignment]
        yield broker
        broker.controller = real


async def test_topics_are_administered_by_the_controller(broker: Any) -> None:
    broker.controller.is_active = False
    created = await broker.ask(
        CREATE_TOPICS,
        CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1)]),
    )
    assert created.topics[0].error_code == NotController.code
    grown = await broker.ask(
        CREATE_PARTITIONS, CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="t", count=2)])
    )
    assert grown.results[0].error_code == NotController.code
    deleted = await broker.ask(DELETE_TOPICS, DeleteTopicsRequest(topics=[DeleteTopicState(name="t")]))
    assert deleted.responses[0].error_code == NotController.code
    broker.controller.is_active = True
    created = await broker.ask(
        CREATE_TOPICS,
        CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1)]),
    )
    assert created.topics[0].error_code == 0


async def test_controlled_shutdown_says_what_remains(broker: Any) -> None:
    broker.controller.answer = [T0, T1]
    request = ControlledShutdownRequest(broker_id=4, broker_epoch=9)
    response = await broker.ask(CONTROLLED_SHUTDOWN, request)
    assert broker.controller.asked == [(4, 9)]
    remaining = [(each.topic_name, each.partition_index) for each in response.remaining_partitions]
    assert remaining == [("t", 0), ("t", 1)]
    broker.controller.answer = StaleBrokerEpoch("old")
    assert (await broker.ask(CONTROLLED_SHUTDOWN, request)).error_code == StaleBrokerEpoch.code
    broker.controller.is_active = False
    assert (await broker.ask(CONTROLLED_SHUTDOWN, request)).error_code == NotController.code


def elected(leader_epoch: int) -> PartitionState:
    return PartitionState(1, leader_epoch, (1,), 1)


@pytest.mark.parametrize("version", ELECT_LEADERS.versions)
async def test_elections_are_answered_per_partition(broker: Any, version: int) -> None:
    broker.metadata.put_topic("t", bytes(16), [PartitionMetadata(0, (1,), leader=1, leader_epoch=5)])
    broker.controller.answer = {T0: elected(5), T1: PreferredLeaderNotAvailable("no")}
    request = ElectLeadersRequest(topic_partitions=[TopicPartitions(topic="t", partitions=[0, 1])])
    response = await broker.ask(ELECT_LEADERS, request, version)
    assert broker.controller.asked == [(Election.PREFERRED, [T0, T1])]
    (topic,) = response.replica_election_results
    assert [(each.partition_id, each.error_code) for each in topic.partition_result] == [
        (0, 0),
        (1, PreferredLeaderNotAvailable.code),
    ]


async def test_a_long_name_is_not_repeated_for_each_partition(broker: Any) -> None:
    """Forty kilobytes of a request got thirty megabytes of messages."""
    name, partitions = "x" * 30_000, list(range(1_000))
    broker.controller.answer = {
        TopicPartition(name, each): UnknownTopicOrPartition(f"there is no partition {name}-{each}")
        for each in partitions
    }
    request = ElectLeadersRequest(topic_partitions=[TopicPartitions(topic=name, partitions=partitions)])
    response = await broker.ask(ELECT_LEADERS, request, 2)
    (topic,) = response.replica_election_results
    assert len(topic.partition_result) == 1_000
    assert max(len(each.error_message) for each in topic.partition_result) < 300


async def test_of_all_partitions_only_those_are_named_that_needed_an_election(broker: Any) -> None:
    broker.controller.answer = {T0: ElectionNotNeeded("no"), T1: PreferredLeaderNotAvailable("no")}
    request = ElectLeadersRequest(topic_partitions=None, election_type=1)
    response = await broker.ask(ELECT_LEADERS, request)
    assert broker.controller.asked == [(Election.OFFLINE_UNCLEAN, None)]
    assert [each.partition_id for each in response.replica_election_results[0].partition_result] == [1]


async def test_an_election_this_broker_does_not_hear_of_in_time_says_so(broker: Any) -> None:
    broker.metadata.put_topic("t", bytes(16), [PartitionMetadata(0, (1,), leader=1, leader_epoch=4)])
    broker.controller.answer = {T0: elected(5)}
    request = ElectLeadersRequest(topic_partitions=[TopicPartitions(topic="t", partitions=[0])], timeout_ms=0)
    response = await broker.ask(ELECT_LEADERS, request)
    assert response.replica_election_results[0].partition_result[0].error_code == RequestTimedOut.code


async def test_an_election_elsewhere_is_refused(broker: Any) -> None:
    broker.controller.is_active = False
    request = ElectLeadersRequest(topic_partitions=[TopicPartitions(topic="t", partitions=[0])])
    response = await broker.ask(ELECT_LEADERS, request)
    assert response.error_code == NotController.code


async def test_reassignments_are_altered_by_the_controller(broker: Any) -> None:
    broker.controller.answer = {T0: None, T1: InvalidReplicaAssignment("no")}
    request = AlterPartitionReassignmentsRequest(
        allow_replication_factor_change=False,
        topics=[
            ReassignableTopic(
                name="t",
                partitions=[
                    ReassignablePartition(partition_index=0, replicas=None),
                    ReassignablePartition(partition_index=1, replicas=[7]),
                ],
            )
        ],
    )
    response = await broker.ask(ALTER_PARTITION_REASSIGNMENTS, request)
    assert broker.controller.asked == [({T0: None, T1: [7]}, False)]
    assert [each.error_code for each in response.responses[0].partitions] == [
        0,
        InvalidReplicaAssignment.code,
    ]
    broker.controller.is_active = False
    assert (await broker.ask(ALTER_PARTITION_REASSIGNMENTS, request)).error_code == NotController.code


async def test_reassignments_under_way_are_listed(broker: Any) -> None:
    broker.controller.answer = {T0: ReplicaAssignment((3, 1), (3,), (1,))}
    everything = ListPartitionReassignmentsRequest(topics=None)
    response = await broker.ask(LIST_PARTITION_REASSIGNMENTS, everything)
    (row,) = response.topics[0].partitions
    assert (row.partition_index, row.replicas, row.adding_replicas, row.removing_replicas) == (
        0, [3, 1], [3], [1],
    )  # fmt: skip
    some = ListPartitionReassignmentsRequest(
        topics=[ListPartitionReassignmentsTopics(name="t", partition_indexes=[0, 1])]
    )
    await broker.ask(LIST_PARTITION_REASSIGNMENTS, some)
    assert broker.controller.asked == [(None,), ([T0, T1],)]
    broker.controller.is_active = False
    assert (await broker.ask(LIST_PARTITION_REASSIGNMENTS, some)).error_code == NotController.code


async def test_settings_of_a_topic_that_other_brokers_have_are_shown(broker: Any) -> None:
    created = CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1)])
    await broker.ask(CREATE_TOPICS, created)
    broker.configs.remove_topic("t")
    request = DescribeConfigsRequest(resources=[DescribeConfigsResource(resource_type=2, resource_name="t")])
    response = await broker.ask(DESCRIBE_CONFIGS, request)
    assert response.results[0].error_code == 0
    assert response.results[0].configs
