"""AlterConfigs (33), v0-2. Gaps: none.

The older way: the request replaces all dynamic configs of a resource.
"""

from __future__ import annotations

from barnabas.config.dynamic.changes import parse_replacement
from barnabas.config.dynamic.repository import ConfigResource
from barnabas.handlers.shared.config_resources import alter_each
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from barnabas.requests.bounded_loops import each
from barnabas.requests.context import RequestContext
from barnabas.requests.registry import Api


async def handle_alter_configs(request: AlterConfigsRequest, context: RequestContext) -> AlterConfigsResponse:
    configs = context.broker.configs

    async def alter(asked: AlterConfigsResource) -> None:
        overrides = parse_replacement([(config.name, config.value) for config in asked.configs])
        resource = ConfigResource(asked.resource_type, asked.resource_name)
        await configs.replace(resource, overrides, validate_only=request.validate_only)

    def answer(outcome: tuple[AlterConfigsResource, int, str | None]) -> AlterConfigsResourceResponse:
        asked, code, message = outcome
        return AlterConfigsResourceResponse(
            error_code=code,
            error_message=message,
            resource_type=asked.resource_type,
            resource_name=asked.resource_name,
        )

    outcomes = await alter_each(request.resources, alter, context)
    return AlterConfigsResponse(responses=await context.spread(each(outcomes, answer)))


ALTER_CONFIGS = Api(ApiKey.ALTER_CONFIGS, handle=handle_alter_configs)
