"""Finding brokers and leaders, and what is tried again."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.scripted_broker import SILENCE, ScriptedBroker, scripted_broker
from tests.support.waiting import PATIENCE_S

from barnabas.client.admin.topics_and_configs import TopicAdmin
from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.core.steps import ClusterUnreachable
from barnabas.core.clock import SystemClock
from barnabas.core.errors import (
    InvalidConfig,
    KafkaError,
    LeaderNotAvailable,
    NetworkException,
    NotController,
    ResourceNotFound,
    UnknownTopicOrPartition,
)
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.config_numbers import ResourceType
from barnabas.protocol.messages.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from barnabas.protocol.messages.describe_configs import DescribeConfigsResponse, DescribeConfigsResult
from barnabas.protocol.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from barnabas.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

Metadata = Callable[[MetadataRequest, int], MetadataResponse]


def cluster_of(broker: ScriptedBroker, **options: Any) -> ClusterClient:
    return ClusterClient([broker.address], clock=SystemClock(), randomness=random.Random(1), **options)


async def test_a_broker_that_stands_still_is_not_asked_for_metadata() -> None:
    async with scripted_broker({ApiKey.METADATA: lambda request, version: SILENCE}) as still:
        async with scripted_broker({}) as other:
            other.script[ApiKey.METADATA] = lambda request, version: MetadataResponse(brokers=brokers(other))
            async with cluster_of(still) as cluster:
                channel = await cluster.connections.to(still.address)
                waiting = asyncio.ensure_future(channel.send(MetadataRequest(topics=[]), MetadataResponse))
                await cluster.connections.to(other.address)
                async with asyncio.timeout(PATIENCE_S / 6):
                    assert len((await cluster.refresh()).brokers) == 1
                waiting.cancel()


def brokers(*at: ScriptedBroker) -> list[MetadataResponseBroker]:
    return [
        MetadataResponseBroker(node_id=number, host="127.0.0.1", port=each.port)
        for number, each in enumerate(at, 1)
    ]


def topic_row(name: str, *leaders: int, error_code: int = 0) -> MetadataResponseTopic:
    partitions = [
        MetadataResponsePartition(partition_index=index, leader_id=leader, replica_nodes=[leader])
        for index, leader in enumerate(leaders)
    ]
    return MetadataResponseTopic(name=name, error_code=error_code, partitions=partitions)


async def test_a_cluster_without_an_answering_broker_is_unreachable() -> None:
    async with scripted_broker({}) as broker:
        gone = broker.address
    cluster = ClusterClient([gone, gone], clock=SystemClock(), randomness=random.Random(1))
    with pytest.raises(ClusterUnreachable, match="connection refused"):
        async with cluster:
            raise AssertionError("it connected to nothing")


async def test_the_second_address_serves_when_the_first_does_not() -> None:
    async with scripted_broker({}) as broker:
        gone = broker.address
    async with scripted_broker({}) as broker:
        cluster = ClusterClient([gone, broker.address], clock=SystemClock(), randomness=random.Random(1))
        async with cluster:
            assert (await cluster.any_channel()).address == broker.address


async def test_a_topic_in_the_making_is_waited_for() -> None:
    async with scripted_broker({}) as broker:
        rows = iter([topic_row("t", error_code=5), topic_row("t", -1, 1), topic_row("t", 1, 1)])
        broker.script[ApiKey.METADATA] = lambda _request, _version: MetadataResponse(
            brokers=brokers(broker), topics=[next(rows)]
        )
        async with cluster_of(broker) as cluster:
            found = await cluster.topic("t")
            assert [at.leader_id for at in found.partitions] == [1, 1]
            assert await cluster.topic("t") is found
            assert len(broker.requests) == 3


async def test_a_topic_that_does_not_exist_is_not_waited_for() -> None:
    async with scripted_broker({}) as broker:
        broker.script[ApiKey.METADATA] = lambda _request, _version: MetadataResponse(
            brokers=brokers(broker), topics=[topic_row("t", error_code=3)]
        )
        async with cluster_of(broker) as cluster:
            with pytest.raises(UnknownTopicOrPartition, match="there is no topic t"):
                await cluster.topic("t")
            assert len(broker.requests) == 1
            with pytest.raises(UnknownTopicOrPartition, match="there is no topic t"):
                await TopicAdmin(cluster).describe_topics(["t"])


async def test_the_retries_end() -> None:
    async with scripted_broker({}) as broker:
        broker.script[ApiKey.METADATA] = lambda _request, _version: MetadataResponse(
            brokers=brokers(broker), topics=[topic_row("t", -1)]
        )
        async with cluster_of(broker, retry_timeout_ms=200) as cluster:
            with pytest.raises(LeaderNotAvailable, match="partition 0 of t has no leader"):
                await cluster.topic("t")
            assert len(broker.requests) > 1


async def test_changes_go_to_the_controller_and_follow_it() -> None:
    async with scripted_broker({}) as first, scripted_broker({}) as second:
        controllers = iter([1, 2, 2])

        def metadata(request: MetadataRequest, version: int) -> MetadataResponse:
            return MetadataResponse(brokers=brokers(first, second), controller_id=next(controllers))

        def refuse(request: CreateTopicsRequest, version: int) -> CreateTopicsResponse:
            row = CreatableTopicResult(name=request.topics[0].name, error_code=NotController.code)
            return CreateTopicsResponse(topics=[row])

        def create(request: CreateTopicsRequest, version: int) -> CreateTopicsResponse:
            return CreateTopicsResponse(topics=[CreatableTopicResult(name=request.topics[0].name)])

        first.script.update({ApiKey.METADATA: metadata, ApiKey.CREATE_TOPICS: refuse})
        second.script.update({ApiKey.METADATA: metadata, ApiKey.CREATE_TOPICS: create})
        async with cluster_of(first) as cluster:
            await TopicAdmin(cluster).create_topic("t", partitions=3, configs={"a": "b"})
        (asked,) = second.asked(CreateTopicsRequest)
        assert asked.topics[0].num_partitions == 3
        assert [(row.name, row.value) for row in asked.topics[0].configs] == [("a", "b")]


async def test_an_advertised_address_that_leads_nowhere_is_named() -> None:
    async with scripted_broker({}) as gone:
        pass
    async with scripted_broker({}) as broker:
        broker.script[ApiKey.METADATA] = lambda _request, _version: MetadataResponse(brokers=brokers(gone))
        async with cluster_of(broker) as cluster:
            await cluster.refresh(())
            with pytest.raises(NetworkException, match=r"broker 1 is advertised at .*advertised\.listeners"):
                await cluster.channel_to(1)
            with pytest.raises(LeaderNotAvailable):
                await cluster.channel_to(9)


@pytest.mark.parametrize(("version", "by_name"), [(5, True), (6, False)])
async def test_topics_are_deleted_in_either_form_of_the_request(version: int, by_name: bool) -> None:
    def delete(request: DeleteTopicsRequest, _: int) -> DeleteTopicsResponse:
        return DeleteTopicsResponse(responses=[DeletableTopicResult(name="t")])

    async with scripted_broker(
        {ApiKey.DELETE_TOPICS: delete}, {ApiKey.DELETE_TOPICS: (1, version)}
    ) as broker:
        broker.script[ApiKey.METADATA] = lambda _request, _version: MetadataResponse(brokers=brokers(broker))
        async with cluster_of(broker) as cluster:
            await TopicAdmin(cluster).delete_topic("t")
        (asked,) = broker.asked(DeleteTopicsRequest)
        assert asked.topic_names == (["t"] if by_name else [])
        assert [row.name for row in asked.topics] == ([] if by_name else ["t"])


async def test_errors_about_settings_carry_the_brokers_words() -> None:
    def refuse(request: object, version: int) -> IncrementalAlterConfigsResponse:
        row = AlterConfigsResourceResponse(error_code=InvalidConfig.code, error_message="no such key")
        return IncrementalAlterConfigsResponse(responses=[row])

    def describe(request: object, version: int) -> DescribeConfigsResponse:
        return DescribeConfigsResponse(results=[DescribeConfigsResult(resource_type=4, resource_name="1")])

    async with scripted_broker({ApiKey.INCREMENTAL_ALTER_CONFIGS: refuse}) as broker:
        broker.script[ApiKey.DESCRIBE_CONFIGS] = describe
        broker.script[ApiKey.METADATA] = lambda _request, _version: MetadataResponse(brokers=brokers(broker))
        async with cluster_of(broker) as cluster:
            admin = TopicAdmin(cluster)
            with pytest.raises(KafkaError, match="no such key") as caught:
                await admin.alter_configs(ResourceType.TOPIC, "t", changes={"a": "b"})
            assert isinstance(caught.value, InvalidConfig)
            assert await admin.describe_configs(ResourceType.BROKER, "1") == []
            with pytest.raises(ResourceNotFound, match="there is no broker 7; the cluster has 1"):
                await admin.describe_configs(ResourceType.BROKER, "7")
