"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources."""

from __future__ import annotations

import pytest

from barnabas.administration.topic_rules import TopicSpec
from barnabas.config.definitions import BROKER_KEYS
from barnabas.config.definitions.topics import TOPIC_KEYS
from barnabas.core.errors import (
    InvalidConfig,
    InvalidRequest,
    InvalidTopicException,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from barnabas.handlers.alter_configs import ALTER_CONFIGS
from barnabas.handlers.describe_configs import DESCRIBE_CONFIGS
from barnabas.handlers.incremental_alter_configs import INCREMENTAL_ALTER_CONFIGS
from barnabas.handlers.list_config_resources import LIST_CONFIG_RESOURCES
from barnabas.protocol.messages import alter_configs as replacing
from barnabas.protocol.messages import incremental_alter_configs as changing
from barnabas.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.protocol.messages.list_config_resources import ListConfigResourcesRequest
from tests.unit.handlers.support import Broker

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)


@pytest.fixture
async def topic(broker: Broker) -> Broker:
    broker.static["ssl.key.password"] = "hush"
    await broker.restart()
    await broker.topics.create_topic(TopicSpec("t", configs={"retention.ms": "5"}))
    return broker


def asking(kind: int, name: str, keys: list[str] | None = None) -> DescribeConfigsRequest:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
    return DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=True)


@pytest.mark.parametrize("version", DESCRIBE_CONFIGS.versions[1:])
async def test_a_topic_is_described_with_all_its_keys(topic: Broker, version: int) -> None:
    request = asking(TOPIC, "t")
    request.include_documentation = version >= 3
    (result,) = (await topic.ask(DESCRIBE_CONFIGS, request, version)).results
    assert (result.error_code, result.resource_type, result.resource_name) == (0, TOPIC, "t")
    by_name = {config.name: config for config in result.configs}
    assert by_name.keys() == {name for name, key in TOPIC_KEYS.items() if key.is_shown_unset}
    retention = by_name["retention.ms"]
    assert (retention.value, retention.config_source, retention.read_only) == ("5", 1, False)
    assert [(s.name, s.value, s.source) for s in retention.synonyms] == [("retention.ms", "5", 1)]
    size = by_name["max.message.bytes"]
    assert (size.value, size.config_source) == ("1048588", 5)
    assert [(s.name, s.value, s.source) for s in size.synonyms] == [("message.max.bytes", "1048588", 5)]
    if version >= 3:
        assert retention.config_type == 5
        assert retention.documentation == TOPIC_KEYS["retention.ms"].doc


async def test_the_first_version_says_only_whether_a_value_is_the_default(topic: Broker) -> None:
    request = asking(TOPIC, "t", ["retention.ms", "max.message.bytes"])
    request.include_synonyms = request.include_documentation = False
    (result,) = (await topic.ask(DESCRIBE_CONFIGS, request, 0)).results
    shown = {config.name: (config.value, config.is_default, config.synonyms) for config in result.configs}
    assert shown == {"retention.ms": ("5", False, []), "max.message.bytes": ("1048588", True, [])}


async def test_only_the_keys_asked_for_are_described_and_only_as_much_as_asked(topic: Broker) -> None:
    request = asking(TOPIC, "t", ["retention.ms", "no.such.key"])
    request.include_synonyms = request.include_documentation = False
    (result,) = (await topic.ask(DESCRIBE_CONFIGS, request)).results
    (config,) = result.configs
    assert (config.name, config.synonyms, config.documentation) == ("retention.ms", [], None)


async def test_an_empty_list_of_keys_asks_for_all(topic: Broker) -> None:
    (result,) = (await topic.ask(DESCRIBE_CONFIGS, asking(TOPIC, "t", []))).results
    assert len(result.configs) == sum(key.is_shown_unset for key in TOPIC_KEYS.values())


async def test_this_broker_is_described_without_its_secrets(topic: Broker) -> None:
    (result,) = (await topic.ask(DESCRIBE_CONFIGS, asking(BROKER, "1"))).results
    by_name = {config.name: config for config in result.configs}
    assert by_name.keys() == {name for name, key in BROKER_KEYS.items() if key.is_shown_unset}
    secret = by_name["ssl.key.password"]
    assert (secret.is_sensitive, secret.value) == (True, None)
    assert [(s.value, s.source) for s in secret.synonyms] == [(None, 4)]
    assert by_name["broker.id"].read_only
    assert not by_name["message.max.bytes"].read_only


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "nobody", UnknownTopicOrPartition.code),
        (TOPIC, "a b", InvalidTopicException.code),
        (TOPIC, "", InvalidTopicException.code),
        (BROKER, "2", InvalidRequest.code),
        (BROKER, "x", InvalidRequest.code),
        (CLIENT_METRICS, "", InvalidRequest.code),
        (GROUP, "", InvalidRequest.code),
        (1, "", InvalidRequest.code),
    ],
)
async def test_what_cannot_be_described_is_an_error_of_that_resource(
    topic: Broker, kind: int, name: str, code: int
) -> None:
    request = asking(kind, name)
    request.resources.append(DescribeConfigsResource(resource_type=TOPIC, resource_name="t"))
    wrong, right = (await topic.ask(DESCRIBE_CONFIGS, request)).results
    assert (wrong.error_code, wrong.resource_type, wrong.resource_name) == (code, kind, name)
    assert wrong.error_message
    assert right.error_code == 0


