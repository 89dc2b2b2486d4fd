"""Replication throttles: what a plan limits, and on which brokers and topics it is set and removed."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.support.scripted_broker import Script, ScriptedBroker, scripted_broker

from barnabas.client.admin.replication_throttle import (
    FOLLOWER_RATE,
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
    remove_throttles,
    set_throttle,
    throttle_for,
)
from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.core.clock import SystemClock
from barnabas.core.ids import TopicPartition
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.config_numbers import ConfigOperation, ConfigSource, ResourceType
from barnabas.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from barnabas.protocol.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from barnabas.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def test_present_replicas_are_throttled_as_leaders_and_added_ones_as_followers() -> None:
    throttle = throttle_for({A0: (3, 2)}, {A0: (1, 2)})
    assert throttle.topics == {"a": {LEADER_REPLICAS: "0:1,0:2", FOLLOWER_REPLICAS: "0:3"}}
    assert throttle.brokers == {1, 2, 3}


def test_partitions_are_gathered_by_topic() -> None:
    plan = {A0: (1, 3), B0: (4,), A1: (2, 3)}
    throttle = throttle_for(plan, {A0: (1, 2), A1: (2, 1), B0: (1,)})
    assert throttle.topics == {
        "a": {LEADER_REPLICAS: "0:1,0:2,1:2,1:1", FOLLOWER_REPLICAS: "0:3,1:3"},
        "b": {LEADER_REPLICAS: "0:1", FOLLOWER_REPLICAS: "0:4"},
    }
    assert throttle.brokers == {1, 2, 3, 4}


def test_a_broker_that_only_keeps_other_partitions_is_left_alone() -> None:
    assert throttle_for({A0: (2,)}, {A0: (1,), B0: (5,)}).brokers == {1, 2}


def test_removed_replicas_add_no_follower() -> None:
    assert throttle_for({A0: (1,)}, {A0: (1, 2)}).topics["a"][FOLLOWER_REPLICAS] == ""


Changed = list[tuple[int, str, dict[str, str | None]]]


@asynccontextmanager
async def cluster_with(
    configs: dict[tuple[int, str], dict[str, str]],
) -> AsyncIterator[tuple[ClusterClient, Changed]]:
    """Cluster of brokers 1 and 2 with topics a and b and these settings; and a list of its changes."""
    changed: Changed = []

    def alter(request: IncrementalAlterConfigsRequest, _version: int) -> IncrementalAlterConfigsResponse:
        (resource,) = request.resources
        values = {
            row.name: None if row.config_operation == ConfigOperation.DELETE else row.value
            for row in resource.configs
        }
        changed.append((resource.resource_type, resource.resource_name, values))
        return IncrementalAlterConfigsResponse(
            responses=[
                AlterConfigsResourceResponse(
                    resource_type=resource.resource_type, resource_name=resource.resource_name
                )
            ]
        )

    def describe(request: DescribeConfigsRequest, _version: int) -> DescribeConfigsResponse:
        (resource,) = request.resources
        present = configs.get((resource.resource_type, resource.resource_name), {})
        rows = [
            DescribeConfigsResourceResult(
                name=key,
                value=present.get(key, ""),
                config_source=ConfigSource.TOPIC if key in present else ConfigSource.DEFAULT,
            )
            for key in resource.configuration_keys or ()
        ]
        return DescribeConfigsResponse(
            results=[
                DescribeConfigsResult(
                    resource_type=resource.resource_type, resource_name=resource.resource_name, configs=rows
                )
            ]
        )

    def metadata(broker: ScriptedBroker) -> MetadataResponse:
        nodes = [MetadataResponseBroker(node_id=id_, host="127.0.0.1", port=broker.port) for id_ in (1, 2)]
        topics = [MetadataResponseTopic(name=name) for name in ("a", "b")]
        return MetadataResponse(brokers=nodes, controller_id=1, topics=topics)

    script: Script = {ApiKey.INCREMENTAL_ALTER_CONFIGS: alter, ApiKey.DESCRIBE_CONFIGS: describe}
    async with scripted_broker({**script, ApiKey.METADATA: lambda *_: metadata(broker)}) as broker:
        client = ClusterClient([broker.address], clock=SystemClock(), randomness=random.Random(1))
        async with client as cluster:
            yield cluster, changed


async def test_topics_are_throttled_before_brokers_and_missing_brokers_are_left_out() -> None:
    async with cluster_with({}) as (cluster, changed):
        await cluster.refresh(())
        await set_throttle(cluster, {A0: (2, 9)}, {A0: (1, 2)}, 1_000)
    rates = {LEADER_RATE: "1000", FOLLOWER_RATE: "1000"}
    assert changed == [
        (ResourceType.TOPIC, "a", {LEADER_REPLICAS: "0:1,0:2", FOLLOWER_REPLICAS: "0:9"}),
        (ResourceType.BROKER, "1", rates),
        (ResourceType.BROKER, "2", rates),
    ]


async def test_only_throttles_that_are_set_are_removed() -> None:
    configs: dict[tuple[int, str], dict[str, str]] = {
        (ResourceType.BROKER, "2"): {LEADER_RATE: "7"},
        (ResourceType.TOPIC, "b"): {LEADER_REPLICAS: "0:1", FOLLOWER_REPLICAS: "0:2"},
    }
    async with cluster_with(configs) as (cluster, changed):
        await cluster.refresh(())
        await remove_throttles(cluster)
    assert changed == [
        (ResourceType.BROKER, "2", {LEADER_RATE: None}),
        (ResourceType.TOPIC, "b", {LEADER_REPLICAS: None, FOLLOWER_REPLICAS: None}),
    ]
