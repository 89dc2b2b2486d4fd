"""Changes of the metadata cache by UpdateMetadata."""

from __future__ import annotations

from typing import Any

from barnabas.cluster.metadata.cache import MetadataCache
from barnabas.cluster.metadata.updates import LEADER_DURING_DELETE, apply_update
from barnabas.core.addressing.endpoints import Endpoint, ListenerEndpoint
from barnabas.core.ids import Uuid
from barnabas.protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)

ID = Uuid(bytes(range(16)))
OTHER_ID = Uuid(bytes(range(1, 17)))


def state(partition: int, leader: int = 1, **fields: Any) -> UpdateMetadataPartitionState:
    return UpdateMetadataPartitionState(
        partition_index=partition, leader=leader, leader_epoch=3, isr=[1, 2], replicas=[1, 2], **fields
    )


def update(*states: UpdateMetadataPartitionState, topic_id: Uuid = ID) -> UpdateMetadataRequest:
    topics = [UpdateMetadataTopicState(topic_name="topic", topic_id=topic_id, partition_states=list(states))]
    return UpdateMetadataRequest(controller_id=2, controller_epoch=1, topic_states=topics if states else [])


def test_partitions_that_are_named_change_and_others_stay() -> None:
    metadata = MetadataCache("cluster")
    apply_update(metadata, update(state(0), state(1)))
    apply_update(metadata, update(state(1, leader=2, offline_replicas=[1])))
    topic = metadata.topic("topic")
    assert topic is not None
    assert [each.leader for each in topic.partitions] == [1, 2]
    assert topic.partitions[1].offline == (1,)
    assert metadata.topic_by_id(ID) is topic
    assert metadata.controller_id == 2


def test_a_partition_before_its_predecessors_leaves_a_gap_to_be_filled() -> None:
    metadata = MetadataCache("cluster")
    apply_update(metadata, update(state(2)))
    topic = metadata.topic("topic")
    assert topic is not None
    assert [each.leader for each in topic.partitions] == [-1, -1, 1]
    apply_update(metadata, update(state(0), state(1)))
    topic = metadata.topic("topic")
    assert topic is not None
    assert [each.leader for each in topic.partitions] == [1, 1, 1]


def test_a_topic_goes_with_its_last_partition() -> None:
    metadata = MetadataCache("cluster")
    apply_update(metadata, update(state(0), state(1)))
    assert apply_update(metadata, update(state(1, leader=LEADER_DURING_DELETE))) == []
    assert apply_update(metadata, update(state(0, leader=LEADER_DURING_DELETE))) == ["topic"]
    assert metadata.topic("topic") is None
    assert metadata.topic_by_id(ID) is None
    assert apply_update(metadata, update(state(0, leader=LEADER_DURING_DELETE))) == []


def test_a_topic_made_again_has_nothing_of_the_old_one() -> None:
    metadata = MetadataCache("cluster")
    apply_update(metadata, update(state(0), state(1)))
    apply_update(metadata, update(state(0), topic_id=OTHER_ID))
    topic = metadata.topic("topic")
    assert topic is not None
    assert (topic.topic_id, len(topic.partitions)) == (OTHER_ID, 1)
    assert metadata.topic_by_id(ID) is None


def test_old_controllers_name_no_ids_and_no_listeners() -> None:
    metadata = MetadataCache("cluster")
    apply_update(metadata, update(state(0)))
    old = UpdateMetadataRequest(
        controller_id=3,
        ungrouped_partition_states=[state(0, leader=2, topic_name="topic")],
        live_brokers=[UpdateMetadataBroker(id=1, v0_host="one", v0_port=1)],
    )
    apply_update(metadata, old)
    topic = metadata.topic("topic")
    assert topic is not None
    assert (topic.topic_id, topic.partitions[0].leader) == (ID, 2)
    assert metadata.endpoint(1, "PLAINTEXT") == Endpoint("one", 1)


def test_the_live_brokers_are_those_of_the_request() -> None:
    metadata = MetadataCache("cluster")

    def brokers(*ids: int) -> UpdateMetadataRequest:
        request = update()
        request.live_brokers = [
            UpdateMetadataBroker(
                id=each,
                rack=f"rack {each}",
                endpoints=[
                    UpdateMetadataEndpoint(host="host", port=each, listener="INSIDE", security_protocol=3)
                ],
            )
            for each in ids
        ]
        return request

    apply_update(metadata, brokers(1, 2))
    registered = metadata.broker(2)
    assert registered is not None
    assert ListenerEndpoint("INSIDE", Endpoint("host", 2), "SASL_SSL") in registered.endpoints
    assert metadata.endpoint(2, "INSIDE") == Endpoint("host", 2)
    assert metadata.racks() == {1: "rack 1", 2: "rack 2"}
    apply_update(metadata, brokers(2))
    assert not metadata.is_live(1)
