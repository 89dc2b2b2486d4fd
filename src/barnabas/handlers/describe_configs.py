"""DescribeConfigs (32), v0-4. Gaps: client metrics have no configs.

Every key of a topic or of this broker, defaults included, with the source of its value; the
empty broker name stands for what is set for all brokers. Kafka 4 dropped v0; the clients of
0.11 know no other.
"""

from __future__ import annotations

from collections.abc import Generator

from barnabas.config.layers import ConfigEntry
from barnabas.config.repository import ConfigResource
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.config_numbers import ConfigSource, ResourceType
from barnabas.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from barnabas.requests.config_requests import require_config
from barnabas.requests.context import RequestContext
from barnabas.requests.failures import as_kafka_error
from barnabas.requests.registry import Api
from barnabas.security.acl.vocabulary import Operation


async def handle_describe_configs(
    request: DescribeConfigsRequest, context: RequestContext
) -> DescribeConfigsResponse:
    """A broker may be asked about topics that it has nothing of."""
    topics = [asked.resource_name for asked in request.resources if asked.resource_type == ResourceType.TOPIC]
    await context.broker.configs.find_topics([name for name in topics if name in context.broker.metadata])
    return await context.spread(_describe_all(request, context))


def _describe_all(
    request: DescribeConfigsRequest, context: RequestContext
) -> Generator[None, None, DescribeConfigsResponse]:
    """A resource that is named again has the same answer, not another one like it: a broker has
    hundreds of keys, and a request may name it a hundred thousand times."""
    known: dict[tuple[int, str, tuple[str, ...] | None], DescribeConfigsResult] = {}
    results = []
    for asked in request.resources:
        keys = None if asked.configuration_keys is None else tuple(asked.configuration_keys)
        name = (asked.resource_type, asked.resource_name, keys)
        if name not in known:
            known[name] = _describe(asked, request, context)
        results.append(known[name])
        yield
    return DescribeConfigsResponse(results=results)


def _describe(
    asked: DescribeConfigsResource, request: DescribeConfigsRequest, context: RequestContext
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(
        resource_type=asked.resource_type, resource_name=asked.resource_name, error_message=""
    )
    try:
        require_config(Operation.DESCRIBE_CONFIGS, asked, context)
        entries = context.broker.configs.describe(ConfigResource(asked.resource_type, asked.resource_name))
    except Exception as error:  # noqa: BLE001 - each resource has its own error
        failure = as_kafka_error(error, "describing configs")
        result.error_code = failure.code
        result.error_message = failure.message
        return result
    wanted = set(asked.configuration_keys or ())
    with_default_flag = context.api_version == 0
    result.configs = [
        _shown(
            entry,
            default_flag=with_default_flag,
            synonyms=request.include_synonyms,
            documentation=request.include_documentation,
        )
        for entry in entries
        if not wanted or entry.name in wanted
    ]
    return result


def _shown(
    entry: ConfigEntry, *, default_flag: bool, synonyms: bool, documentation: bool
) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        is_default=default_flag and entry.source == ConfigSource.DEFAULT,
        config_source=entry.source,
        is_sensitive=entry.is_sensitive,
        synonyms=[
            DescribeConfigsSynonym(name=synonym.name, value=synonym.value, source=synonym.source)
            for synonym in entry.synonyms
        ]
        if synonyms
        else [],
        config_type=entry.type,
        documentation=entry.documentation if documentation else None,
    )


DESCRIBE_CONFIGS = Api(ApiKey.DESCRIBE_CONFIGS, handle=handle_describe_configs)
