from __future__ import annotations

import pytest

from barnabas.cluster.metadata.cache import MetadataCache, PartitionMetadata
from barnabas.cluster.znodes.brokers import BrokerInfo
from barnabas.core.addressing.endpoints import Endpoint, ListenerEndpoint
from barnabas.core.ids import ZERO_UUID, TopicPartition, Uuid

FIRST, SECOND = Uuid(b"a" * 16), Uuid(b"b" * 16)


@pytest.fixture
def cache() -> MetadataCache:
    return MetadataCache("cluster")


def partitions(count: int) -> list[PartitionMetadata]:
    return [PartitionMetadata(n, (1, 2), leader=1, leader_epoch=0, isr=(1, 2)) for n in range(count)]


def test_topics_are_found_by_name_and_by_id(cache: MetadataCache) -> None:
    cache.put_topic("t", FIRST, reversed(partitions(3)))
    topic = cache.topic("t")
    assert topic is not None
    assert topic is cache.topic_by_id(FIRST)
    assert [partition.partition for partition in topic.partitions] == [0, 1, 2]
    assert "t" in cache
    assert cache.topic_names() == ["t"]
    assert cache.partition("t", 2) is topic.partitions[2]
    for missing in (cache.partition("t", 3), cache.partition("t", -1), cache.partition("u", 0)):
        assert missing is None


def test_a_topic_made_again_is_not_found_by_its_previous_id(cache: MetadataCache) -> None:
    cache.put_topic("t", FIRST, partitions(1))
    cache.put_topic("t", SECOND, partitions(1))
    assert cache.topic_by_id(FIRST) is None
    assert cache.topic_by_id(SECOND) is cache.topic("t")
    cache.remove_topic("t")
    assert cache.topic("t") is cache.topic_by_id(SECOND) is None
    assert cache.remove_topic("t") is None


def test_a_topic_without_an_id_has_no_entry_by_id(cache: MetadataCache) -> None:
    cache.put_topic("t", ZERO_UUID, partitions(1))
    assert cache.topic_by_id(ZERO_UUID) is None


def test_an_update_leaves_what_was_handed_out_alone(cache: MetadataCache) -> None:
    cache.put_topic("t", FIRST, partitions(2))
    before = cache.topic("t")
    assert before is not None
    generation = cache.generation
    changed = PartitionMetadata(1, (1, 2), leader=2, leader_epoch=1, isr=(2,))
    cache.put_topic("t", FIRST, [before.partitions[0], changed, PartitionMetadata(2, (1,))])
    assert cache.generation > generation
    assert before.partitions[1].leader == 1
    after = cache.topic("t")
    assert after is not None
    assert [partition.leader for partition in after.partitions] == [1, 2, -1]
    assert after.partitions[0] is before.partitions[0]
    assert cache.topic_by_id(FIRST) is after


def test_partitions_of_a_failed_disk_lose_their_leader(cache: MetadataCache) -> None:
    cache.put_topic("t", FIRST, [PartitionMetadata(n, (1, 2), leader=n, isr=(1, 2)) for n in range(3)])
    cache.put_brokers([BrokerInfo(1, ()), BrokerInfo(2, ())])
    cache.put_offline(1, [TopicPartition("t", 1), TopicPartition("t", 2), TopicPartition("gone", 0)])
    shown = cache.topic("t")
    assert shown is not None
    assert [each.leader for each in shown.partitions] == [0, -1, 2]
    assert [cache.offline_replicas(each) for each in shown.partitions] == [[], [1], [1]]
    assert shown.partitions[1].isr == (1, 2)


def test_internal_topics_are_known(cache: MetadataCache) -> None:
    assert cache.put_topic("__consumer_offsets", FIRST, partitions(1)).is_internal
    assert not cache.put_topic("t", SECOND, partitions(1)).is_internal


def test_brokers_are_reached_through_the_listener_one_came_by(cache: MetadataCache) -> None:
    inside = ListenerEndpoint("INSIDE", Endpoint("10.0.0.1", 9092))
    outside = ListenerEndpoint("OUTSIDE", Endpoint("example", 9093), "SSL")
    cache.put_brokers([BrokerInfo(2, (inside,)), BrokerInfo(1, (inside, outside), rack="a")])
    assert [broker.id for broker in cache.brokers()] == [1, 2]
    assert cache.endpoint(1, "OUTSIDE") == outside.endpoint
    assert cache.endpoint(2, "OUTSIDE") is None
    assert cache.racks() == {1: "a", 2: None}
    cache.put_brokers([BrokerInfo(2, (inside,))])
    assert not cache.is_live(1)
    assert cache.endpoint(1, "INSIDE") is None


def test_replicas_of_dead_brokers_and_failed_directories_are_offline(cache: MetadataCache) -> None:
    cache.put_brokers([BrokerInfo(1, ()), BrokerInfo(2, ())])
    partition = PartitionMetadata(0, (1, 2, 3), leader=1, isr=(1,), offline=(2,))
    assert cache.offline_replicas(partition) == [2, 3]


def test_the_controller_is_known(cache: MetadataCache) -> None:
    assert cache.controller_id == -1
    cache.put_controller(4)
    assert cache.controller_id == 4
