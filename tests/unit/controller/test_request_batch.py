"""Requests of one batch, and their order."""

from __future__ import annotations

from collections.abc import Callable, Collection

import pytest

from barnabas.cluster.znodes.brokers import BrokerInfo
from barnabas.cluster.znodes.layout import PartitionState, ReplicaAssignment
from barnabas.controller.channels.delivery import Delivery
from barnabas.controller.channels.request_batch import ALL, CHANGES, RequestBatch
from barnabas.controller.state.context import ControllerContext
from barnabas.core.addressing.endpoints import Endpoint, ListenerEndpoint
from barnabas.core.ids import BrokerId, TopicPartition, Uuid
from barnabas.protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from barnabas.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from barnabas.protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from barnabas.protocol.schema.message import Message

P = TopicPartition("t", 0)
TOPIC_ID = Uuid(bytes(range(16)))
STATE = PartitionState(1, 4, (1, 2), 3, state_version=8)


class Sent:
    """Receiver of the batch's requests and of their responses."""

    def __init__(self) -> None:
        self.requests: list[tuple[int, Message]] = []
        self.answers: list[tuple[object, ...]] = []
        self.deliveries: dict[Delivery, int] = {}
        self.waits: list[list[int]] = []
        """For each request, the brokers that must have answered before it is sent."""

    def send(
        self,
        broker_id: int,
        request: Message,
        kind: type[Message],
        answered: Callable[[Message], None],
        /,
        *,
        after: Collection[Delivery] = (),
    ) -> Delivery:
        delivery = Delivery()
        self.requests.append((broker_id, request))
        self.deliveries[delivery] = broker_id
        self.waits.append([self.deliveries[each] for each in after])
        answered(kind())
        return delivery

    def leader_and_isr_answered(self, broker_id: int, response: LeaderAndIsrResponse) -> None:
        self.answers.append((broker_id, type(response)))

    def update_metadata_answered(self, broker_id: int, response: UpdateMetadataResponse) -> None:
        self.answers.append((broker_id, type(response)))

    def stop_replica_answered(
        self, broker_id: int, response: StopReplicaResponse, deleted: frozenset[TopicPartition]
    ) -> None:
        self.answers.append((broker_id, type(response), deleted))

    def kinds(self, broker_id: int) -> list[type]:
        return [type(request) for each, request in self.requests if each == broker_id]


@pytest.fixture
def context() -> ControllerContext:
    context = ControllerContext()
    for broker_id in (1, 2, 3):
        endpoints = (
            ListenerEndpoint("EXTERNAL", Endpoint("198.51.100.1", 1_000 + broker_id), "SASL_SSL"),
            ListenerEndpoint("INTERNAL", Endpoint("192.0.2.1", 9_000 + broker_id)),
        )
        context.brokers[broker_id] = BrokerInfo(broker_id, endpoints, rack="r", epoch=70 + broker_id)
    context.put_topic_id("t", TOPIC_ID)
    context.put_assignment(P, ReplicaAssignment((1, 2, 9), adding_replicas=(9,), removing_replicas=(2,)))
    context.leadership[P] = STATE
    return context


@pytest.fixture
def sent() -> Sent:
    return Sent()


@pytest.fixture
def batch(context: ControllerContext, sent: Sent) -> RequestBatch:
    return RequestBatch(context, BrokerId(3), 3, "INTERNAL", sent.send, sent)


