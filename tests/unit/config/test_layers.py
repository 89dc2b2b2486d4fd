"""Precedence of config values, and the sources that DescribeConfigs shows."""

from __future__ import annotations

import pytest

from barnabas.config.definitions import BROKER_KEYS as REAL_KEYS
from barnabas.config.definitions.keys import ConfigType, Definition, Key, Update, at_least
from barnabas.config.definitions.topics import TOPIC_KEYS
from barnabas.config.dynamic.changes import (
    Change,
    apply_changes,
    check_broker_overrides,
    parse_changes,
    parse_replacement,
)
from barnabas.config.dynamic.layers import (
    BrokerLayers,
    Synonym,
    describe_broker,
    describe_broker_defaults,
    describe_topic,
)
from barnabas.config.log_config import resolve
from barnabas.core.errors import InvalidConfig, InvalidRequest
from barnabas.protocol.config_numbers import ConfigOperation, ConfigSource

BROKER_KEYS = Definition(
    [
        Key("log.retention.ms", ConfigType.LONG, None, update=Update.CLUSTER_WIDE),
        Key("log.retention.minutes", ConfigType.INT, None),
        Key("log.retention.hours", ConfigType.INT, 168),
        Key(
            "message.max.bytes", ConfigType.INT, 1_048_588, at_least(0), Update.CLUSTER_WIDE, "Largest batch."
        ),
        Key("ssl.key.password", ConfigType.PASSWORD, None, update=Update.PER_BROKER),
        Key("num.io.threads", ConfigType.INT, 8),
    ]
)
WEEK_MS = 7 * 24 * 3_600_000


def layers(static: dict[str, str] | None = None) -> BrokerLayers:
    return BrokerLayers(BROKER_KEYS, static or {})


@pytest.mark.parametrize(
    ("static", "expected_ms"),
    [
        ({}, WEEK_MS),
        ({"log.retention.hours": "1"}, 3_600_000),
        ({"log.retention.hours": "1", "log.retention.minutes": "2"}, 120_000),
        ({"log.retention.minutes": "2", "log.retention.ms": "7"}, 7),
        ({"log.retention.hours": "-1"}, -1),
    ],
)
def test_a_topic_inherits_from_the_broker_in_any_unit(static: dict[str, str], expected_ms: int) -> None:
    assert resolve({}, layers(static).values()).retention_ms == expected_ms


def test_the_override_of_a_topic_beats_the_broker() -> None:
    assert resolve({"retention.ms": "5"}, layers({"log.retention.ms": "7"}).values()).retention_ms == 5


def test_what_is_set_at_run_time_beats_what_the_broker_started_with() -> None:
    broker = layers({"message.max.bytes": "1"})
    broker.dynamic_default["message.max.bytes"] = "2"
    assert broker.value("message.max.bytes") == 2
    broker.dynamic["message.max.bytes"] = "3"
    assert broker.value("message.max.bytes") == 3


def test_synonyms_show_the_whole_search_nearest_first() -> None:
    broker = layers({"message.max.bytes": "1"})
    broker.dynamic_default["message.max.bytes"] = "2"
    broker.dynamic["message.max.bytes"] = "3"
    config = resolve({"max.message.bytes": "4"}, broker.values())
    entry = next(entry for entry in describe_topic(config, broker) if entry.name == "max.message.bytes")
    assert entry.value == "4"
    assert entry.source is ConfigSource.TOPIC
    assert entry.documentation == TOPIC_KEYS["max.message.bytes"].doc
    assert not entry.read_only
    assert entry.synonyms == [
        Synonym("max.message.bytes", "4", ConfigSource.TOPIC),
        Synonym("message.max.bytes", "3", ConfigSource.DYNAMIC_BROKER),
        Synonym("message.max.bytes", "2", ConfigSource.DYNAMIC_DEFAULT_BROKER),
        Synonym("message.max.bytes", "1", ConfigSource.STATIC_BROKER),
        Synonym("message.max.bytes", "1048588", ConfigSource.DEFAULT),
    ]


def test_a_default_without_a_synonym_is_a_default() -> None:
    broker = layers()
    by_name = {entry.name: entry for entry in describe_topic(resolve({}, broker.values()), broker)}
    assert by_name.keys() == {name for name, key in TOPIC_KEYS.items() if key.is_shown_unset}
    assert by_name["cleanup.policy"].source is ConfigSource.DEFAULT
    assert by_name["cleanup.policy"].value == "delete"
    assert by_name["cleanup.policy"].type == ConfigType.LIST
    assert by_name["retention.ms"].value == str(WEEK_MS)
    assert by_name["retention.ms"].synonyms == []


