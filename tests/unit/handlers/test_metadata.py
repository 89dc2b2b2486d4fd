"""Metadata: leaders, endpoints and auto-created topics."""

from __future__ import annotations

import pytest

from barnabas.administration.topic_rules import TopicSpec
from barnabas.core.addressing.endpoints import Endpoint, ListenerEndpoint
from barnabas.core.errors import (
    InvalidRequest,
    InvalidTopicException,
    KafkaStorageError,
    LeaderNotAvailable,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from barnabas.core.ids import ZERO_UUID, TopicPartition, Uuid
from barnabas.handlers.metadata import METADATA
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.unit.controller.support import BROKER_ID
from tests.unit.handlers.support import Broker, FakePeer

UNKNOWN_ID = Uuid(b"0123456789abcdef")


def named(*names: str) -> list[MetadataRequestTopic]:
    return [MetadataRequestTopic(name=name) for name in names]


@pytest.fixture
async def topics(broker: Broker) -> Broker:
    await broker.topics.create_topic(TopicSpec("a", 2, 1))
    await broker.topics.create_topic(TopicSpec("b", 1, 1))
    return broker


@pytest.mark.parametrize(
    ("version", "asked", "expected"),
    [
        (0, [], {"a", "b"}),
        (1, [], set()),
        (1, None, {"a", "b"}),
        (13, None, {"a", "b"}),
        (13, [], set()),
        (0, named("b"), {"b"}),
        (13, named("b", "b", "a"), {"a", "b"}),
    ],
)
async def test_null_means_all_and_an_empty_list_none_except_in_version_0(
    topics: Broker, version: int, asked: list[MetadataRequestTopic] | None, expected: set[str]
) -> None:
    response = await topics.ask(METADATA, MetadataRequest(topics=asked), version)
    assert sorted(topic.name for topic in response.topics) == sorted(expected)


@pytest.mark.parametrize("version", METADATA.versions)
async def test_every_version_names_leaders_and_brokers(topics: Broker, version: int) -> None:
    response = await topics.ask(METADATA, MetadataRequest(topics=named("a")), version)
    (broker,) = response.brokers
    assert (broker.node_id, broker.host, broker.port) == (BROKER_ID, "192.0.2.9", 19092)
    (topic,) = response.topics
    assert [(p.error_code, p.partition_index, p.leader_id) for p in topic.partitions] == [
        (0, 0, BROKER_ID),
        (0, 1, BROKER_ID),
    ]
    assert topic.partitions[0].replica_nodes == topic.partitions[0].isr_nodes == [BROKER_ID]
    assert broker.rack == ("rack-a" if version >= 1 else None)
    assert response.controller_id == (BROKER_ID if version >= 1 else -1)
    assert response.cluster_id == ("the-cluster" if version >= 2 else None)
    assert topic.partitions[0].leader_epoch == (0 if version >= 7 else -1)
    known = topics.metadata.topic("a")
    assert known is not None
    assert topic.topic_id == (known.topic_id if version >= 10 else ZERO_UUID)


async def test_the_address_is_where_the_client_arrived_unless_one_is_advertised(topics: Broker) -> None:
    async def address(peer: FakePeer) -> tuple[str, int]:
        response = await topics.ask(METADATA, MetadataRequest(topics=[]), peer=peer)
        return response.brokers[0].host, response.brokers[0].port

    assert await address(FakePeer(local_host="10.0.0.7", local_port=29092)) == ("10.0.0.7", 29092)
    assert await address(FakePeer(local_host="::ffff:10.0.0.7", local_port=1)) == ("10.0.0.7", 1)
    public = ListenerEndpoint("PLAINTEXT", Endpoint("public.example", 443))
    topics.config.advertised_listeners["PLAINTEXT"] = public
    assert await address(FakePeer(local_host="10.0.0.7")) == ("public.example", 443)
    assert await address(FakePeer(local_host="10.0.0.7", listener_name="OTHER")) == ("10.0.0.7", 19092)


async def test_topics_are_found_by_id(topics: Broker) -> None:
    known = topics.metadata.topic("a")
    assert known is not None
    asked = [
        MetadataRequestTopic(topic_id=known.topic_id, name=None),
        MetadataRequestTopic(topic_id=UNKNOWN_ID, name=None),
    ]
    response = await topics.ask(METADATA, MetadataRequest(topics=asked), 12)
    assert [(t.error_code, t.name, t.topic_id) for t in response.topics] == [
        (0, "a", known.topic_id),
        (UnknownTopicId.code, None, UNKNOWN_ID),
    ]


async def test_an_id_makes_names_count_for_nothing(topics: Broker) -> None:
    known = topics.metadata.topic("a")
    assert known is not None
    asked = [
        MetadataRequestTopic(topic_id=ZERO_UUID, name=None),
        MetadataRequestTopic(topic_id=known.topic_id, name=None),
        *named("b", "fresh"),
    ]
    response = await topics.ask(METADATA, MetadataRequest(topics=asked), 13)
    assert [(t.error_code, t.name) for t in response.topics] == [(0, "a")]
    assert "fresh" not in topics.metadata


async def test_a_topic_with_neither_name_nor_id_is_refused(topics: Broker) -> None:
    asked = [MetadataRequestTopic(topic_id=ZERO_UUID, name=None), *named("a")]
    response = await topics.ask(METADATA, MetadataRequest(topics=asked), 13)
    assert {topic.error_code for topic in response.topics} == {InvalidRequest.code}


@pytest.mark.parametrize("version", [10, 11])
async def test_ids_cannot_be_asked_for_before_version_12(topics: Broker, version: int) -> None:
    asked = [MetadataRequestTopic(topic_id=UNKNOWN_ID, name=None)]
    response = await topics.ask(METADATA, MetadataRequest(topics=asked), version)
    assert [topic.error_code for topic in response.topics] == [InvalidRequest.code]


async def test_asking_creates_a_topic_and_the_answer_names_its_leader(broker: Broker) -> None:
    response = await broker.ask(METADATA, MetadataRequest(topics=named("fresh", "bad name")), 4)
    fresh, bad = response.topics
    assert (fresh.error_code, fresh.partitions[0].leader_id) == (0, BROKER_ID)
    assert (bad.error_code, bad.name, bad.partitions) == (InvalidTopicException.code, "bad name", [])
    assert broker.led("fresh").leader_epoch == 0


@pytest.mark.parametrize("forbidden_by", ["request", "broker"])
async def test_nothing_is_created_when_either_side_forbids_it(broker: Broker, forbidden_by: str) -> None:
    broker.config.auto_create_topics_enable = forbidden_by != "broker"
    request = MetadataRequest(
        topics=named("fresh", "bad name"), allow_auto_topic_creation=forbidden_by != "request"
    )
    response = await broker.ask(METADATA, request)
    assert [topic.error_code for topic in response.topics] == [
        UnknownTopicOrPartition.code,
        InvalidTopicException.code,
    ]
    assert not broker.replicas.led


async def test_a_client_cannot_make_internal_topics(broker: Broker) -> None:
    response = await broker.ask(METADATA, MetadataRequest(topics=named("__consumer_offsets")))
    (topic,) = response.topics
    assert (topic.error_code, topic.is_internal) == (UnknownTopicOrPartition.code, True)


async def test_a_partition_without_a_leader_is_marked(broker: Broker) -> None:
    broker.replicas.broken = {TopicPartition("t", 0): KafkaStorageError("full")}
    await broker.topics.create_topic(TopicSpec("t", 1, 1))
    await broker.settle()
    response = await broker.ask(METADATA, MetadataRequest(topics=named("t")))
    (partition,) = response.topics[0].partitions
    assert (partition.error_code, partition.leader_id) == (LeaderNotAvailable.code, -1)
    assert partition.offline_replicas == [BROKER_ID]


async def test_authorized_operations_are_told_when_asked_for(topics: Broker) -> None:
    plain = await topics.ask(METADATA, MetadataRequest(topics=named("a")), 8)
    assert plain.topics[0].topic_authorized_operations == plain.cluster_authorized_operations == -(2**31)
    asked = await topics.ask(
        METADATA,
        MetadataRequest(
            topics=named("a"),
            include_cluster_authorized_operations=True,
            include_topic_authorized_operations=True,
        ),
        8,
    )
    assert asked.topics[0].topic_authorized_operations == 0b1101_1111_1000
    assert asked.cluster_authorized_operations == 0b1_1111_1010_0000