def test_leader_and_isr_says_everything_of_the_partition(batch: RequestBatch, sent: Sent) -> None:
    batch.add_leader_and_isr((1, 2, -1, 9), P, STATE, is_new=True)
    batch.flush()
    broker_id, request = sent.requests[0]
    assert broker_id == 1
    assert isinstance(request, LeaderAndIsrRequest)
    assert (request.controller_id, request.controller_epoch, request.broker_epoch) == (3, 3, 71)
    (topic,) = request.topic_states
    assert (topic.topic_name, topic.topic_id) == ("t", TOPIC_ID)
    (state,) = topic.partition_states
    assert (state.leader, state.leader_epoch, state.isr, state.partition_epoch) == (1, 4, [1, 2], 8)
    assert (state.replicas, state.adding_replicas, state.removing_replicas) == ([1, 2, 9], [9], [2])
    assert state.is_new
    (leader,) = request.live_leaders
    assert (leader.broker_id, leader.host_name, leader.port) == (1, "192.0.2.1", 9_001)
    assert {each for each, _ in sent.requests} == {1, 2, 3}, "nobody sends to a broker that is not there"


def test_everyone_gets_the_metadata_with_all_endpoints(batch: RequestBatch, sent: Sent) -> None:
    batch.add_leader_and_isr((1,), P, STATE)
    batch.flush()
    assert sent.kinds(1) == [LeaderAndIsrRequest, UpdateMetadataRequest]
    assert sent.kinds(3) == [UpdateMetadataRequest]
    request = sent.requests[-1][1]
    assert isinstance(request, UpdateMetadataRequest)
    assert [broker.id for broker in request.live_brokers] == [1, 2, 3]
    assert [(e.listener, e.security_protocol) for e in request.live_brokers[0].endpoints] == [
        ("EXTERNAL", 3),
        ("INTERNAL", 0),
    ]
    assert request.live_brokers[0].rack == "r"
    state = request.topic_states[0].partition_states[0]
    assert (state.leader, state.zk_version, state.offline_replicas) == (1, 8, [9])


def test_a_topic_that_is_being_deleted_has_no_leader_for_clients(
    batch: RequestBatch, context: ControllerContext, sent: Sent
) -> None:
    context.topics_to_be_deleted.add("t")
    batch.add_update_metadata((1,), (P,))
    batch.add_stop_replica((1,), P, delete=True)
    batch.flush()
    metadata, stop = (request for _, request in sent.requests)
    assert isinstance(metadata, UpdateMetadataRequest)
    assert isinstance(stop, StopReplicaRequest)
    assert metadata.topic_states[0].partition_states[0].leader == -2
    assert stop.topic_states[0].partition_states[0].leader_epoch == -2
    assert sent.answers[-1] == (1, StopReplicaResponse, frozenset({P}))


def test_a_stop_carries_the_epoch_and_the_deletion_wins(batch: RequestBatch, sent: Sent) -> None:
    batch.add_stop_replica((1,), P, delete=True)
    batch.add_stop_replica((1,), P, delete=False)
    batch.add_stop_replica((2,), P, delete=False)
    batch.flush()
    states = [
        request.topic_states[0].partition_states[0]
        for _, request in sent.requests
        if isinstance(request, StopReplicaRequest)
    ]
    assert [(state.leader_epoch, state.delete_partition) for state in states] == [(4, True), (4, False)]
    assert sent.answers == [
        (1, StopReplicaResponse, frozenset({P})),
        (2, StopReplicaResponse, frozenset()),
    ]


def test_a_replica_that_was_stopped_and_starts_again_hears_it_in_this_order(
    batch: RequestBatch, sent: Sent
) -> None:
    batch.add_stop_replica((2,), P, delete=True)
    batch.add_leader_and_isr((2,), P, STATE)
    batch.flush()
    assert sent.kinds(2) == [StopReplicaRequest, LeaderAndIsrRequest, UpdateMetadataRequest]


def test_a_new_replica_stays_new_however_often_it_is_told(batch: RequestBatch, sent: Sent) -> None:
    batch.add_leader_and_isr((2,), P, STATE, is_new=True)
    batch.add_leader_and_isr((2,), P, STATE._replace(leader_epoch=5))
    batch.flush()
    (request,) = [each for _, each in sent.requests if isinstance(each, LeaderAndIsrRequest)]
    (state,) = request.topic_states[0].partition_states
    assert state.is_new
    assert state.leader_epoch == 5