def test_the_rates_of_throttled_replicas_are_shown_once_they_are_set() -> None:
    broker = BrokerLayers(REAL_KEYS, {})
    rate = "leader.replication.throttled.rate"
    assert rate not in {entry.name for entry in describe_broker(broker)}
    broker.dynamic = {rate: "7"}
    (entry,) = (entry for entry in describe_broker(broker) if "throttled.rate" in entry.name)
    assert (entry.name, entry.value, entry.source) == (rate, "7", ConfigSource.DYNAMIC_BROKER)


def test_a_broker_shows_what_is_read_only_and_hides_secrets() -> None:
    broker = layers({"ssl.key.password": "hush", "num.io.threads": "4"})
    by_name = {entry.name: entry for entry in describe_broker(broker)}
    secret = by_name["ssl.key.password"]
    assert secret.is_sensitive
    assert secret.value is None
    assert secret.synonyms == [Synonym("ssl.key.password", None, ConfigSource.STATIC_BROKER)]
    assert by_name["num.io.threads"].read_only
    assert by_name["num.io.threads"].source is ConfigSource.STATIC_BROKER
    assert not by_name["message.max.bytes"].read_only
    assert by_name["log.retention.minutes"].value is None


def test_the_default_broker_shows_only_what_was_set_for_all() -> None:
    broker = layers({"message.max.bytes": "1"})
    broker.dynamic["message.max.bytes"] = "3"
    assert describe_broker_defaults(broker) == []
    broker.dynamic_default["message.max.bytes"] = "2"
    (entry,) = describe_broker_defaults(broker)
    assert (entry.name, entry.value) == ("message.max.bytes", "2")
    assert entry.synonyms == [Synonym("message.max.bytes", "2", ConfigSource.DYNAMIC_DEFAULT_BROKER)]


def test_changes_set_delete_append_and_subtract() -> None:
    after = apply_changes(
        TOPIC_KEYS,
        {"retention.ms": "1", "max.message.bytes": "2"},
        [
            Change("retention.ms", ConfigOperation.SET, "9"),
            Change("max.message.bytes", ConfigOperation.DELETE),
            Change("cleanup.policy", ConfigOperation.APPEND, "compact,delete"),
        ],
    )
    assert after == {"retention.ms": "9", "cleanup.policy": "delete,compact"}
    after = apply_changes(TOPIC_KEYS, after, [Change("cleanup.policy", ConfigOperation.SUBTRACT, "delete")])
    assert after["cleanup.policy"] == "compact"


@pytest.mark.parametrize("operation", [ConfigOperation.APPEND, ConfigOperation.SUBTRACT])
def test_only_lists_can_be_appended_to(operation: ConfigOperation) -> None:
    with pytest.raises(InvalidConfig, match=r"not allowed"):
        apply_changes(TOPIC_KEYS, {}, [Change("retention.ms", operation, "1")])
    with pytest.raises(InvalidConfig, match=r"did you mean cleanup.policy"):
        apply_changes(TOPIC_KEYS, {}, [Change("cleanup.polcy", operation, "compact")])


def test_a_request_names_a_key_once_with_a_value_and_a_known_operation() -> None:
    assert parse_changes([("a", 0, "1"), ("b", 1, None)]) == [
        Change("a", ConfigOperation.SET, "1"),
        Change("b", ConfigOperation.DELETE, None),
    ]
    for wrong in ([("a", 0, "1"), ("a", 1, None)], [("a", 0, None)], [("a", 4, "1")]):
        with pytest.raises(InvalidRequest):
            parse_changes(wrong)
    assert parse_replacement([("a", "1")]) == {"a": "1"}
    for replacement in ([("a", "1"), ("a", "2")], [("a", None)]):
        with pytest.raises(InvalidRequest):
            parse_replacement(replacement)


@pytest.mark.parametrize(
    ("overrides", "all_brokers", "reason"),
    [
        ({"num.io.threads": "4"}, False, "dynamically: num.io.threads"),
        ({"ssl.key.password": "x"}, True, "broker id must be given"),
        ({"message.max.bytes": "-1"}, True, "at least 0"),
    ],
)
def test_a_running_broker_takes_only_some_changes(
    overrides: dict[str, str], all_brokers: bool, reason: str
) -> None:
    with pytest.raises(InvalidRequest, match=reason):
        check_broker_overrides(BROKER_KEYS, overrides, all_brokers=all_brokers)


def test_an_unknown_broker_key_is_refused() -> None:
    check_broker_overrides(
        BROKER_KEYS, {"ssl.key.password": "x", "message.max.bytes": "1"}, all_brokers=False
    )
    with pytest.raises(InvalidConfig, match=r"message.max.bytes"):
        check_broker_overrides(BROKER_KEYS, {"message.max.byte": "1"}, all_brokers=True)
