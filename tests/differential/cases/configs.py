"""DescribeConfigs (32), AlterConfigs (33), IncrementalAlterConfigs (44), ListConfigResources (74).

One resource twice in one AlterConfigs is no case: Kafka fails on it without an answer and leaves the
client waiting.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages import alter_configs, incremental_alter_configs
from barnabas.protocol.messages.alter_configs import AlterConfigsRequest
from barnabas.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from barnabas.protocol.messages.list_config_resources import ListConfigResourcesRequest
from tests.differential.case import Case, Until, case
from tests.differential.world import World

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)


def describe(resource_type: int, name: str, keys: Sequence[str] | None = None, *, synonyms: bool = False,
             documentation: bool = False) -> DescribeConfigsRequest:  # fmt: skip
    resource = DescribeConfigsResource(
        resource_type=resource_type,
        resource_name=name,
        configuration_keys=None if keys is None else list(keys),
    )
    return DescribeConfigsRequest(
        resources=[resource], include_synonyms=synonyms, include_documentation=documentation
    )


@case(ApiKey.DESCRIBE_CONFIGS)
def all_of_a_topic(world: World) -> Case:
    yield describe(TOPIC, "letters")


@case(ApiKey.DESCRIBE_CONFIGS, "1+")
def synonyms_of_a_topic(world: World) -> Case:
    yield describe(TOPIC, "stamped", synonyms=True)


@case(ApiKey.DESCRIBE_CONFIGS, "3+")
def documentation_of_a_topic(world: World) -> Case:
    yield describe(TOPIC, "letters", ["retention.ms", "cleanup.policy"], documentation=True)


@case(ApiKey.DESCRIBE_CONFIGS, "1+")
def some_keys(world: World) -> Case:
    yield describe(TOPIC, "letters", ["retention.ms", "no.such.key"])
    yield describe(TOPIC, "letters", [])
    yield describe(TOPIC, "letters", ["segment.bytes", "segment.bytes"])
    yield describe(BROKER, "1", ["message.max.bytes", "log.retention.ms", "no.such.key"], synonyms=True)
    yield describe(BROKER, "1", [])


@case(ApiKey.DESCRIBE_CONFIGS)
def all_of_the_broker(world: World) -> Case:
    yield describe(BROKER, "1")


@case(ApiKey.DESCRIBE_CONFIGS, "1+")
def synonyms_of_the_broker(world: World) -> Case:
    yield describe(BROKER, "1", synonyms=True)


@case(ApiKey.DESCRIBE_CONFIGS)
def all_of_the_default_broker(world: World) -> Case:
    yield describe(BROKER, "")


@case(ApiKey.DESCRIBE_CONFIGS)
def what_is_not_there(world: World) -> Case:
    for resource_type, name in ((TOPIC, "nowhere"), (TOPIC, ""), (TOPIC, "a/b"), (BROKER, "2"), (BROKER, "x"),
                                (BROKER_LOGGER, "x"), (BROKER_LOGGER, ""), (0, "x"), (1, "x"), (3, "x"),
                                (99, "x"), (-1, "x")):  # fmt: skip
        yield describe(resource_type, name, ["retention.ms"])


@case(ApiKey.DESCRIBE_CONFIGS)
def no_resource(world: World) -> Case:
    yield DescribeConfigsRequest(resources=[])


@case(ApiKey.DESCRIBE_CONFIGS)
def a_resource_twice(world: World) -> Case:
    resource = DescribeConfigsResource(
        resource_type=TOPIC, resource_name="letters", configuration_keys=["retention.ms"]
    )
    yield DescribeConfigsRequest(resources=[resource, resource])


@case(ApiKey.DESCRIBE_CONFIGS)
def loggers(world: World) -> Case:
    yield describe(BROKER_LOGGER, "1", ["root"])


def alter(resource_type: int, name: str, configs: Sequence[tuple[str, str | None]], *,
          validate_only: bool = False) -> AlterConfigsRequest:  # fmt: skip
    rows = [alter_configs.AlterableConfig(name=key, value=value) for key, value in configs]
    resource = alter_configs.AlterConfigsResource(
        resource_type=resource_type, resource_name=name, configs=rows
    )
    return AlterConfigsRequest(resources=[resource], validate_only=validate_only)


BAD = (
    [("retention.ms", "soon")],
    [("retention.ms", "-2")],
    [("retention.ms", None)],
    [("retention.ms", "")],
    [("no.such.key", "1")],
    [("", "1")],
    [("retention.ms", "1"), ("retention.ms", "2")],
    [("cleanup.policy", "burn")],
    [("cleanup.policy", "")],
    [("min.insync.replicas", "0")],
    [("retention.ms", "5"), ("no.such.key", "1")],
)


def shows(key: str, value: str) -> Callable[[Any], bool]:
    """Kafka's brokers learn of a change a moment after it was made."""

    def wished(answer: Any) -> bool:
        configs = answer.results[0].configs
        return any(each.name == key and each.value == value for each in configs)

    return wished


