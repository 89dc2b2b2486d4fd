"""The settings of groups: DescribeConfigs (32), AlterConfigs (33), IncrementalAlterConfigs (44) and
ListConfigResources (74) with the resource type GROUP. Each case takes back what it set."""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.list_config_resources import ListConfigResourcesRequest
from tests.differential.case import Case, Until, case
from tests.differential.cases.configs import (
    APPEND,
    DELETE,
    GROUP,
    SET,
    alter,
    describe,
    increment,
    shows,
)
from tests.differential.world import World

SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


def shown(group: str, key: str, value: str) -> Until:
    return Until(describe(GROUP, group, [SESSION, HEARTBEAT]), shows(key, value))


@case(ApiKey.DESCRIBE_CONFIGS, "1+")
def all_of_a_group(world: World) -> Case:
    yield describe(GROUP, world.new_name())
    yield describe(GROUP, world.new_name(), [SESSION, HEARTBEAT, "no.such.key"], synonyms=True)
    yield describe(GROUP, "")


@case(ApiKey.DESCRIBE_CONFIGS, "3+")
def documentation_of_a_group(world: World) -> Case:
    yield describe(GROUP, world.new_name(), [SESSION], documentation=True)


@case(ApiKey.INCREMENTAL_ALTER_CONFIGS)
def changes_of_a_group(world: World) -> Case:
    group = world.new_name()
    wanted = [SESSION, HEARTBEAT]
    yield increment(GROUP, group, [(SESSION, SET, "50000")])
    yield shown(group, SESSION, "50000")
    yield increment(GROUP, group, [(HEARTBEAT, SET, "7000"), (SESSION, SET, "60000")])
    yield shown(group, SESSION, "60000")
    yield describe(GROUP, group, wanted, synonyms=True)
    yield increment(GROUP, group, [(SESSION, DELETE, None)])
    yield shown(group, SESSION, "45000")
    yield describe(GROUP, group, wanted)
    yield increment(GROUP, group, [(HEARTBEAT, DELETE, None), (SESSION, DELETE, None)])


@case(ApiKey.INCREMENTAL_ALTER_CONFIGS)
def changes_of_a_group_that_cannot_be(world: World) -> Case:
    group = world.new_name()
    for name, text in ((SESSION, "44999"), (SESSION, "60001"), (SESSION, "0"), (SESSION, "x"), (SESSION, ""),
                       (HEARTBEAT, "4999"), (HEARTBEAT, "15001"), (HEARTBEAT, "-1"), ("no.such.key", "1"),
                       ("group.consumer.session.timeout.ms", "50000")):  # fmt: skip
        yield increment(GROUP, group, [(name, SET, text)])
    yield increment(GROUP, group, [(SESSION, APPEND, "50000")])
    yield increment(GROUP, group, [(SESSION, SET, None)])
    yield increment(GROUP, group, [(SESSION, SET, "50000"), (SESSION, SET, "50000")])
    yield increment(GROUP, "", [(SESSION, SET, "50000")])
    yield increment(GROUP, group, [(SESSION, SET, "50000")], validate_only=True)
    yield increment(GROUP, group, [(SESSION, SET, "1")], validate_only=True)
    yield describe(GROUP, group, [SESSION])


@case(ApiKey.ALTER_CONFIGS)
def replacing_those_of_a_group(world: World) -> Case:
    group = world.new_name()
    yield alter(GROUP, group, [(SESSION, "50000")])
    yield shown(group, SESSION, "50000")
    yield alter(GROUP, group, [(HEARTBEAT, "6000")])
    yield shown(group, SESSION, "45000")
    yield describe(GROUP, group, [SESSION, HEARTBEAT])
    yield alter(GROUP, group, [(SESSION, "1")])
    yield alter(GROUP, group, [])


@case(ApiKey.LIST_CONFIG_RESOURCES, "1+")
def groups_with_configs(world: World) -> Case:
    group = world.new_name()
    yield increment(GROUP, group, [(SESSION, SET, "50000")])
    yield Until(
        ListConfigResourcesRequest(resource_types=[GROUP]),
        lambda answer: group in {each.resource_name for each in answer.config_resources},
    )
    yield increment(GROUP, group, [(SESSION, DELETE, None)])
    yield Until(
        ListConfigResourcesRequest(resource_types=[GROUP]),
        lambda answer: group not in {each.resource_name for each in answer.config_resources},
    )
