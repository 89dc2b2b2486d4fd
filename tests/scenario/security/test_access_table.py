"""Each row of the table of rights, on real sockets: tried with the right and without it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.client.channel import Channel
from barnabas.core.endpoints import Endpoint
from barnabas.core.errors import NotCoordinator
from barnabas.handlers import APIS
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages import response_class
from barnabas.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from barnabas.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas.protocol.messages.offset_commit import OffsetCommitResponse
from barnabas.protocol.schema import Message
from barnabas.requests.access import ACCESS, Check, Denied
from barnabas.security.acl.bindings import AclBinding
from barnabas.security.acl.vocabulary import (
    CLUSTER_NAME,
    DENIED,
    PatternType,
    Permission,
    ResourceType,
)
from tests.scenario.security.callers import (
    ADMIN_HOST,
    ADMIN_RULES,
    CALLER_HOST,
    SETTINGS,
    connected,
    create,
    delete_all,
    rule,
    until_known,
)
from tests.scenario.security.requests import (
    CASES,
    GROUP,
    NAMES,
    TOPIC,
    TRANSACTION,
    World,
    commit,
    heartbeat_of,
)
from tests.support.broker import Broker, running
from tests.support.fixtures import chosen_broker
from tests.support.transactions import HandProducer

AUTHORIZATION_CODES = frozenset(error.code for error in DENIED.values())
ELSEWHERE = frozenset(
    {
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.UPDATE_FEATURES,
    }
)
"""Tried with what they are about."""

ROWS = [
    pytest.param(key, place, id=f"{key.name.lower()}-{place}")
    for key, cases in CASES.items()
    for place in range(len(cases))
]


@pytest.fixture(scope="module")
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running(chosen_broker(request.config, tmp_path_factory.mktemp("acl"), **SETTINGS)) as started:
        yield started


@pytest.fixture(scope="module")
def world(broker: Broker) -> World:
    return asyncio.run(_prepare(Endpoint(broker.host, broker.port)))


async def _prepare(address: Endpoint) -> World:
    """A topic, a group with an offset, a consumer in another, and an open transaction."""
    async with connected(ADMIN_HOST, address) as admin:
        assert set(await create(admin, ADMIN_RULES)) == {0}
        topic_id = await _make_topic(admin, TOPIC)
        deletable_id = await _make_topic(admin, f"{TOPIC}.deletable")
        for group in (GROUP, f"{GROUP}.kept"):
            await _until_coordinated(admin, commit(group), OffsetCommitResponse)
        await _until_coordinated(
            admin, heartbeat_of(f"{GROUP}.consumer", [TOPIC]), ConsumerGroupHeartbeatResponse
        )
        producer = HandProducer(admin, TRANSACTION)
        while await producer.init() != "NONE":
            await producer.find()
        assert await producer.add(TOPIC) == "NONE"
        return World(topic_id, deletable_id, producer.id, producer.epoch)


async def _make_topic(admin: Channel, name: str) -> Any:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    answer = await admin.send(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), CreateTopicsResponse)
    assert answer.topics[0].error_code in (0, 36)
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
    while True:
        (found,) = (await admin.send(request, MetadataResponse)).topics
        if not found.error_code:
            return found.topic_id
        await asyncio.sleep(0.02)


async def _until_coordinated(admin: Channel, request: Message, kind: type[Message]) -> None:
    """Internal topics come with the first who looks for a coordinator."""
    for _ in range(200):
        await HandProducer(admin).find(0, GROUP)
        answer = await admin.send(request, kind, version_max=9)
        codes = error_codes(answer)
        if not codes & {NotCoordinator.code, 14, 15}:
            assert codes == {0}, codes
            return
        await asyncio.sleep(0.05)
    raise AssertionError("the group has no coordinator")


@pytest.mark.parametrize(("key", "place"), ROWS)
def test_a_row_of_the_table_decides(key: ApiKey, place: int, broker: Broker, world: World) -> None:
    asyncio.run(_try_row(key, place, Endpoint(broker.host, broker.port), world))


async def _try_row(key: ApiKey, place: int, address: Endpoint, world: World) -> None:
    case = CASES[key][place]
    checks = ACCESS[key]
    assert len(checks) == len(CASES[key])
    async with connected(ADMIN_HOST, address) as admin, connected(CALLER_HOST, address) as caller:

        async def ask(*rules: AclBinding) -> Message:
            """With these rules and no others."""
            await delete_all(admin)
            assert set(await create(admin, rules)) <= {0}
            await until_known(admin, len(set(rules)))
            request = case.build(world)
            return await caller.send(request, response_class(key), version_max=case.version_max)

        allowed = [each for check in checks for each in bindings(check, Permission.ALLOW)]
        denied = bindings(checks[place], Permission.DENY)
        check_denied(checks[place], await ask(*allowed, *denied))
        check_allowed(checks[place], await ask(*allowed))
        if case.is_repeatable:
            check_denied(checks[place], await ask())


def bindings(check: Check, permission: Permission) -> list[AclBinding]:
    return [
        rule(
            operation,
            kind,
            NAMES.get(kind, CLUSTER_NAME),
            permission=permission,
            pattern_type=PatternType.LITERAL if kind is ResourceType.CLUSTER else PatternType.PREFIXED,
        )
        for operation, kind in check.rights
    ]


def check_denied(check: Check, answer: Message) -> None:
    if check.denied is Denied.LEFT_OUT:
        assert not hidden(check) & strings(answer)
    elif check.denied is Denied.BITS:
        assert answer.cluster_authorized_operations == 0  # type: ignore[attr-defined]
    else:
        assert error_codes(answer) & AUTHORIZATION_CODES, answer


def check_allowed(check: Check, answer: Message) -> None:
    assert not error_codes(answer) & AUTHORIZATION_CODES, answer
    if check.denied is Denied.LEFT_OUT:
        assert hidden(check) <= strings(answer)
    elif check.denied is Denied.BITS:
        assert answer.cluster_authorized_operations > 0  # type: ignore[attr-defined]


def hidden(check: Check) -> set[str]:
    return {NAMES[check.rights[-1].resource_type]}


def error_codes(message: object) -> set[int]:
    return {value for name, value in fields(message) if name.endswith("error_code")}


def strings(message: object) -> set[str]:
    return {value for _, value in fields(message) if isinstance(value, str)}


def fields(message: object) -> Iterator[tuple[str, Any]]:
    """All fields of a message, those of its parts too."""
    for name, value in vars(message).items() if hasattr(message, "__dict__") else _slots(message):
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, Message):
                yield from fields(each)
            else:
                yield name, each


def _slots(message: object) -> Iterator[tuple[str, Any]]:
    for kind in type(message).__mro__:
        for name in getattr(kind, "__slots__", ()):
            if hasattr(message, name):
                yield name, getattr(message, name)


def test_every_api_for_clients_is_tried() -> None:
    needing = {api.key for api in APIS.for_clients() if ACCESS[api.key]}
    assert needing - ELSEWHERE == set(CASES)
