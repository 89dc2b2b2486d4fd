"""Two callers of one broker without authentication: rules distinguish them by their addresses.

The administrator speaks from one loopback address and may do everything; the tested client speaks from
another and has the rights that a test gives it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from barnabas.client.aio.channel import Channel
from barnabas.client.core.handshake import open_session
from barnabas.core.addressing.endpoints import Endpoint
from barnabas.protocol.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from barnabas.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from barnabas.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from barnabas.security.acl.bindings import AccessRule, AclBinding, ResourcePattern
from barnabas.security.acl.vocabulary import (
    CLUSTER_NAME,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from tests.support.waiting import PATIENCE_S

BROKER_HOST, ADMIN_HOST, CALLER_HOST = "127.0.0.1", "127.0.0.2", "127.0.0.3"
ANONYMOUS = "User:ANONYMOUS"
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SETTINGS = {
    "authorizer.class.name": AUTHORIZER,
    "allow.everyone.if.no.acl.found": "true",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
}
"""Open until the first rules are there: those of the administrator, which name everything."""


class CallerChannel(Channel):
    """One that says where it comes from."""

    @classmethod
    async def connect_from(cls, host: str, address: Endpoint) -> CallerChannel:
        channel = cls(address, "test")
        loop = asyncio.get_running_loop()
        channel._transport, _ = await loop.create_connection(
            lambda: channel, address.host, address.port, local_addr=(host, 0)
        )
        await channel._converse(open_session(channel._session, None))
        return channel


@asynccontextmanager
async def connected(host: str, address: Endpoint) -> AsyncIterator[Channel]:
    channel = await CallerChannel.connect_from(host, address)
    try:
        yield channel
    finally:
        channel.close()


def rule(
    operation: Operation,
    resource_type: ResourceType,
    name: str,
    *,
    host: str = CALLER_HOST,
    permission: Permission = Permission.ALLOW,
    pattern_type: PatternType = PatternType.LITERAL,
    principal: str = ANONYMOUS,
) -> AclBinding:
    return AclBinding(
        ResourcePattern(resource_type, name, pattern_type), AccessRule(principal, host, operation, permission)
    )


ADMIN_RULES = [
    rule(Operation.ALL, kind, CLUSTER_NAME if kind is ResourceType.CLUSTER else "*", host=host)
    for kind in ResourceType
    if kind.is_definite
    for host in (ADMIN_HOST, BROKER_HOST)
]


async def create(channel: Channel, bindings: Iterable[AclBinding]) -> list[int]:
    request = CreateAclsRequest(
        creations=[
            AclCreation(
                resource_type=pattern.resource_type,
                resource_name=pattern.name,
                resource_pattern_type=pattern.pattern_type,
                principal=each.principal,
                host=each.host,
                operation=each.operation,
                permission_type=each.permission,
            )
            for pattern, each in bindings
        ]
    )
    return [each.error_code for each in (await channel.send(request, CreateAclsResponse)).results]


async def until_known(channel: Channel, count: int, host: str = CALLER_HOST) -> None:
    """Wait until the broker applies so many rules for a host; Apache Kafka's brokers read them with a
    delay."""
    request = DescribeAclsRequest(
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=host,
        operation=1,
        permission_type=1,
    )
    async with asyncio.timeout(PATIENCE_S):
        while True:
            listed = await channel.send(request, DescribeAclsResponse)
            if sum(len(resource.acls) for resource in listed.resources) == count:
                return
            await asyncio.sleep(0.02)


def describe(topic: str, host: str = CALLER_HOST) -> DescribeAclsRequest:
    """Of all rules for the topic by its own name, and for a host."""
    return DescribeAclsRequest(
        resource_type_filter=ResourceType.TOPIC,
        resource_name_filter=topic,
        pattern_type_filter=PatternType.LITERAL,
        principal_filter=None,
        host_filter=host,
        operation=Operation.ANY,
        permission_type=Permission.ANY,
    )


async def delete(channel: Channel, binding: AclBinding) -> None:
    """That one, which is there."""
    pattern, own = binding
    wanted = DeleteAclsFilter(
        resource_type_filter=pattern.resource_type,
        resource_name_filter=pattern.name,
        pattern_type_filter=pattern.pattern_type,
        principal_filter=own.principal,
        host_filter=own.host,
        operation=own.operation,
        permission_type=own.permission,
    )
    answer = await channel.send(DeleteAclsRequest(filters=[wanted]), DeleteAclsResponse)
    (result,) = answer.filter_results
    assert (result.error_code, len(result.matching_acls)) == (0, 1)


async def delete_all(channel: Channel, host: str = CALLER_HOST) -> int:
    """All rules for a host; how many there were."""
    everything = DeleteAclsFilter(
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=host,
        operation=1,
        permission_type=1,
    )
    answer = await channel.send(DeleteAclsRequest(filters=[everything]), DeleteAclsResponse)
    (result,) = answer.filter_results
    assert result.error_code == 0
    return len(result.matching_acls)