@case(ApiKey.ALTER_CONFIGS)
def replaced_configs(world: World) -> Case:
    topic = world.topic(configs={"retention.ms": "5000", "segment.ms": "7000"})
    yield alter(TOPIC, topic.name, [("retention.ms", "6000")])
    yield Until(
        describe(TOPIC, topic.name, ["retention.ms", "segment.ms"], synonyms=True),
        shows("retention.ms", "6000"),
    )
    yield alter(TOPIC, topic.name, [], validate_only=True)
    yield alter(TOPIC, topic.name, [])
    yield Until(describe(TOPIC, topic.name, ["retention.ms"]), shows("retention.ms", "-1"))


@case(ApiKey.ALTER_CONFIGS)
def configs_that_cannot_be(world: World) -> Case:
    for configs in BAD:
        yield alter(TOPIC, "letters", configs, validate_only=True)


@case(ApiKey.ALTER_CONFIGS)
def altering_what_is_not_there(world: World) -> Case:
    for resource_type, name in ((TOPIC, "nowhere"), (TOPIC, ""), (TOPIC, "a/b"), (BROKER, "x"), (BROKER, "2"),
                                (0, "x"), (1, "x"), (99, "x"), (-1, "x")):  # fmt: skip
        yield alter(resource_type, name, [("retention.ms", "1")], validate_only=True)
    yield AlterConfigsRequest(resources=[])


def increment(resource_type: int, name: str, configs: Sequence[tuple[str, int, str | None]], *,
              validate_only: bool = False) -> IncrementalAlterConfigsRequest:  # fmt: skip
    rows = [
        incremental_alter_configs.AlterableConfig(name=key, config_operation=operation, value=value)
        for key, operation, value in configs
    ]
    resource = incremental_alter_configs.AlterConfigsResource(
        resource_type=resource_type, resource_name=name, configs=rows
    )
    return IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)


@case(ApiKey.INCREMENTAL_ALTER_CONFIGS)
def changed_configs(world: World) -> Case:
    topic = world.topic(configs={"retention.ms": "5000", "segment.ms": "7000"})
    yield increment(TOPIC, topic.name, [("retention.ms", SET, "6000"), ("segment.ms", DELETE, None)])
    yield Until(
        describe(TOPIC, topic.name, ["retention.ms", "segment.ms"], synonyms=True),
        shows("retention.ms", "6000"),
    )
    yield increment(TOPIC, topic.name, [("cleanup.policy", APPEND, "compact")])
    yield Until(describe(TOPIC, topic.name, ["cleanup.policy"]), shows("cleanup.policy", "delete,compact"))
    yield increment(TOPIC, topic.name, [("cleanup.policy", SUBTRACT, "delete")])
    yield Until(describe(TOPIC, topic.name, ["cleanup.policy"]), shows("cleanup.policy", "compact"))
    yield increment(TOPIC, topic.name, [("cleanup.policy", APPEND, "compact")], validate_only=True)
    yield increment(TOPIC, topic.name, [("cleanup.policy", SUBTRACT, "compact")], validate_only=True)