def change(name: str, operation: int, value: str | None) -> changing.AlterableConfig:
    return changing.AlterableConfig(name=name, config_operation=operation, value=value)


def change_of(kind: int, name: str, *configs: changing.AlterableConfig) -> changing.AlterConfigsResource:
    return changing.AlterConfigsResource(resource_type=kind, resource_name=name, configs=list(configs))


@pytest.mark.parametrize("version", INCREMENTAL_ALTER_CONFIGS.versions)
async def test_changes_take_effect_at_once(topic: Broker, version: int) -> None:
    request = changing.IncrementalAlterConfigsRequest(
        resources=[
            change_of(
                TOPIC,
                "t",
                change("segment.ms", SET, "9"),
                change("retention.ms", DELETE, None),
                change("cleanup.policy", APPEND, "compact"),
            ),
            change_of(BROKER, "", change("message.max.bytes", SET, "77")),
        ]
    )
    response = await topic.ask(INCREMENTAL_ALTER_CONFIGS, request, version)
    assert [(r.error_code, r.error_message, r.resource_type) for r in response.responses] == [
        (0, None, TOPIC),
        (0, None, BROKER),
    ]
    config = topic.led("t").log.config
    assert (config.segment_ms, config.retention_ms, config.cleanup_policy, config.max_message_bytes) == (
        9,
        604_800_000,
        ("delete", "compact"),
        77,
    )
    request.resources = [change_of(TOPIC, "t", change("cleanup.policy", SUBTRACT, "delete"))]
    await topic.ask(INCREMENTAL_ALTER_CONFIGS, request, version)
    assert topic.led("t").log.config.cleanup_policy == ("compact",)


@pytest.mark.parametrize(
    ("resource", "code"),
    [
        (change_of(TOPIC, "nobody", change("segment.ms", SET, "9")), UnknownTopicOrPartition.code),
        (change_of(TOPIC, "t", change("segment.ms", SET, "x")), InvalidConfig.code),
        (change_of(TOPIC, "t", change("segment.msec", SET, "1")), InvalidConfig.code),
        (change_of(TOPIC, "t", change("segment.ms", APPEND, "1")), InvalidConfig.code),
        (change_of(TOPIC, "t", change("segment.ms", SET, None)), InvalidRequest.code),
        (change_of(TOPIC, "t", change("segment.ms", 9, "1")), InvalidRequest.code),
        (
            change_of(TOPIC, "t", change("segment.ms", SET, "1"), change("segment.ms", SET, "2")),
            InvalidRequest.code,
        ),
        (change_of(BROKER, "1", change("broker.id", SET, "2")), InvalidRequest.code),
        (change_of(BROKER, "2", change("message.max.bytes", SET, "2")), InvalidRequest.code),
        (change_of(GROUP, "g", change("x", SET, "2")), InvalidConfig.code),
        (change_of(LOGGER, "1", change("root", DELETE, None)), InvalidRequest.code),
    ],
)
async def test_a_wrong_change_is_an_error_of_its_resource(
    topic: Broker, resource: changing.AlterConfigsResource, code: int
) -> None:
    before = topic.led("t").log.config
    good = change_of(BROKER, "", change("message.max.bytes", SET, "77"))
    request = changing.IncrementalAlterConfigsRequest(resources=[resource, good])
    wrong, right = (await topic.ask(INCREMENTAL_ALTER_CONFIGS, request)).responses
    assert wrong.error_code == code
    assert wrong.error_message
    assert right.error_code == 0
    assert topic.led("t").log.config.overridden == before.overridden


async def test_a_resource_appears_once(topic: Broker) -> None:
    resource = change_of(TOPIC, "t", change("segment.ms", SET, "9"))
    request = changing.IncrementalAlterConfigsRequest(resources=[resource, resource])
    response = await topic.ask(INCREMENTAL_ALTER_CONFIGS, request)
    assert [result.error_code for result in response.responses] == [InvalidRequest.code] * 2
    assert topic.led("t").log.config.segment_ms != 9


async def test_validate_only_says_what_would_happen(topic: Broker) -> None:
    request = changing.IncrementalAlterConfigsRequest(
        resources=[change_of(TOPIC, "t", change("segment.ms", SET, "9"))], validate_only=True
    )
    assert [r.error_code for r in (await topic.ask(INCREMENTAL_ALTER_CONFIGS, request)).responses] == [0]
    request.resources[0].configs[0].value = "x"
    (result,) = (await topic.ask(INCREMENTAL_ALTER_CONFIGS, request)).responses
    assert result.error_code == InvalidConfig.code
    assert topic.led("t").log.config.segment_ms != 9


