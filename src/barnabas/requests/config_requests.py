"""What AlterConfigs and IncrementalAlterConfigs share: a resource appears once in a request, and
each resource succeeds or fails by itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from barnabas.core.errors import InvalidRequest, KafkaError
from barnabas.requests.context import RequestContext
from barnabas.requests.failures import as_kafka_error, code_and_message


class Resource(Protocol):
    @property
    def resource_type(self) -> int: ...
    @property
    def resource_name(self) -> str: ...


R = TypeVar("R", bound=Resource)


async def alter_each(
    resources: Sequence[R], alter: Callable[[R], Awaitable[None]], context: RequestContext
) -> list[tuple[R, int, str | None]]:
    """Call `alter` for each resource; with each comes its error code and message."""
    times = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    results = []
    for resource in resources:
        await context.breathe()
        failure: KafkaError | None = None
        if times[resource.resource_type, resource.resource_name] > 1:
            failure = InvalidRequest("each resource must appear at most once")
        else:
            try:
                await alter(resource)
            except Exception as error:  # noqa: BLE001 - each resource has its own error
                failure = as_kafka_error(error, "altering configs")
        results.append((resource, *code_and_message(failure)))
    return results
