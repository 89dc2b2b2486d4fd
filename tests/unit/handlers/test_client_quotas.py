"""DescribeClientQuotas, AlterClientQuotas, and the quota on changes to topics."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from barnabas.config.dynamic.client_entities import user
from barnabas.coordinator.group.coordinator import OFFSETS_TOPIC
from barnabas.core.errors import (
    InvalidRequest,
    InvalidTopicException,
    ThrottlingQuotaExceeded,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from barnabas.handlers.alter_client_quotas import ALTER_CLIENT_QUOTAS
from barnabas.handlers.create_partitions import CREATE_PARTITIONS
from barnabas.handlers.create_topics import CREATE_TOPICS
from barnabas.handlers.delete_topics import DELETE_TOPICS
from barnabas.handlers.describe_client_quotas import ANY, DEFAULT, DESCRIBE_CLIENT_QUOTAS, EXACT
from barnabas.handlers.metadata import METADATA
from barnabas.protocol.messages import alter_client_quotas as altering
from barnabas.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.unit.handlers.support import Broker

Entity = tuple[tuple[str, str | None], ...]

ALICE: Entity = (("user", "alice"),)
EVERY_USER: Entity = (("user", None),)
ALICES_APP: Entity = (("user", "alice"), ("client-id", "app"))
APP: Entity = (("client-id", "app"),)
ADDRESS: Entity = (("ip", "192.0.2.1"),)


async def alter(
    broker: Broker, entity: Entity, version: int = 1, *, validate_only: bool = False, **quotas: float | None
) -> tuple[int, str | None]:
    request = altering.AlterClientQuotasRequest(
        entries=[
            altering.EntryData(
                entity=[altering.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
                ops=[
                    altering.OpData(key=key, value=value or 0.0, remove=value is None)
                    for key, value in quotas.items()
                ],
            )
        ],
        validate_only=validate_only,
    )
    (result,) = (await broker.ask(ALTER_CLIENT_QUOTAS, request, version)).entries
    return result.error_code, result.error_message


async def describe(
    broker: Broker, *components: tuple[str, int, str | None], strict: bool = False, version: int = 1
) -> dict[Entity, dict[str, float]]:
    request = DescribeClientQuotasRequest(
        components=[
            ComponentData(entity_type=kind, match_type=match_type, match=match)
            for kind, match_type, match in components
        ],
        strict=strict,
    )
    response = await broker.ask(DESCRIBE_CLIENT_QUOTAS, request, version)
    assert response.error_code == 0, response.error_message
    return {
        tuple((part.entity_type, part.entity_name) for part in entry.entity): {
            value.key: value.value for value in entry.values
        }
        for entry in response.entries
    }


@pytest.mark.parametrize("version", ALTER_CLIENT_QUOTAS.versions)
async def test_what_is_set_is_described_and_can_be_removed(broker: Broker, version: int) -> None:
    assert await alter(broker, ALICE, version, producer_byte_rate=1000, request_percentage=12.5) == (0, None)
    assert await alter(broker, ALICES_APP, version, consumer_byte_rate=7) == (0, None)
    assert await describe(broker, version=version) == {
        ALICE: {"producer_byte_rate": 1000, "request_percentage": 12.5},
        ALICES_APP: {"consumer_byte_rate": 7},
    }
    assert await alter(broker, ALICE, version, producer_byte_rate=None, request_percentage=25) == (0, None)
    assert (await describe(broker, version=version))[ALICE] == {"request_percentage": 25}
    assert await alter(broker, ALICE, version, request_percentage=None) == (0, None)
    assert ALICE not in await describe(broker, version=version)


async def test_credentials_beside_a_quota_stay_and_are_not_shown(broker: Broker) -> None:
    users = broker.configs.clients
    await users.change(user("alice"), lambda _: {"SCRAM-SHA-256": "salt=secret"})
    assert await describe(broker) == {}
    await alter(broker, ALICE, producer_byte_rate=1)
    await alter(broker, ALICE, producer_byte_rate=None)
    assert users.get(user("alice")) == {"SCRAM-SHA-256": "salt=secret"}


async def test_what_is_only_tried_changes_nothing(broker: Broker) -> None:
    assert await alter(broker, ALICE, validate_only=True, producer_byte_rate=1) == (0, None)
    assert await describe(broker) == {}


@pytest.mark.parametrize(
    ("entity", "quotas"),
    [
        ((), {"producer_byte_rate": 1}),
        ((("user", ""),), {"producer_byte_rate": 1}),
        ((("user", "a"), ("user", "b")), {"producer_byte_rate": 1}),
        ((("planet", "mars"),), {"producer_byte_rate": 1}),
        ((("ip", "192.0.2.1"), ("user", "alice")), {"connection_creation_rate": 1}),
        ((("ip", "nowhere"),), {"connection_creation_rate": 1}),
        (ADDRESS, {"producer_byte_rate": 1}),
        (ALICE, {"connection_creation_rate": 1}),
        (ALICE, {"unknown": 1}),
        (ALICE, {"unknown": None}),
        (ALICE, {"producer_byte_rate": 0.0}),
        (ALICE, {"producer_byte_rate": -5}),
        (ALICE, {"producer_byte_rate": 1.5}),
        (ALICE, {"producer_byte_rate": 1e30}),
        (ALICE, {"request_percentage": float("nan")}),
        (ALICE, {"request_percentage": float("inf")}),
        (ADDRESS, {"connection_creation_rate": 3e9}),
    ],
)
async def test_what_makes_no_sense_is_refused(broker: Broker, entity: Entity, quotas: dict[str, Any]) -> None:
    code, message = await alter(broker, entity, **quotas)
    assert code == InvalidRequest.code
    assert message
    assert await describe(broker) == {}


@pytest.mark.parametrize("host", ["0:0:0:0:0:0:0:1", "localhost"])
async def test_an_address_is_shown_as_it_was_written_and_may_be_a_host(broker: Broker, host: str) -> None:
    entity: Entity = (("ip", host),)
    assert await alter(broker, entity, connection_creation_rate=1) == (0, None)
    assert await describe(broker) == {entity: {"connection_creation_rate": 1}}
    assert await alter(broker, entity, connection_creation_rate=None) == (0, None)
    assert await describe(broker) == {}


async def test_an_entity_that_is_named_twice_is_not_changed(broker: Broker) -> None:
    entry = altering.EntryData(
        entity=[altering.EntityData(entity_type="user", entity_name="alice")],
        ops=[altering.OpData(key="producer_byte_rate", value=1.0)],
    )
    request = altering.AlterClientQuotasRequest(entries=[entry, entry])
    results = (await broker.ask(ALTER_CLIENT_QUOTAS, request)).entries
    assert [result.error_code for result in results] == [InvalidRequest.code] * 2
    assert await describe(broker) == {}


async def test_filters_choose_entities_as_kafka_does(broker: Broker) -> None:
    for entity in (ALICE, EVERY_USER, ALICES_APP, APP):
        await alter(broker, entity, producer_byte_rate=1)
    await alter(broker, ADDRESS, connection_creation_rate=1)
    cases: list[tuple[list[tuple[str, int, str | None]], bool, set[Entity]]] = [
        ([], False, {ALICE, EVERY_USER, ALICES_APP, APP, ADDRESS}),
        ([], True, set()),
        ([("user", EXACT, "alice")], False, {ALICE, ALICES_APP}),
        ([("user", EXACT, "alice")], True, {ALICE}),
        ([("user", DEFAULT, None)], True, {EVERY_USER}),
        ([("user", ANY, None)], True, {ALICE, EVERY_USER}),
        ([("client-id", ANY, None)], False, {APP, ALICES_APP}),
        ([("user", EXACT, "alice"), ("client-id", EXACT, "app")], True, {ALICES_APP}),
        ([("ip", ANY, None)], False, {ADDRESS}),
        ([("user", EXACT, "bob")], False, set()),
    ]
    for components, strict, expected in cases:
        assert set(await describe(broker, *components, strict=strict)) == expected, (components, strict)


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("", ANY, None)], InvalidRequest.code),
        ([("planet", ANY, None)], UnsupportedVersion.code),
        ([("user", ANY, None), ("user", ANY, None)], InvalidRequest.code),
        ([("user", 7, None)], InvalidRequest.code),
        ([("user", EXACT, None)], InvalidRequest.code),
        ([("ip", ANY, None), ("user", ANY, None)], InvalidRequest.code),
    ],
)
async def test_a_filter_that_makes_no_sense_is_refused(
    broker: Broker, components: list[tuple[str, int, str | None]], code: int
) -> None:
    request = DescribeClientQuotasRequest(
        components=[
            ComponentData(entity_type=kind, match_type=match_type, match=match)
            for kind, match_type, match in components
        ]
    )
    response = await broker.ask(DESCRIBE_CLIENT_QUOTAS, request)
    assert (response.error_code, response.entries) == (code, None)


async def test_changes_to_topics_have_a_quota(broker: Broker) -> None:
    await alter(broker, EVERY_USER, controller_mutation_rate=1)

    async def create(name: str, version: int = 7) -> int:
        topic = CreatableTopic(name=name, num_partitions=6, replication_factor=1)
        response = await broker.ask(
            CREATE_TOPICS, CreateTopicsRequest(topics=[topic], timeout_ms=5_000), version
        )
        return int(response.topics[0].error_code)

    assert [await create("a"), await create("b"), await create("c")] == [0, 0, ThrottlingQuotaExceeded.code]
    more = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name="a", count=7, assignments=None)], timeout_ms=5_000
    )
    assert (await broker.ask(CREATE_PARTITIONS, more)).results[0].error_code == ThrottlingQuotaExceeded.code
    gone = DeleteTopicsRequest(topics=[DeleteTopicState(name="b")], timeout_ms=5_000)
    assert (await broker.ask(DELETE_TOPICS, gone)).responses[0].error_code == ThrottlingQuotaExceeded.code
    assert await create("d", version=5) == 0, "an old client would not know the error"
    broker.clock.advance(60_000)
    assert await create("c") == 0


async def test_topics_that_are_created_by_asking_have_the_same_quota(broker: Broker) -> None:
    await alter(broker, EVERY_USER, controller_mutation_rate=1)
    broker.config.num_partitions = 6

    async def ask(*names: str) -> list[int]:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])
        return [topic.error_code for topic in (await broker.ask(METADATA, request)).topics]

    unknown = UnknownTopicOrPartition.code
    first, second = await asyncio.gather(ask("a", "no/name", OFFSETS_TOPIC, "a"), ask("a"))
    assert first == [0, InvalidTopicException.code, unknown]
    assert second == [0]
    assert await ask("a", "b", "c", "d") == [0, 0, unknown, unknown], "a topic is charged for once"
    assert "c" not in broker.metadata
    broker.clock.advance(60_000)
    assert await ask("c") == [0]