def replacement(kind: int, name: str, **configs: str | None) -> replacing.AlterConfigsResource:
    return replacing.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            replacing.AlterableConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ],
    )


@pytest.mark.parametrize("version", ALTER_CONFIGS.versions)
async def test_a_replacement_sets_all(topic: Broker, version: int) -> None:
    request = replacing.AlterConfigsRequest(
        resources=[
            replacement(TOPIC, "t", segment_ms="9"),
            replacement(TOPIC, "nobody"),
            replacement(BROKER, "1", broker_id="9"),
            replacement(LOGGER, "1", root="INFO"),
            replacement(BROKER, "", message_max_bytes=None),
        ]
    )
    response = await topic.ask(ALTER_CONFIGS, request, version)
    assert [result.error_code for result in response.responses] == [
        0,
        UnknownTopicOrPartition.code,
        InvalidRequest.code,
        InvalidRequest.code,
        InvalidRequest.code,
    ]
    assert topic.led("t").log.config.overridden == {"segment.ms"}
    request = replacing.AlterConfigsRequest(resources=[replacement(TOPIC, "t")], validate_only=True)
    await topic.ask(ALTER_CONFIGS, request, version)
    assert topic.led("t").log.config.overridden == {"segment.ms"}


async def test_resources_are_listed_by_type(topic: Broker) -> None:
    async def listed(version: int, *kinds: int) -> list[tuple[str, int]]:
        request = ListConfigResourcesRequest(resource_types=list(kinds))
        response = await topic.ask(LIST_CONFIG_RESOURCES, request, version)
        return [(resource.resource_name, resource.resource_type) for resource in response.config_resources]

    assert await listed(0) == []
    assert await listed(1) == [("t", TOPIC), ("1", BROKER), ("1", LOGGER)]
    assert await listed(1, TOPIC) == [("t", TOPIC)]
    assert await listed(1, GROUP, CLIENT_METRICS) == []
    change = change_of(CLIENT_METRICS, "m", changing.AlterableConfig(name="metrics", value="*"))
    await topic.ask(INCREMENTAL_ALTER_CONFIGS, changing.IncrementalAlterConfigsRequest(resources=[change]))
    assert await listed(0) == [("m", CLIENT_METRICS)]
    assert await listed(1, GROUP, CLIENT_METRICS) == [("m", CLIENT_METRICS)]
    with pytest.raises(UnsupportedVersion):
        await listed(1, 3)


@pytest.mark.parametrize(
    ("name", "key", "value", "code"),
    [
        ("m", "interval.ms", "99", InvalidRequest.code),
        ("m", "interval.ms", "3600001", InvalidRequest.code),
        ("m", "interval.ms", "soon", InvalidConfig.code),
        ("m", "retention.ms", "1", InvalidRequest.code),
        ("m", "match", "client_id", InvalidConfig.code),
        ("m", "match", "client_id=", InvalidConfig.code),
        ("m", "match", "client_id=a=b", InvalidConfig.code),
        ("m", "match", "colour=red", InvalidConfig.code),
        ("m", "match", "client_id=(", InvalidConfig.code),
        ("m", "match", f"client_id={'x' * 2_000}", InvalidConfig.code),
        ("", "metrics", "*", InvalidRequest.code),
        ("m", "metrics", "*", 0),
        ("m", "match", "client_id=a.*, client_software_name = Java", 0),
    ],
)
async def test_client_metrics_are_checked(broker: Broker, name: str, key: str, value: str, code: int) -> None:
    resource = change_of(CLIENT_METRICS, name, change(key, SET, value))
    request = changing.IncrementalAlterConfigsRequest(resources=[resource])
    (response,) = (await broker.ask(INCREMENTAL_ALTER_CONFIGS, request)).responses
    assert response.error_code == code, response.error_message
    assert broker.configs.client_metrics.names() == ([] if code else ["m"])


async def test_client_metrics_are_described_and_survive_a_restart(broker: Broker) -> None:
    changes = [change("metrics", APPEND, "a,b"), change("metrics", SUBTRACT, "a")]
    for each in changes:
        request = changing.IncrementalAlterConfigsRequest(resources=[change_of(CLIENT_METRICS, "m/1", each)])
        await broker.ask(INCREMENTAL_ALTER_CONFIGS, request)
    await broker.restart()
    (result,) = (await broker.ask(DESCRIBE_CONFIGS, asking(CLIENT_METRICS, "m/1"))).results
    shown = {config.name: (config.value, config.config_source) for config in result.configs}
    assert shown == {"metrics": ("b", 7), "interval.ms": ("300000", 5), "match": ("", 5)}
    removal = change_of(CLIENT_METRICS, "m/1", change("metrics", DELETE, None))
    await broker.ask(INCREMENTAL_ALTER_CONFIGS, changing.IncrementalAlterConfigsRequest(resources=[removal]))
    assert broker.configs.client_metrics.names() == []