@case(ApiKey.INCREMENTAL_ALTER_CONFIGS)
def changes_that_cannot_be(world: World) -> Case:
    for configs in BAD:
        yield increment(TOPIC, "letters", [(key, SET, value) for key, value in configs], validate_only=True)
    for key, operation, value in (
        ("retention.ms", APPEND, "1"),
        ("retention.ms", SUBTRACT, "1"),
        ("retention.ms", 4, "1"),
        ("retention.ms", -1, "1"),
        ("no.such.key", DELETE, None),
        ("retention.ms", DELETE, None),
        ("retention.ms", DELETE, "5"),
        ("cleanup.policy", APPEND, None),
        ("cleanup.policy", APPEND, "burn"),
        ("cleanup.policy", SUBTRACT, "compact"),
        ("cleanup.policy", APPEND, "delete"),
    ):
        yield increment(TOPIC, "letters", [(key, operation, value)], validate_only=True)


@case(ApiKey.INCREMENTAL_ALTER_CONFIGS)
def incrementing_what_is_not_there(world: World) -> Case:
    for resource_type, name in ((TOPIC, "nowhere"), (TOPIC, ""), (TOPIC, "a/b"), (BROKER, "x"), (BROKER, "2"),
                                (0, "x"), (1, "x"), (99, "x"), (-1, "x"), (BROKER_LOGGER, "2")):  # fmt: skip
        yield increment(resource_type, name, [("retention.ms", SET, "1")], validate_only=True)
    yield IncrementalAlterConfigsRequest(resources=[])


@case(ApiKey.INCREMENTAL_ALTER_CONFIGS)
def incrementing_twice_in_one_request(world: World) -> Case:
    row = incremental_alter_configs.AlterConfigsResource(
        resource_type=TOPIC,
        resource_name="letters",
        configs=[
            incremental_alter_configs.AlterableConfig(name="retention.ms", config_operation=SET, value="1")
        ],
    )
    yield IncrementalAlterConfigsRequest(resources=[row, row], validate_only=True)


@case(ApiKey.INCREMENTAL_ALTER_CONFIGS)
def changes_of_the_broker(world: World) -> Case:
    for key, value in (
        ("message.max.bytes", "2000000"),
        ("message.max.bytes", "-1"),
        ("broker.id", "5"),
        ("log.dirs", "/x"),
        ("no.such.key", "1"),
        ("num.io.threads", "9"),
        ("log.retention.ms", "60000"),
    ):
        yield increment(BROKER, "1", [(key, SET, value)], validate_only=True)
        yield increment(BROKER, "", [(key, SET, value)], validate_only=True)


@case(ApiKey.INCREMENTAL_ALTER_CONFIGS)
def loggers_changed(world: World) -> Case:
    for configs in ([("root", SET, "LOUD")], [("no.such.logger", SET, "INFO")], [("root", DELETE, None)],
                    [("root", APPEND, "INFO")]):  # fmt: skip
        yield increment(BROKER_LOGGER, "1", configs, validate_only=True)


@case(ApiKey.INCREMENTAL_ALTER_CONFIGS)
def client_metrics_changed(world: World) -> Case:
    for key, value in (
        ("metrics", "*"),
        ("interval.ms", "100"),
        ("interval.ms", "99"),
        ("interval.ms", "soon"),
        ("match", "client_id=a.*"),
        ("match", "client_id"),
        ("match", "colour=red"),
        ("match", "client_id=("),
        ("retention.ms", "1"),
    ):
        yield increment(CLIENT_METRICS, "m", [(key, SET, value)], validate_only=True)
    yield increment(CLIENT_METRICS, "", [("metrics", SET, "*")], validate_only=True)


@case(ApiKey.LIST_CONFIG_RESOURCES)
def config_resources(world: World) -> Case:
    yield ListConfigResourcesRequest()


@case(ApiKey.LIST_CONFIG_RESOURCES, "1+")
def config_resources_by_type(world: World) -> Case:
    for types in ([BROKER], [BROKER_LOGGER], [CLIENT_METRICS], [GROUP], [0], [99], [BROKER, BROKER]):
        yield ListConfigResourcesRequest(resource_types=types)
