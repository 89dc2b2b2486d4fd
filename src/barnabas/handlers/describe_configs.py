"""DescribeConfigs (32), v0-4. Gaps: none.

Every key of a topic or of this broker, defaults included, with the source of its value. The empty broker name
stands for the cluster-wide default. Kafka 4 removed v0; clients of Kafka 0.11 know no other.
"""

from __future__ import annotations

from barnabas.config.dynamic.layers import ConfigEntry
from barnabas.config.dynamic.repository import ConfigResource
from barnabas.handlers.shared.config_resources import require_config
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
from barnabas.requests.bounded_loops import each, matching
from barnabas.requests.context import RequestContext
from barnabas.requests.errors import as_kafka_error
from barnabas.requests.registry import Api
from barnabas.security.acl.vocabulary import Operation
from barnabas.security.acl.vocabulary import ResourceType as AclType


async def handle_describe_configs(
    request: DescribeConfigsRequest, context: RequestContext
) -> DescribeConfigsResponse:
    """Describe the resources. The configs of topics without a replica here are read from the store, if the
    client may see them.

    A resource that is named twice is answered twice, as in Apache Kafka. It is read once, and the budget
    bounds the response.
    """
    resources = request.resources
    known: dict[ConfigResource, list[ConfigEntry]] = {}

    def is_to_be_read(asked: DescribeConfigsResource) -> bool:
        name = asked.resource_name
        return (
            asked.resource_type == ResourceType.TOPIC
            and context.allows(Operation.DESCRIBE_CONFIGS, AclType.TOPIC, name, audited=False)
            and name in context.broker.metadata
        )

    topics = await context.spread(matching(resources, is_to_be_read))
    if topics:
        await context.broker.configs.find_topics([asked.resource_name for asked in topics])
    results = each(resources, lambda asked: _describe(asked, request, context, known))
    return DescribeConfigsResponse(results=await context.spread(results))


def _describe(
    asked: DescribeConfigsResource,
    request: DescribeConfigsRequest,
    context: RequestContext,
    known: dict[ConfigResource, list[ConfigEntry]],
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(
        resource_type=asked.resource_type, resource_name=asked.resource_name, error_message=""
    )
    try:
        require_config(Operation.DESCRIBE_CONFIGS, asked, context)
        resource = ConfigResource(asked.resource_type, asked.resource_name)
        entries = known.get(resource)
        if entries is None:
            entries = known[resource] = context.broker.configs.describe(resource)
        wanted = set(asked.configuration_keys or ())
        shown = [entry for entry in entries if not wanted or entry.name in wanted]
        per_entry = 1 if not request.include_synonyms else 4
        context.budget.spend_elements(per_entry * len(shown))
    except Exception as error:  # noqa: BLE001 - each resource has its own error
        failure = as_kafka_error(error, "describing configs")
        result.error_code = failure.code
        result.error_message = failure.message
        return result
    with_default_flag = context.api_version == 0
    result.configs = [
        _shown(
            entry,
            default_flag=with_default_flag,
            synonyms=request.include_synonyms,
            documentation=request.include_documentation,
        )
        for entry in shown
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
