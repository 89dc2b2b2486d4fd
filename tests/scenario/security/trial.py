"""One row of the table of rights, tried: what a broker that is prepared for it answers with which rules."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from barnabas.client.aio.channel import Channel
from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.errors import NotCoordinator
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
from barnabas.protocol.schema.message import Message
from barnabas.requests.access import ACCESS, Check
from barnabas.security.acl.bindings import AclBinding
from barnabas.security.acl.vocabulary import CLUSTER_NAME, PatternType, Permission, ResourceType
from tests.scenario.security.callers import (
    ADMIN_HOST,
    ADMIN_RULES,
    CALLER_HOST,
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
from tests.support.transactions import HandProducer
from tests.support.waiting import eventually_async

DENIED, ALLOWED, WITHOUT_RULES = "denied", "allowed", "without rules"


async def prepare(address: Endpoint) -> World:
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

    async def is_coordinated() -> bool:
        await HandProducer(admin).find(0, GROUP)
        codes = error_codes(await admin.send(request, kind, version_max=9))
        if codes & {NotCoordinator.code, 14, 15}:
            return False
        assert codes == {0}, codes
        return True

    await eventually_async(is_coordinated, "the group has a coordinator")


async def answers(key: ApiKey, place: int, address: Endpoint, world: World) -> dict[str, Message]:
    """To a caller with all rights but the row's, with all, and with none."""
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
        heard = {DENIED: await ask(*allowed, *bindings(checks[place], Permission.DENY))}
        heard[ALLOWED] = await ask(*allowed)
        if case.is_repeatable:
            heard[WITHOUT_RULES] = await ask()
        return heard


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


def error_codes(message: object) -> set[int]:
    return {value for name, value in fields(message) if name.endswith("error_code")}


def values(message: object) -> list[object]:
    return [value for _, value in fields(message)]


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
