"""Topics of a cluster, as the handlers ask for them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from barnabas.administration.metadata_wait import MetadataWait
from barnabas.administration.topic_rules import TopicSpec
from barnabas.administration.topics import AUTO_CREATE_WAIT_MS, NAME_WAIT_MS, WAIT_MS, TopicAdministration
from barnabas.cluster.metadata.cache import MetadataCache, PartitionMetadata
from barnabas.cluster.stores.topics import read_topics
from barnabas.cluster.znodes.layout import TopicZnode
from barnabas.core.errors import (
    InvalidConfig,
    InvalidReplicationFactor,
    InvalidTopicException,
    LeaderNotAvailable,
    ReassignmentInProgress,
    RequestTimedOut,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from barnabas.core.ids import TopicPartition
from tests.support.figures import figure
from tests.unit.controller.scripted_cluster import Cluster

T = TypeVar("T")


@pytest.fixture
async def topics(cluster: Cluster) -> TopicAdministration:
    return await at_broker(cluster, 2)


async def at_broker(cluster: Cluster, broker_id: int) -> TopicAdministration:
    """Metadata of broker `broker_id`, which need not be the controller."""
    member = cluster.members[broker_id]
    cache = cluster.brokers[broker_id].cache = MetadataCache("the-cluster")
    cluster.term.batch.add_update_metadata((broker_id,), cluster.term.context.partitions_with_leaders())
    cluster.term.batch.flush()
    await cluster.settle()
    return TopicAdministration(
        member.session,
        member.configs,
        cache,
        cluster.randomness,
        cluster.scheduler,
        MetadataWait(cache, cluster.scheduler),
        is_alone=False,
    )


async def begin(cluster: Cluster, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    task = asyncio.ensure_future(work)
    await cluster.settle()
    return task


async def test_a_created_topic_is_led_when_the_answer_comes(
    cluster: Cluster, topics: TopicAdministration
) -> None:
    created = await topics.create_topic(TopicSpec("t", 4, 2, configs={"retention.ms": "5"}))
    assert (created.num_partitions, created.replication_factor) == (4, 2)
    assert created.config.retention_ms == 5
    cache = cluster.brokers[2].cache
    assert cache is not None
    known = cache.topic("t")
    assert known is not None
    assert known.topic_id == created.topic_id
    assert all(partition.leader >= 0 for partition in known.partitions)
    stored = (await read_topics(cluster.admin))["t"]
    assert stored.config == {"retention.ms": "5"}
    assert cluster.members[2].configs.topic_config("t").retention_ms == 5


async def test_only_valid_topics_are_created(cluster: Cluster, topics: TopicAdministration) -> None:
    await topics.create_topic(TopicSpec("t.a", 1, 1))
    with pytest.raises(TopicAlreadyExists):
        await topics.create_topic(TopicSpec("t.a", 1, 1))
    with pytest.raises(InvalidTopicException, match="collides"):
        await topics.create_topic(TopicSpec("t_a", 1, 1))
    with pytest.raises(InvalidReplicationFactor):
        await topics.create_topic(TopicSpec("u", 1, 4))
    with pytest.raises(InvalidConfig):
        await topics.create_topic(TopicSpec("u", 1, 1, configs={"no.such.key": "1"}))
    await topics.create_topic(TopicSpec("u", 1, 1), validate_only=True)
    assert not await cluster.exists(TopicZnode.path("u"))


async def test_what_does_not_happen_in_time_is_said_so(cluster: Cluster, topics: TopicAdministration) -> None:
    cluster.brokers[2].is_reachable = False
    with pytest.raises(RequestTimedOut):
        await topics.create_topic(TopicSpec("now", 1, 1), timeout_ms=0)
    creating = await begin(cluster, topics.create_topic(TopicSpec("t", 1, 1), timeout_ms=500))
    await cluster.advance(ms=499)
    assert not creating.done()
    await cluster.advance(ms=1)
    with pytest.raises(RequestTimedOut):
        await creating
    assert await cluster.exists(TopicZnode.path("t")), "it may still happen"
    patient = await begin(cluster, topics.create_topic(TopicSpec("u", 1, 1)))
    await cluster.advance(ms=WAIT_MS)
    with pytest.raises(RequestTimedOut):
        await patient


async def test_any_broker_creates_topics_that_clients_ask_for(
    cluster: Cluster, topics: TopicAdministration
) -> None:
    other = await at_broker(cluster, 3)
    first, second = await asyncio.gather(topics.auto_create(["a", "b", "a"]), other.auto_create(["a"]))
    assert first == second == {}
    for broker_id in (2, 3):
        cache = cluster.brokers[broker_id].cache
        assert cache is not None
        assert "a" in cache
    failures = await topics.auto_create(["__consumer_offsets", "no/name"])
    assert isinstance(failures["__consumer_offsets"], UnknownTopicOrPartition)
    assert isinstance(failures["no/name"], InvalidTopicException)


async def test_a_client_is_told_to_come_back_if_a_topic_takes_too_long(
    cluster: Cluster, topics: TopicAdministration
) -> None:
    cluster.brokers[2].is_reachable = False
    creating = await begin(cluster, topics.auto_create(["a"]))
    again = await begin(cluster, topics.auto_create(["a"]))
    await cluster.advance(ms=AUTO_CREATE_WAIT_MS)
    assert isinstance((await creating)["a"], LeaderNotAvailable)
    assert isinstance((await again)["a"], LeaderNotAvailable)


async def test_partitions_are_added_and_led(cluster: Cluster, topics: TopicAdministration) -> None:
    await topics.create_topic(TopicSpec("t", 1, 2))
    await topics.create_partitions("t", 3)
    cache = cluster.brokers[2].cache
    assert cache is not None
    known = cache.topic("t")
    assert known is not None
    assert [partition.leader >= 0 for partition in known.partitions] == [True] * 3
    await topics.create_partitions("t", 4, [[3, 1]])
    assert (await cluster.state("t", 3)).leader == 3
    await topics.create_partitions("t", 9, validate_only=True)
    assert len((await read_topics(cluster.admin))["t"].info.assignment) == 4
    with pytest.raises(UnknownTopicOrPartition):
        await topics.create_partitions("nothing", 2)


async def test_a_topic_that_moves_gets_no_partitions(cluster: Cluster, topics: TopicAdministration) -> None:
    await cluster.create("t", {0: [2]})
    await cluster.active.controller.alter_partition_reassignments({TopicPartition("t", 0): [3]})
    with pytest.raises(ReassignmentInProgress):
        await topics.create_partitions("t", 2)


async def test_a_deleted_topic_is_gone_when_the_answer_comes(
    cluster: Cluster, topics: TopicAdministration
) -> None:
    created = await topics.create_topic(TopicSpec("t", 2, 2))
    assert await topics.delete_topic("t") == created.topic_id
    cache = cluster.brokers[2].cache
    assert cache is not None
    assert "t" not in cache
    with pytest.raises(UnknownTopicOrPartition):
        await topics.delete_topic("t")
    again = await topics.create_topic(TopicSpec("t", 1, 1))
    assert again.topic_id != created.topic_id


async def test_a_deletion_that_waits_for_a_broker_is_answered_when_no_broker_sees_the_topic(
    cluster: Cluster, topics: TopicAdministration
) -> None:
    created = await topics.create_topic(TopicSpec("t", assignments=[(0, [2, 3])]))
    await cluster.kill(3)
    deleting = await begin(cluster, topics.delete_topic("t"))
    assert not deleting.done()
    assert figure(cluster.active.metrics, "kafka_controller_topics_to_delete_count") == 1
    assert figure(cluster.active.metrics, "kafka_controller_topics_ineligible_to_delete_count") == 1
    await cluster.advance(NAME_WAIT_MS)
    assert await deleting == created.topic_id
    with pytest.raises(UnknownTopicOrPartition):
        await topics.delete_topic("t")
    with pytest.raises(TopicAlreadyExists):
        await topics.create_topic(TopicSpec("t", 1, 1))
    with pytest.raises(InvalidTopicException):
        await topics.create_partitions("t", 2)


async def test_a_deletion_that_waits_for_metadata_times_out(
    cluster: Cluster, topics: TopicAdministration
) -> None:
    await topics.create_topic(TopicSpec("t", 1, 1, configs={}))
    cluster.brokers[2].is_reachable = False
    deleting = await begin(cluster, topics.delete_topic("t", timeout_ms=100))
    await cluster.advance(ms=100)
    with pytest.raises(RequestTimedOut):
        await deleting


async def test_a_topic_without_leaders_is_not_ready(cluster: Cluster, topics: TopicAdministration) -> None:
    cluster.brokers[2].is_reachable = False
    cache = cluster.brokers[2].cache
    assert cache is not None
    creating = await begin(cluster, topics.create_topic(TopicSpec("t", 2, 1)))
    topic_id = (await read_topics(cluster.admin))["t"].info.topic_id
    assert topic_id is not None
    led = [PartitionMetadata(number, (1,), leader=1) for number in range(2)]
    for partitions in ([led[0], PartitionMetadata(1, (1,))], led[:1], led):
        assert not creating.done()
        cache.put_topic("t", topic_id, partitions)
        await cluster.settle()
    assert (await creating).topic_id == topic_id


async def test_a_name_that_is_being_deleted_is_not_waited_for(
    cluster: Cluster, topics: TopicAdministration
) -> None:
    """Requests behind the one that may create the topic would wait too."""
    await topics.create_topic(TopicSpec("t", 1, 1))
    cluster.brokers[2].is_reachable = False
    cluster.brokers[3].is_reachable = False
    deleting = await begin(cluster, topics.delete_topic("t", timeout_ms=60_000))
    assert await cluster.exists(TopicZnode.path("t"))
    creating = await begin(cluster, topics.auto_create(["t"]))
    assert creating.done()
    assert isinstance((await creating)["t"], UnknownTopicOrPartition)
    deleting.cancel()