def test_an_empty_batch_sends_nothing(batch: RequestBatch, sent: Sent) -> None:
    batch.flush()
    batch.add_leader_and_isr((1,), P, STATE)
    batch.clear()
    batch.flush()
    assert sent.requests == []


# Leaderships that change hands


def orders(sent: Sent) -> list[tuple[int, list[int], list[int]]]:
    """LeaderAndIsr requests in order: recipient, partitions, and awaited brokers."""
    return [
        (broker_id, [s.partition_index for t in request.topic_states for s in t.partition_states], waits)
        for (broker_id, request), waits in zip(sent.requests, sent.waits, strict=True)
        if isinstance(request, LeaderAndIsrRequest)
    ]


def lead(batch: RequestBatch, context: ControllerContext, partition: int, leader: int, former: int) -> None:
    which = TopicPartition("t", partition)
    context.put_assignment(which, ReplicaAssignment((1, 2, 3)))
    state = PartitionState(leader, 5, (1, 2, 3), 3)
    batch.add_leader_and_isr((1, 2, 3), which, state, previous_leader=former)


def test_a_leadership_is_given_up_before_it_is_taken_up(
    batch: RequestBatch, context: ControllerContext, sent: Sent
) -> None:
    lead(batch, context, 0, leader=1, former=2)
    batch.flush()
    assert orders(sent) == [(2, [0], []), (3, [0], []), (1, [0], [2])]
    assert sent.kinds(1) == [LeaderAndIsrRequest, UpdateMetadataRequest], "it leads before clients are sent"


def test_brokers_that_change_places_do_not_wait_for_each_other(
    batch: RequestBatch, context: ControllerContext, sent: Sent
) -> None:
    lead(batch, context, 0, leader=1, former=2)
    lead(batch, context, 1, leader=2, former=1)
    batch.flush()
    assert orders(sent) == [
        (1, [1], []), (2, [0], []), (3, [0, 1], []), (1, [0], [2]), (2, [1], [1])
    ]  # fmt: skip


def test_no_request_waits_for_a_leader_that_is_gone_or_stays(
    batch: RequestBatch, context: ControllerContext, sent: Sent
) -> None:
    del context.brokers[3]
    lead(batch, context, 0, leader=1, former=3)
    lead(batch, context, 1, leader=1, former=1)
    lead(batch, context, 2, leader=1, former=-1)
    batch.flush()
    assert all(not waits for _, _, waits in orders(sent))


def test_a_complete_list_is_one_request_and_handovers_follow_it(
    batch: RequestBatch, context: ControllerContext, sent: Sent
) -> None:
    batch.complete_lists((1, 2, 3))
    batch.add_leader_and_isr((1, 2, 3), P, STATE)
    lead(batch, context, 0, leader=2, former=1)
    batch.flush()
    kinds = [(to, r.type, w) for (to, r), w in zip(sent.requests, sent.waits, strict=True)
             if isinstance(r, LeaderAndIsrRequest)]  # fmt: skip
    assert kinds[0][:2] == (1, ALL)
    assert kinds[-1] == (2, CHANGES, [1])


def test_after_a_take_over_only_what_is_in_doubt_waits(
    batch: RequestBatch, context: ControllerContext, sent: Sent
) -> None:
    batch.complete_lists((1, 2, 3))
    for partition, leader in enumerate((1, 1, 2)):
        which = TopicPartition("t", partition)
        context.put_assignment(which, ReplicaAssignment((1, 2, 3)))
        batch.add_leader_and_isr((1, 2, 3), which, PartitionState(leader, 5, (1, 2, 3), 3))
    batch.doubt_leaders([TopicPartition("t", 0)])
    batch.flush()
    assert orders(sent) == [
        (1, [1, 2], []), (2, [0, 1, 2], []), (3, [0, 1, 2], []), (1, [0, 1, 2], [2, 3])
    ]  # fmt: skip
