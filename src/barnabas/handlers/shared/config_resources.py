"""Checks that AlterConfigs and IncrementalAlterConfigs share.

A resource appears once in a request, and each resource has its own error.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from barnabas.core.errors import InvalidRequest, KafkaError
from barnabas.protocol.config_numbers import ResourceType as ConfigResourceType
from barnabas.requests.context import RequestContext
from barnabas.requests.errors import as_kafka_error, code_and_message
from barnabas.security.acl.vocabulary import CLUSTER_NAME, Operation, ResourceType


class Resource(Protocol):
    @property
    def resource_type(self) -> int: ...
    @property
    def resource_name(self) -> str: ...


R = TypeVar("R", bound=Resource)


def require_config(operation: Operation, resource: Resource, context: RequestContext) -> None:
    """Broker configs need the right to the cluster. Resources without configs are refused elsewhere."""
    kind, name = resource.resource_type, resource.resource_name
    if kind == ConfigResourceType.TOPIC:
        context.require(operation, ResourceType.TOPIC, name)
    elif kind == ConfigResourceType.GROUP:
        context.require(operation, ResourceType.GROUP, name)
    else:
        context.require(operation, ResourceType.CLUSTER, CLUSTER_NAME)


async def alter_each(
    resources: Sequence[R], alter: Callable[[R], Awaitable[None]], context: RequestContext
) -> list[tuple[R, int, str | None]]:
    """Call `alter` for each resource, and return each with its error code and message."""
    times = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    results = []
    for resource in resources:
        await context.breathe()
        failure: KafkaError | None = None
        if times[resource.resource_type, resource.resource_name] > 1:
            failure = InvalidRequest("each resource must appear at most once")
        else:
            try:
                require_config(Operation.ALTER_CONFIGS, resource, context)
                await alter(resource)
            except Exception as error:  # noqa: BLE001 - each resource has its own error
                failure = as_kafka_error(error, "altering configs")
        results.append((resource, *code_and_message(failure)))
    return results
