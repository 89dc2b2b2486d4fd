"""Settings that change while the broker runs."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from barnabas.administration.topic_rules import TopicSpec
from barnabas.cluster.stores import topics as store
from barnabas.cluster.znodes.layout import ConfigZnode
from barnabas.config.dynamic.changes import Change
from barnabas.config.dynamic.repository import ConfigResource
from barnabas.config.dynamic.store import DEFAULT_ENTITY
from barnabas.core.errors import InvalidConfig, InvalidRequest, InvalidTopicException, UnknownTopicOrPartition
from barnabas.protocol.config_numbers import ConfigOperation, ConfigSource, ResourceType
from tests.unit.controller.support import BROKER_ID, Admin

TOPIC = ConfigResource(ResourceType.TOPIC, "t")
BROKER = ConfigResource(ResourceType.BROKER, str(BROKER_ID))
ALL_BROKERS = ConfigResource(ResourceType.BROKER, "")


@pytest.fixture
async def topic(admin: Admin) -> Admin:
    await admin.topics.create_topic(TopicSpec("t", configs={"retention.ms": "5"}))
    return admin


async def test_a_change_reaches_the_store_and_the_log(topic: Admin) -> None:
    await topic.configs.change(TOPIC, [Change("segment.ms", ConfigOperation.SET, "9")])
    assert topic.configs.topic_config("t").segment_ms == 9
    assert topic.led("t").log.config.segment_ms == 9
    assert topic.led("t").log.config.retention_ms == 5
    stored = await store.read_config(topic.znodes, ConfigZnode.TOPICS, "t")
    assert stored == {"retention.ms": "5", "segment.ms": "9"}
    assert len(await topic.znodes.children("/config/changes")) == 1


async def test_a_replacement_drops_what_it_does_not_name(topic: Admin) -> None:
    await topic.configs.replace(TOPIC, {"segment.ms": "9"})
    assert topic.led("t").log.config.overridden == {"segment.ms"}


async def test_changes_survive_a_restart(topic: Admin) -> None:
    await topic.configs.change(TOPIC, [Change("segment.ms", ConfigOperation.SET, "9")])
    await topic.configs.change(BROKER, [Change("message.max.bytes", ConfigOperation.SET, "77")])
    await topic.configs.change(ALL_BROKERS, [Change("log.cleaner.threads", ConfigOperation.SET, "3")])
    await topic.restart()
    assert topic.led("t").log.config.segment_ms == 9
    assert topic.led("t").log.config.max_message_bytes == 77
    assert topic.configs.broker_config.values["log.cleaner.threads"] == 3


async def test_the_settings_of_a_group_are_its_own_and_within_bounds(topic: Admin) -> None:
    group = ConfigResource(ResourceType.GROUP, "a/b")
    key = "consumer.session.timeout.ms"
    await topic.configs.change(group, [Change(key, ConfigOperation.SET, "50000")])
    for wrong in ("1", "60001", "soon"):
        with pytest.raises(InvalidConfig):
            await topic.configs.change(group, [Change(key, ConfigOperation.SET, wrong)])
    await topic.restart()
    assert topic.configs.group_value("a/b", key) == 50_000
    assert topic.configs.group_value("other", key) == 45_000
    assert topic.configs.groups.names() == ["a/b"]
    shown = {each.name: (each.value, each.source) for each in topic.configs.describe(group)}
    assert shown[key] == ("50000", ConfigSource.GROUP)
    await topic.configs.change(group, [Change(key, ConfigOperation.DELETE)])
    assert topic.configs.group_value("a/b", key) == 45_000
    assert topic.configs.groups.names() == []


async def test_a_trial_changes_nothing(topic: Admin) -> None:
    change = [Change("segment.ms", ConfigOperation.SET, "9")]
    await topic.configs.change(TOPIC, change, validate_only=True)
    await topic.configs.replace(TOPIC, {}, validate_only=True)
    await topic.configs.replace(BROKER, {"message.max.bytes": "77"}, validate_only=True)
    assert await store.read_config(topic.znodes, ConfigZnode.TOPICS, "t") == {"retention.ms": "5"}
    assert topic.led("t").log.config.overridden == {"retention.ms"}
    assert topic.configs.broker_config.values["message.max.bytes"] != 77


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (Change("retention.msec", ConfigOperation.SET, "1"), InvalidConfig),
        (Change("retention.ms", ConfigOperation.SET, "-7"), InvalidConfig),
        (Change("cleanup.policy", ConfigOperation.APPEND, "burn"), InvalidConfig),
    ],
)
async def test_an_invalid_change_changes_nothing(
    topic: Admin, change: Change, expected: type[Exception]
) -> None:
    with pytest.raises(expected):
        await topic.configs.change(TOPIC, [Change("segment.ms", ConfigOperation.SET, "9"), change])
    assert topic.led("t").log.config.overridden == {"retention.ms"}
    assert await store.read_config(topic.znodes, ConfigZnode.TOPICS, "t") == {"retention.ms": "5"}


@pytest.mark.parametrize(
    ("resource", "expected"),
    [
        (ConfigResource(ResourceType.TOPIC, "nobody"), UnknownTopicOrPartition),
        (ConfigResource(ResourceType.TOPIC, "a b"), InvalidTopicException),
        (ConfigResource(ResourceType.BROKER, "2"), InvalidRequest),
        (ConfigResource(ResourceType.BROKER, "one"), InvalidRequest),
        (ConfigResource(ResourceType.BROKER_LOGGER, ""), InvalidRequest),
        (ConfigResource(ResourceType.CLIENT_METRICS, ""), InvalidRequest),
        (ConfigResource(ResourceType.GROUP, ""), InvalidRequest),
        (ConfigResource(3, "x"), InvalidRequest),
    ],
)
async def test_a_resource_must_exist(
    topic: Admin, resource: ConfigResource, expected: type[Exception]
) -> None:
    with pytest.raises(expected):
        topic.configs.describe(resource)
    with pytest.raises(expected):
        await topic.configs.change(resource, [Change("segment.ms", ConfigOperation.SET, "9")])
    with pytest.raises((expected, InvalidRequest)):
        await topic.configs.replace(resource, {})


async def test_a_change_of_the_broker_moves_the_topics_that_inherit(topic: Admin) -> None:
    await topic.topics.create_topic(TopicSpec("own", configs={"max.message.bytes": "1"}))
    heard: list[Collection[str]] = []
    topic.configs.on_broker_change(heard.append)
    await topic.configs.change(ALL_BROKERS, [Change("message.max.bytes", ConfigOperation.SET, "77")])
    assert heard == [{"message.max.bytes"}]
    assert topic.led("t").log.config.max_message_bytes == 77
    assert topic.led("own").log.config.max_message_bytes == 1
    await topic.configs.change(BROKER, [Change("message.max.bytes", ConfigOperation.SET, "78")])
    assert topic.led("t").log.config.max_message_bytes == 78
    await topic.configs.replace(BROKER, {})
    assert topic.led("t").log.config.max_message_bytes == 77
    assert await store.read_config(topic.znodes, ConfigZnode.BROKERS, DEFAULT_ENTITY) == {
        "message.max.bytes": "77"
    }


@pytest.mark.parametrize(
    ("resource", "overrides", "expected"),
    [
        (BROKER, {"broker.id": "9"}, InvalidRequest),
        (BROKER, {"message.max.bytes": "many"}, InvalidRequest),
        (BROKER, {"mesage.max.bytes": "1"}, InvalidConfig),
        (
            ALL_BROKERS,
            {"log.cleaner.min.compaction.lag.ms": "9", "log.cleaner.max.compaction.lag.ms": "8"},
            None,
        ),
    ],
)
async def test_a_broker_refuses_what_it_cannot_change(
    admin: Admin, resource: ConfigResource, overrides: dict[str, str], expected: type[Exception] | None
) -> None:
    with pytest.raises(expected or InvalidRequest):
        await admin.configs.replace(resource, overrides)
    assert await store.read_configs(admin.znodes, ConfigZnode.BROKERS) == {}


async def test_overrides_of_a_newer_kafka_stay_in_the_store_without_effect(admin: Admin) -> None:
    await admin.topics.create_topic(TopicSpec("t", configs={"retention.ms": "5"}))
    overrides = {"retention.ms": "5", "remote.storage.enable": "true"}
    await store.change_config(admin.znodes, ConfigZnode.TOPICS, "t", lambda _: overrides)
    await store.change_config(admin.znodes, ConfigZnode.BROKERS, "1", lambda _: {"who.knows": "1"})
    await admin.restart()
    assert admin.led("t").log.config.retention_ms == 5
    assert await store.read_config(admin.znodes, ConfigZnode.TOPICS, "t") == overrides


async def test_settings_of_a_topic_that_does_not_exist_are_not_described(admin: Admin) -> None:
    path = ConfigZnode.path(ConfigZnode.TOPICS, "ghost")
    await admin.znodes.create(path, ConfigZnode.encode({"retention.ms": "5"}), make_parents=True)
    await admin.restart()
    with pytest.raises(UnknownTopicOrPartition):
        admin.configs.describe(ConfigResource(ResourceType.TOPIC, "ghost"))


async def test_descriptions_tell_where_values_come_from(topic: Admin) -> None:
    await topic.configs.change(ALL_BROKERS, [Change("message.max.bytes", ConfigOperation.SET, "77")])
    of_topic = {entry.name: entry for entry in topic.configs.describe(TOPIC)}
    assert of_topic["retention.ms"].source is ConfigSource.TOPIC
    assert of_topic["max.message.bytes"].source is ConfigSource.DYNAMIC_DEFAULT_BROKER
    assert of_topic["segment.bytes"].source is ConfigSource.DEFAULT
    of_broker = {entry.name: entry for entry in topic.configs.describe(BROKER)}
    assert of_broker["message.max.bytes"].value == "77"
    assert of_broker["broker.id"].read_only
    assert [entry.name for entry in topic.configs.describe(ALL_BROKERS)] == ["message.max.bytes"]
    loggers = topic.configs.describe(ConfigResource(ResourceType.BROKER_LOGGER, str(BROKER_ID)))
    assert "root" in {entry.name for entry in loggers}


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("max.connections.per.ip.overrides", "nobody", "not of the form HOST:COUNT"),
        ("max.connections.per.ip", "0", "all are refused"),
        ("log.retention.ms", "0", "must be at least 1"),
        ("log.cleaner.dedupe.buffer.size", "1000", "more than 1 MiB"),
    ],
)
async def test_what_would_stop_a_start_is_refused_at_run_time_too(
    admin: Admin, name: str, value: str, complaint: str
) -> None:
    before = dict(admin.configs.broker_config.values)
    with pytest.raises(InvalidRequest, match=complaint):
        await admin.configs.change(
            ConfigResource(ResourceType.BROKER, ""), [Change(name, ConfigOperation.SET, value)]
        )
    assert await store.read_configs(admin.znodes, ConfigZnode.BROKERS) == {}
    assert admin.configs.broker_config.values == before


async def test_a_stored_override_that_cannot_be_read_does_not_stop_a_start(admin: Admin) -> None:
    overrides = {"max.connections.per.ip.overrides": "nobody", "max.connections": "7"}
    await store.change_config(admin.znodes, ConfigZnode.BROKERS, DEFAULT_ENTITY, lambda _: overrides)
    await admin.configs.load()
    assert admin.configs.broker_config.max_connections == 7
    assert admin.configs.broker_config.max_connections_per_ip_overrides == {}
